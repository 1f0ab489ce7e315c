"""The brokers of a cluster and requests that any client may send, against scripted brokers that stop and start."""

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
    heartbeat,
    node,
    offset_by_node,
    offsets_answer,
    requested_partitions,
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


def test_cluster_tries_every_bootstrap_server() -> None:
    """One server that listens is enough, at any place in the list."""
    with ScriptedBroker(nodes=2) as broker, unused_port() as port:
        servers = (("127.0.0.1", port), broker.servers[1])
        assert with_client(servers, lambda client: client.brokers()) == (node(broker, 1), node(broker, 2))


def test_bootstrap_that_fails_names_every_server_and_reason() -> None:
    """If no server can be reached, the error names the reason for each server."""
    with unused_port() as one, unused_port() as other:
        with pytest.raises(TransportError, match="No broker can be reached: ") as caught:
            with_client((("127.0.0.1", one), ("127.0.0.1", other)), lambda client: client.find_coordinator("g"))
        assert f"127.0.0.1:{one}: connection refused" in str(caught.value)
        assert f"127.0.0.1:{other}: connection refused" in str(caught.value)


def test_cluster_uses_known_brokers_when_the_bootstrap_server_is_gone() -> None:
    """The brokers of the first metadata response remain known after the bootstrap server is gone."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.stop_node, 1)
        return await client.brokers()

    with ScriptedBroker(nodes=2) as broker:
        assert with_client(broker.servers[:1], act) == (node(broker, 1), node(broker, 2))


def test_cluster_fetches_the_brokers_after_the_first_request() -> None:
    """A lookup does not wait for the broker list, but the client has the list when the server is gone."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.find_coordinator("g")
        await asyncio.to_thread(broker.wait_for, METADATA)
        asked = [request.api_key for request in broker.requests()]
        assert asked.index(FIND) < asked.index(METADATA)
        # Its response arrives before the next response on the same connection.
        await client.find_coordinator("g")
        await asyncio.to_thread(broker.stop_node, 1)
        return await client.brokers()

    with ScriptedBroker(nodes=2) as broker:
        assert with_client(broker.servers[:1], act) == (node(broker, 1), node(broker, 2))


def test_cluster_fetches_the_brokers_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose first request is for metadata has the brokers already."""

    async def act(client: Cluster) -> None:
        monkeypatch.setattr(network, "_LEARN_AFTER_S", PATIENCE_S)
        await client.brokers()
        monkeypatch.setattr(network, "_LEARN_AFTER_S", 0.0)
        await client._learn_brokers()

    with ScriptedBroker() as broker:
        with_client(broker.servers, act)
        assert len(broker.requests(METADATA)) == 1


def test_cluster_bootstraps_again_when_all_known_brokers_are_gone() -> None:
    """A cluster whose brokers all moved is found through bootstrap.servers."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.disconnect, 1)
        broker.advertised.clear()
        return await client.brokers()

    with ScriptedBroker() as broker, unused_port() as port:
        broker.advertised = {1: ("127.0.0.1", port)}
        assert with_client(broker.servers, act) == (node(broker),)


def test_cluster_without_rebootstrap_uses_no_bootstrap_server_once_brokers_are_known() -> None:
    """With metadata.recovery.strategy=none, a cluster that moved is not found, and the error names the known broker."""

    async def act(client: Cluster) -> None:
        await client.brokers()
        await asyncio.to_thread(broker.disconnect, 1)
        broker.advertised.clear()
        with pytest.raises(TransportError):  # this request may be the one that detects the lost connection
            await client.find_coordinator("g")
        with pytest.raises(TransportError, match=f"127.0.0.1:{port}: connection refused"):
            await client.find_coordinator("g")

    with ScriptedBroker() as broker, unused_port() as port:
        broker.advertised = {1: ("127.0.0.1", port)}
        with_client(replace(settings(*broker.servers), rebootstraps=False), act)
        assert broker.requests(FIND) == []


def test_cluster_with_canonical_bootstrap_connects_by_canonical_names() -> None:
    """client.dns.lookup=resolve_canonical_bootstrap_servers_only uses the resolver's names, as librdkafka does."""

    async def act(client: Cluster) -> set[str]:
        await client.find_coordinator("g")
        return {of_one.host for of_one in client.traffic()}

    with ScriptedBroker() as broker:
        (server,) = broker.servers
        name, _ = socket.getnameinfo(server, socket.NI_NUMERICSERV)
        assert with_client(replace(settings(server), has_canonical_bootstrap=True), act) == {name}


def test_cluster_bootstraps_again_after_rebootstrap_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-1102: the broker reports stale metadata, and the client bootstraps again instead of failing."""
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


def test_request_to_an_unreachable_broker_fails_at_once_during_its_backoff(caplog: pytest.LogCaptureFixture) -> None:
    """reconnect.backoff.ms: a second request fails immediately with the first reason, which is logged once."""

    async def act(client: Cluster) -> list[str]:
        coordinator = BrokerAddress(node_id=1, host="127.0.0.1", port=port)
        outcomes = [await exchange(client, coordinator, "g", heartbeat(), PATIENCE_S) for _ in range(3)]
        return [outcome.reason for outcome in outcomes if isinstance(outcome, HeartbeatFailed)]

    with unused_port() as port, caplog.at_level(logging.DEBUG, logger="consumer_membership.network"):
        patient = replace(settings(("127.0.0.1", port)), reconnect_backoff_s=60.0, reconnect_backoff_max_s=60.0)
        first, *others = with_client(patient, act)
    assert first.endswith("check that the broker is running, and the port")
    assert others == [first, first]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_cluster_tries_a_broker_again_after_its_backoff() -> None:
    """A waiting request uses a broker that comes back."""

    async def act(client: Cluster) -> tuple[BrokerAddress, ...]:
        asked = asyncio.create_task(client.brokers())
        await asyncio.to_thread(broker.start_node, 1)
        return await asked

    with ScriptedBroker() as broker:
        broker.stop_node(1)
        assert with_client(broker.servers, act) == (node(broker),)


# ---- topics and offsets ----------------------------------------------------------------------------------------------


def listed(broker: ScriptedBroker, timeout_s: float = PATIENCE_S) -> Any:
    """Return the end offsets of both partitions."""
    return with_client(
        broker.servers,
        lambda client: client.list_offsets({T0: -1, T1: -1}, read_committed=True, timeout_s=timeout_s),
    )


def test_list_offsets_requests_each_partition_from_its_leader() -> None:
    """Each request has the isolation level."""
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 2))}
    with ScriptedBroker(answers(offsets=offset_by_node), nodes=2, topics=topics) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert {request.entity.isolation_level for request in broker.requests(LIST_OFFSETS)} == {1}


def test_list_offsets_looks_up_a_leader_that_moved() -> None:
    """After NOT_LEADER_OR_FOLLOWER the partition is requested again with fresh metadata; other offsets are kept."""

    def offsets(request: Received) -> Answer:
        if len(broker.requests(LIST_OFFSETS)) > 1:
            return offset_by_node(request)
        broker.topics["t"] = Topic(TOPIC_ID, leaders=(1, 2))
        return offsets_answer({T0: (1, 0), T1: (-1, 6)})

    with ScriptedBroker(answers(offsets=offsets), nodes=2, topics={"t": Topic(TOPIC_ID, leaders=(1, 1))}) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert [requested_partitions(request) for request in broker.requests(LIST_OFFSETS)] == [[T0, T1], [T1]]


def test_list_offsets_waits_for_a_new_topic() -> None:
    """A new topic may be missing in a broker's metadata, or may have no leader yet."""

    def metadata(_: Received) -> Answer:
        stages = [{}, {}, {"t": Topic(TOPIC_ID, leaders=(1, -1))}, {"t": Topic(TOPIC_ID, leaders=(1, 1))}]
        broker.topics = stages[min(len(broker.requests(METADATA)), 3)]
        return None

    with ScriptedBroker(answers(offsets=offset_by_node, metadata=metadata)) as broker:
        assert listed(broker) == {T0: 1, T1: 1}


def test_list_offsets_returns_known_offsets_although_a_partition_has_no_leader() -> None:
    """When the timeout ends, known offsets are returned with the latest error of each other partition."""
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, leaders=(1, -1))}) as broker:
        found = next(
            found for time_s in (0.05, 0.5, 5.0) if isinstance((found := listed(broker, timeout_s=time_s))[T0], int)
        )
    assert (found[T0], found[T1].error.name) == (1, "LEADER_NOT_AVAILABLE")


def test_list_offsets_does_not_repeat_a_final_refusal() -> None:
    """A missing permission is a final error; the other partitions are requested again."""
    results = iter([{T0: (-1, 6), T1: (-1, 29)}, {T0: (7, 0)}])
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 1))}
    with ScriptedBroker(answers(offsets=lambda _: offsets_answer(next(results))), topics=topics) as broker:
        found = listed(broker)
        assert [requested_partitions(request) for request in broker.requests(LIST_OFFSETS)] == [[T0, T1], [T0]]
    assert (found[T0], found[T1].error.name) == (7, "TOPIC_AUTHORIZATION_FAILED")


def test_list_offsets_returns_the_reason_if_no_broker_responds() -> None:
    """Each partition has a TransportError if no response came in time."""
    with ScriptedBroker(answers(metadata=lambda _: DROP)) as broker:
        found = listed(broker, timeout_s=0.05)
    assert {type(answer) for answer in found.values()} == {TransportError}
    assert found.keys() == {T0, T1}


def test_topic_names_resolves_topic_ids() -> None:
    """KIP-516: `topic_names` returns names by id, and omits an id that the cluster does not have."""
    with ScriptedBroker(topics={"t": Topic(TOPIC_ID, leaders=(1,))}) as broker:
        wanted = frozenset({TOPIC_ID, UUID(int=1)})
        names = with_client(broker.servers, lambda client: client.topic_names(wanted, PATIENCE_S))
        assert names == {TOPIC_ID: "t"}
        assert with_client(broker.servers, lambda client: client.topic_names(frozenset(), PATIENCE_S)) == {}


def test_metadata_request_is_repeated_after_a_broken_connection() -> None:
    """A connection that breaks during a Metadata request costs one more attempt."""

    def metadata(_: Received) -> Answer:
        return DISCONNECT if len(broker.requests(METADATA)) < 3 else None

    with ScriptedBroker(answers(metadata=metadata)) as broker:
        assert with_client(broker.servers, lambda client: client.brokers()) == (node(broker),)


def test_metadata_request_to_a_silent_cluster_raises_a_transport_error() -> None:
    """If no response came in time, the error names the requested data."""
    with (
        ScriptedBroker(answers(metadata=lambda _: DROP)) as broker,
        pytest.raises(TransportError, match=r"No broker responded within 0\.05 s to the request for metadata"),
    ):
        with_client(broker.servers, lambda client: client.topics(["t"], timeout_s=0.05))


# ---- coordinators, and requests to any broker ----------------------------------------------------------------------


def result_of(script: Script, ask: Callable[[Cluster], Awaitable[ResultT]]) -> ResultT:
    """Return the result of one request to a scripted broker."""
    with ScriptedBroker(script) as broker:
        return with_client(broker.servers, ask)


@pytest.mark.parametrize("versions", [(0, 3), (0, 6)])
def test_find_coordinator_returns_the_coordinator(versions: tuple[int, int]) -> None:
    """Rules 2.5: the lookup returns the coordinator in the single form and in the batch form of the request."""
    with ScriptedBroker(nodes=2, versions={**NEWEST, FIND: versions}) as broker:
        broker.coordinator = 2
        assert with_client(broker.servers, lambda client: client.find_coordinator("g")) == node(broker, 2)


@pytest.mark.parametrize(("versions", "expected"), [((0, 3), 20), ((0, 6), 1)])
def test_find_coordinator_of_many_groups_at_once_is_one_request(versions: tuple[int, int], expected: int) -> None:
    """KIP-699: from version 4 on, simultaneous lookups share one request, and a refusal applies to one group."""

    def find(request: Received) -> Answer:
        found = broker.own_answer(request)
        if request.version < 4:
            return found
        coordinators = tuple(
            replace(one, error_code=ErrorCode.group_authorization_failed) if one.key == "g7" else one
            for one in found.coordinators
        )
        return replace(found, coordinators=coordinators)

    async def look_up(client: Cluster) -> list[object]:
        lookups = (client.find_coordinator(f"g{number}") for number in range(20))
        return await asyncio.gather(*lookups, return_exceptions=True)

    with ScriptedBroker(answers(find=find), versions={**NEWEST, FIND: versions}) as broker:
        found = with_client(broker.servers, look_up)
        refused = [number for number, one in enumerate(found) if one != node(broker, 1)]
        assert (len(broker.requests(FIND)), refused) == (expected, [7] if expected == 1 else [])


def test_find_coordinator_of_a_later_moment_is_another_request() -> None:
    """A request contains the groups whose lookups waited when it was written, each once."""

    async def look_up(client: Cluster) -> list[object]:
        first = await asyncio.gather(client.find_coordinator("a"), client.find_coordinator("a"))
        return [*first, await client.find_coordinator("b")]

    with ScriptedBroker() as broker:
        assert with_client(broker.servers, look_up) == [node(broker, 1)] * 3
        assert [request.entity.coordinator_keys for request in broker.requests(FIND)] == [("a",), ("b",)]


@pytest.mark.parametrize(("code", "retriable"), [(14, True), (15, True), (30, False)])
def test_find_coordinator_refusal_reports_whether_it_is_retriable(code: int, retriable: bool) -> None:  # noqa: FBT001
    """A fresh cluster has no coordinator yet, but a missing permission stays missing."""

    def find(request: Received) -> Answer:
        found = broker.own_answer(request)
        (one,) = found.coordinators
        return replace(found, coordinators=(replace(one, error_code=ErrorCode(code), node_id=-1, host="", port=-1),))

    with ScriptedBroker(answers(find=find)) as broker, pytest.raises(BrokerRefusal) as caught:
        with_client(broker.servers, lambda client: client.find_coordinator("g"))
    assert (caught.value.error.code, caught.value.retriable) == (code, retriable)


def test_find_coordinator_replaces_a_connection_that_did_not_respond() -> None:
    """After a timeout the next lookup uses a new connection, long before socket.timeout.ms is over."""
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

    assert result_of(first_connection_is_dead, look_up_twice).node_id == 1
    assert len(set(silent)) == 2


def test_group_config_is_returned_by_any_broker() -> None:
    """A refusal is raised as BrokerRefusal, with the name of the group."""
    expected = {"consumer.session.timeout.ms": "45000"}

    def found(answer: Answer, timeout_s: float = PATIENCE_S) -> object:
        return result_of(answers(configs=answer), lambda client: client.group_config("g", timeout_s))

    assert found(config_answer(expected)) == expected
    with pytest.raises(BrokerRefusal, match="Not authorized to access group: g"):
        found(config_answer({}, code=30))
    with pytest.raises(TransportError):
        found(DROP, 0.02)


def test_end_offsets_returns_an_offset_or_a_refusal_for_each_partition() -> None:
    """A partition without a leader does not delay the other partitions."""
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, (1, -1))}) as broker:
        wanted = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)]
        found = with_client(broker.servers, lambda client: client.end_offsets(wanted))
    assert found[wanted[0]] == 1
    refusals = [found[partition] for partition in wanted[1:]]
    assert [str(refusal).split(":")[0] for refusal in refusals] == [
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
