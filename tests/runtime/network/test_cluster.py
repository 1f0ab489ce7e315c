"""Finding the brokers of a cluster and asking what anybody may ask, against scripted brokers that come and go."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13 import response as metadata_v13

from consumer_membership.errors import TransportError
from consumer_membership.membership.events import HeartbeatFailed
from consumer_membership.runtime.network import cluster as network
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.types import BrokerAddress, TopicPartition
from tests.runtime.clients import (
    FIND,
    LIST_OFFSETS,
    METADATA,
    T0,
    T1,
    ResultT,
    answers,
    asked_partitions,
    beat,
    node,
    offset_by_node,
    offsets_answer,
    settings,
    with_client,
)
from tests.support.ports import unused_port
from tests.support.scripted_broker import (
    DISCONNECT,
    DROP,
    NEWEST,
    ZERO,
    Answer,
    Received,
    Script,
    ScriptedBroker,
    Topic,
)
from tests.support.waiting import PATIENCE_S
from tests.wire.groups import TOPIC_ID, config_answer

# ---- finding brokers -------------------------------------------------------------------------------------------------


def test_every_bootstrap_server_is_tried() -> None:
    """One server that listens is enough, wherever it stands in the list."""
    with ScriptedBroker(nodes=2) as broker, unused_port() as port:
        servers = (("127.0.0.1", port), broker.servers[1])
        assert with_client(servers, lambda client: client.brokers()) == (node(broker, 1), node(broker, 2))


def test_bootstrap_that_fails_names_every_server_and_reason() -> None:
    """Where no server can be reached, the text says for each of them why."""
    with unused_port() as one, unused_port() as other:
        with pytest.raises(TransportError, match="No broker can be reached: ") as caught:
            with_client((("127.0.0.1", one), ("127.0.0.1", other)), lambda client: client.find_coordinator("g"))
        assert f"127.0.0.1:{one}: connection refused" in str(caught.value)
        assert f"127.0.0.1:{other}: connection refused" in str(caught.value)


def test_known_brokers_are_used_when_the_bootstrap_server_is_gone() -> None:
    """The cluster's own list, learned at the first contact, outlives the bootstrap server."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.stop_node, 1)
        return await client.brokers()

    with ScriptedBroker(nodes=2) as broker:
        assert with_client(broker.servers[:1], act) == (node(broker, 1), node(broker, 2))


def test_brokers_are_learned_behind_the_first_question() -> None:
    """A lookup does not wait for the cluster's list; the client has it all the same when the server is gone."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.find_coordinator("g")
        await asyncio.to_thread(broker.wait_for, METADATA)
        asked = [request.api_key for request in broker.requests()]
        assert asked.index(FIND) < asked.index(METADATA)
        # Its answer comes before the next one on the same connection.
        await client.find_coordinator("g")
        await asyncio.to_thread(broker.stop_node, 1)
        return await client.brokers()

    with ScriptedBroker(nodes=2) as broker:
        assert with_client(broker.servers[:1], act) == (node(broker, 1), node(broker, 2))


def test_brokers_are_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for metadata at once has learned the brokers."""

    async def act(client: Cluster) -> None:
        monkeypatch.setattr(network, "_LEARN_AFTER_S", PATIENCE_S)
        await client.brokers()
        monkeypatch.setattr(network, "_LEARN_AFTER_S", 0.0)
        await client._learn_brokers()

    with ScriptedBroker() as broker:
        with_client(broker.servers, act)
        assert len(broker.requests(METADATA)) == 1


def test_client_bootstraps_again_when_all_known_brokers_are_gone() -> None:
    """A cluster that moved altogether is found through bootstrap.servers."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.disconnect, 1)
        broker.advertised.clear()
        return await client.brokers()

    with ScriptedBroker() as broker, unused_port() as port:
        broker.advertised = {1: ("127.0.0.1", port)}
        assert with_client(broker.servers, act) == (node(broker),)


def test_without_rebootstrapping_no_server_is_asked_once_brokers_are_known() -> None:
    """metadata.recovery.strategy=none: the same cluster that moved is not found, and the known broker is named."""

    async def act(client: Cluster) -> None:
        await client.brokers()
        await asyncio.to_thread(broker.disconnect, 1)
        broker.advertised.clear()
        with pytest.raises(TransportError):  # it may be this request that notices that the connection is gone
            await client.find_coordinator("g")
        with pytest.raises(TransportError, match=f"127.0.0.1:{port}: connection refused"):
            await client.find_coordinator("g")

    with ScriptedBroker() as broker, unused_port() as port:
        broker.advertised = {1: ("127.0.0.1", port)}
        with_client(replace(settings(*broker.servers), rebootstraps=False), act)
        assert broker.requests(FIND) == []


def test_bootstrap_servers_are_reached_by_the_names_of_their_addresses() -> None:
    """client.dns.lookup=resolve_canonical_bootstrap_servers_only, as in librdkafka: what the resolver calls them."""

    async def act(client: Cluster) -> set[str]:
        await client.find_coordinator("g")
        return {of_one.host for of_one in client.traffic()}

    with ScriptedBroker() as broker:
        (server,) = broker.servers
        name, _ = socket.getnameinfo(server, socket.NI_NUMERICSERV)
        assert with_client(replace(settings(server), has_canonical_bootstrap=True), act) == {name}


def test_rebootstrap_required_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-1102: the broker says that what the client knows is stale; it asks again instead of failing."""
    monkeypatch.setattr(network, "_LEARN_AFTER_S", PATIENCE_S)

    def metadata(_: Received) -> Answer:
        if len(broker.requests(METADATA)) != 1:
            return None
        return metadata_v13.MetadataResponse(
            throttle_time=ZERO, brokers=(), topics=(), error_code=ErrorCode.rebootstrap_required
        )

    with ScriptedBroker(answers(metadata=metadata)) as broker:
        assert with_client(broker.servers, lambda client: client.brokers()) == (node(broker),)
        assert [request.connection for request in broker.requests(METADATA)] == [1, 2]


def test_unreachable_broker_is_left_alone_during_its_backoff(caplog: pytest.LogCaptureFixture) -> None:
    """reconnect.backoff.ms: a second request fails at once with the first one's reason; the log says it once."""

    async def act(client: Cluster) -> list[str]:
        coordinator = BrokerAddress(node_id=1, host="127.0.0.1", port=port)
        outcomes = [await exchange(client, coordinator, "g", beat(), PATIENCE_S) for _ in range(3)]
        return [outcome.reason for outcome in outcomes if isinstance(outcome, HeartbeatFailed)]

    with unused_port() as port, caplog.at_level(logging.DEBUG, logger="consumer_membership.network"):
        patient = replace(settings(("127.0.0.1", port)), reconnect_backoff_s=60.0, reconnect_backoff_max_s=60.0)
        first, *others = with_client(patient, act)
    assert first.endswith("is the broker running, and is the port right?")
    assert others == [first, first]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_broker_is_tried_again_after_its_backoff() -> None:
    """A broker that comes back is used again, without anybody asking for it."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        asked = asyncio.create_task(client.brokers())
        await asyncio.to_thread(broker.start_node, 1)
        return await asked

    with ScriptedBroker() as broker:
        broker.stop_node(1)
        assert with_client(broker.servers, act) == (node(broker),)


# ---- topics and offsets ----------------------------------------------------------------------------------------------


def listed(broker: ScriptedBroker, timeout_s: float = PATIENCE_S) -> Any:
    """The ends of both partitions."""
    return with_client(
        broker.servers,
        lambda client: client.list_offsets({T0: -1, T1: -1}, read_committed=True, timeout_s=timeout_s),
    )


def test_offsets_are_asked_of_the_leaders() -> None:
    """Each leader is asked for its own partitions, with the isolation level."""
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 2))}
    with ScriptedBroker(answers(offsets=offset_by_node), nodes=2, topics=topics) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert {request.entity.isolation_level for request in broker.requests(LIST_OFFSETS)} == {1}


def test_leader_that_moved_is_looked_up_again() -> None:
    """NOT_LEADER_OR_FOLLOWER costs the partition another round, with fresh metadata; the others keep their answer."""

    def offsets(request: Received) -> Answer:
        if len(broker.requests(LIST_OFFSETS)) > 1:
            return offset_by_node(request)
        broker.topics["t"] = Topic(TOPIC_ID, leaders=(1, 2))
        return offsets_answer({T0: (1, 0), T1: (-1, 6)})

    with ScriptedBroker(answers(offsets=offsets), nodes=2, topics={"t": Topic(TOPIC_ID, leaders=(1, 1))}) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert [asked_partitions(request) for request in broker.requests(LIST_OFFSETS)] == [[T0, T1], [T1]]


def test_topic_that_appears_late_is_waited_for() -> None:
    """A topic that was just made may be missing in a broker's metadata, or have no leader yet."""

    def metadata(_: Received) -> Answer:
        stages = [{}, {}, {"t": Topic(TOPIC_ID, leaders=(1, -1))}, {"t": Topic(TOPIC_ID, leaders=(1, 1))}]
        broker.topics = stages[min(len(broker.requests(METADATA)), 3)]
        return None

    with ScriptedBroker(answers(offsets=offset_by_node, metadata=metadata)) as broker:
        assert listed(broker) == {T0: 1, T1: 1}


def test_one_partition_without_a_leader_keeps_nobody_back() -> None:
    """Those that are known when the time is over stay, beside what the brokers last said of the others."""
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, leaders=(1, -1))}) as broker:
        found = next(
            found for time_s in (0.05, 0.5, 5.0) if isinstance((found := listed(broker, timeout_s=time_s))[T0], int)
        )
    assert (found[T0], found[T1].error.name) == (1, "LEADER_NOT_AVAILABLE")


def test_final_refusal_of_a_leader_is_asked_once() -> None:
    """A missing right does not come by waiting; the partitions beside it are asked again."""
    results = iter([{T0: (-1, 6), T1: (-1, 29)}, {T0: (7, 0)}])
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 1))}
    with ScriptedBroker(answers(offsets=lambda _: offsets_answer(next(results))), topics=topics) as broker:
        found = listed(broker)
        assert [asked_partitions(request) for request in broker.requests(LIST_OFFSETS)] == [[T0, T1], [T0]]
    assert (found[T0], found[T1].error.name) == (7, "TOPIC_AUTHORIZATION_FAILED")


def test_offsets_that_no_broker_tells_have_the_reason() -> None:
    """Where nothing came back within the time, too."""
    with ScriptedBroker(answers(metadata=lambda _: DROP)) as broker:
        found = listed(broker, timeout_s=0.05)
    assert {type(answer) for answer in found.values()} == {TransportError}
    assert found.keys() == {T0, T1}


def test_topic_ids_are_resolved() -> None:
    """KIP-516: names by id; an id that the cluster does not know is absent."""
    with ScriptedBroker(topics={"t": Topic(TOPIC_ID, leaders=(1,))}) as broker:
        wanted = frozenset({TOPIC_ID, UUID(int=1)})
        names = with_client(broker.servers, lambda client: client.topic_names(wanted, PATIENCE_S))
        assert names == {TOPIC_ID: "t"}
        assert with_client(broker.servers, lambda client: client.topic_names(frozenset(), PATIENCE_S)) == {}


def test_question_that_anybody_may_ask_is_asked_again() -> None:
    """A connection that breaks under Metadata costs another attempt, not the answer."""

    def metadata(_: Received) -> Answer:
        return DISCONNECT if len(broker.requests(METADATA)) < 3 else None

    with ScriptedBroker(answers(metadata=metadata)) as broker:
        assert with_client(broker.servers, lambda client: client.brokers()) == (node(broker),)


def test_silent_cluster_is_an_error_of_the_transport() -> None:
    """Where nothing at all came back within the time, the text says what was asked."""
    with (
        ScriptedBroker(answers(metadata=lambda _: DROP)) as broker,
        pytest.raises(TransportError, match=r"No broker answered within 0\.05 s when asked for metadata"),
    ):
        with_client(broker.servers, lambda client: client.topics(["t"], timeout_s=0.05))


# ---- coordinators, and what any broker tells ------------------------------------------------------------------------


def asked(script: Script, ask: Callable[[Cluster], Awaitable[ResultT]]) -> ResultT:
    """What one question to a scripted broker leads to."""
    with ScriptedBroker(script) as broker:
        return with_client(broker.servers, ask)


@pytest.mark.parametrize("versions", [(0, 3), (0, 6)])
def test_coordinator_is_found(versions: tuple[int, int]) -> None:
    """Rules 2.5, in the single form and in the batch."""
    with ScriptedBroker(nodes=2, versions={**NEWEST, FIND: versions}) as broker:
        broker.coordinator = 2
        assert with_client(broker.servers, lambda client: client.find_coordinator("g")) == node(broker, 2)


@pytest.mark.parametrize(("code", "retriable"), [(14, True), (15, True), (30, False)])
def test_refused_lookup_says_whether_waiting_helps(code: int, retriable: bool) -> None:  # noqa: FBT001
    """A fresh cluster has no coordinator yet; a missing right stays missing."""

    def find(request: Received) -> Answer:
        found = broker.own_answer(request)
        (one,) = found.coordinators
        return replace(found, coordinators=(replace(one, error_code=ErrorCode(code), node_id=-1, host="", port=-1),))

    with ScriptedBroker(answers(find=find)) as broker, pytest.raises(BrokerRefusal) as caught:
        with_client(broker.servers, lambda client: client.find_coordinator("g"))
    assert (caught.value.error.code, caught.value.retriable) == (code, retriable)


def test_lookup_gives_up_a_connection_that_does_not_answer_in_its_time() -> None:
    """A path that forgot the connection: the next lookup makes a new one, long before socket.timeout.ms is over."""
    silent: list[int] = []

    def first_connection_is_dead(request: Received) -> Answer:
        if request.api_key != FIND:
            return None
        silent.append(request.connection)
        return DROP if request.connection == silent[0] else None

    async def look_up_twice(client: Cluster) -> BrokerAddress:
        with pytest.raises(TransportError):
            await client.find_coordinator("g", 0.05)
        return await client.find_coordinator("g", PATIENCE_S)

    assert asked(first_connection_is_dead, look_up_twice).node_id == 1
    assert len(set(silent)) == 2


def test_configuration_comes_from_any_broker() -> None:
    """And a refusal of it is one, with the group's name."""
    expected = {"consumer.session.timeout.ms": "45000"}

    def found(answer: Answer, timeout_s: float = PATIENCE_S) -> object:
        return asked(answers(configs=answer), lambda client: client.group_config("g", timeout_s))

    assert found(config_answer(expected)) == expected
    with pytest.raises(BrokerRefusal, match="Not authorized to access group: g"):
        found(config_answer({}, code=30))
    with pytest.raises(TransportError):
        found(DROP, 0.02)


def test_one_partition_without_leader_keeps_no_other_back() -> None:
    """Each partition has its end, or why it is not known."""
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, (1, -1))}) as broker:
        wanted = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)]
        found = with_client(broker.servers, lambda client: client.end_offsets(wanted))
    assert found[wanted[0]] == 1
    refusals = [found[partition] for partition in wanted[1:]]
    assert [str(refusal).split(":")[0] for refusal in refusals] == [
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
