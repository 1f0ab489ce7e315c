"""`GroupAdmin` over TCP against a scripted coordinator: both protocols, refusals with their remedies, lost answers."""

from __future__ import annotations

import asyncio

import pytest

from consumer_membership.admin import GroupAdmin, RemovalOutcome
from consumer_membership.errors import (
    ConfigurationError,
    GroupError,
    TransportError,
    UnsupportedProtocolError,
    UseError,
)
from consumer_membership.types import BrokerAddress, GroupProtocol, TopicPartition
from tests.admin.coordinator import TOPICS, TWO, leaves, scripted
from tests.runtime.clients import DESCRIBE, DESCRIBE_CLASSIC, FIND, LEAVE, LIST_OFFSETS, refusal_at_the_end
from tests.support.scripted_broker import DISCONNECT, DROP, NEWEST, Answer, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S
from tests.wire.groups import (
    blob,
    classic_group,
    classic_member,
    consumer_group,
    fetch_answer_v9,
    leave_answer,
)

NOT_CONSUMER = consumer_group(code=69, message="Group g is not a consumer group.")


def admin(broker: ScriptedBroker, timeout_s: float = PATIENCE_S, **config: object) -> GroupAdmin:
    """An admin of this cluster, with backoffs that a test can wait for."""
    quick = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 10}
    return GroupAdmin({"bootstrap.servers": broker.bootstrap_servers, **quick, **config}, timeout_s=timeout_s)


# ---- describe --------------------------------------------------------------------------------------------------------


def test_group_is_described_with_its_lag() -> None:
    """Members and epochs from the coordinator, lag from the difference, owner from the assignment."""
    committed = fetch_answer_v9({TopicPartition("t", 0): (4, 0)})
    with ScriptedBroker(scripted(describe=TWO, fetch=committed), topics=TOPICS) as broker:
        report = admin(broker).describe("g")
        host, port = broker.address(1)
    assert report.coordinator == BrokerAddress(node_id=1, host=host, port=port)
    assert [member.member_id for member in report.group.members] == ["d", "s"]
    assert [(one.partition, one.committed, one.end, one.lag, one.owner) for one in report.partitions] == [
        (0, 4, 10, 6, "d"),
        (1, None, 10, None, "s"),
    ]
    assert report.lag == 6


def test_classic_group_is_found_without_being_told_so() -> None:
    """ConsumerGroupDescribe says that it is none of its own, and DescribeGroups knows it."""
    member = classic_member("a", member_assignment=blob({"t": (0, 1)}))
    answers = scripted(describe=NOT_CONSUMER, classic=classic_group(member), fetch=fetch_answer_v9({}))
    with ScriptedBroker(answers, topics=TOPICS) as broker:
        report = admin(broker).describe("g")
    assert report.group.protocol is GroupProtocol.CLASSIC
    assert [one.owner for one in report.partitions] == ["a", "a"]


def test_classic_group_on_a_broker_without_the_consumer_protocol() -> None:
    """No api key 69: only classic groups can be there."""
    versions = {key: ends for key, ends in NEWEST.items() if key != DESCRIBE}
    answers = scripted(classic=classic_group(), fetch=fetch_answer_v9({}))
    with ScriptedBroker(answers, versions=versions) as broker:
        assert admin(broker).describe("g").group.state == "Stable"


def test_description_without_offsets_asks_for_none() -> None:
    """It needs fewer rights, and fewer requests."""
    with ScriptedBroker(scripted(describe=TWO)) as broker:
        assert admin(broker).describe("g", with_offsets=False).partitions == ()
        assert {request.api_key for request in broker.requests()}.isdisjoint({9, LIST_OFFSETS})


@pytest.mark.parametrize(
    ("consumer", "classic", "code", "words"),
    [
        pytest.param(
            consumer_group(code=69, message="Group g not found."),
            classic_group(code=69, message="Group g not found."),
            69,
            "group.id='g': the cluster has no such group; check the spelling and bootstrap.servers",
            id="no such group",
        ),
        pytest.param(
            NOT_CONSUMER,
            classic_group(code=69, message="Group g is not a classic group."),
            69,
            "kafka-share-groups.sh",
            id="a share group",
        ),
        pytest.param(
            consumer_group(code=30), None, 30, "needs the ACL operation DESCRIBE on the group", id="the group"
        ),
        pytest.param(consumer_group(code=29), None, 29, "DESCRIBE on every topic", id="a topic of it"),
        pytest.param(consumer_group(code=24), None, 24, "describing a group was refused: INVALID_GROUP_ID", id="other"),
    ],
)
def test_refused_description_names_group_and_remedy(consumer: Answer, classic: Answer, code: int, words: str) -> None:
    """The error is the package's own, with Kafka's code."""
    with (
        ScriptedBroker(scripted(describe=consumer, classic=classic)) as broker,
        pytest.raises(GroupError) as refusal,
    ):
        admin(broker).describe("g")
    assert refusal.value.code == code
    assert "group.id='g'" in str(refusal.value)
    assert words in str(refusal.value)


def test_coordinator_that_is_loading_or_has_moved_is_asked_again() -> None:
    """With backoff, within the time."""

    def describe(_: Received) -> Answer:
        count = len(broker.requests(DESCRIBE))
        if count == 1:
            broker.coordinator = 2
        return {1: consumer_group(code=16), 2: DISCONNECT, 3: consumer_group(code=14)}.get(count, TWO)

    with ScriptedBroker(scripted(describe=describe, fetch=fetch_answer_v9({})), nodes=2, topics=TOPICS) as broker:
        assert len(admin(broker).describe("g").group.members) == 2
        assert [request.node_id for request in broker.requests(DESCRIBE)] == [1, 2, 2, 2]


def test_coordinator_that_stays_busy_is_named_when_time_is_over() -> None:
    """The last thing it said, and what to do."""
    with ScriptedBroker(scripted(describe=consumer_group(code=14))) as broker:
        refused = refusal_at_the_end(lambda time_s: admin(broker, timeout_s=time_s).describe("g"), GroupError)
    assert "not ready in time (COORDINATOR_LOAD_IN_PROGRESS); try again" in str(refused)
    assert refused.code == 14


def test_silence_ends_in_time() -> None:
    """A cluster that does not answer holds nobody up."""
    with ScriptedBroker(scripted(describe=DROP)) as broker, pytest.raises(TransportError):
        admin(broker, timeout_s=0.05).describe("g")


def test_broker_that_cannot_be_asked_is_unsupported() -> None:
    """Neither protocol's description is offered; the text names the API."""
    versions = {key: ends for key, ends in NEWEST.items() if key not in (DESCRIBE, DESCRIBE_CLASSIC)}
    with ScriptedBroker(versions=versions) as broker, pytest.raises(UnsupportedProtocolError, match="DescribeGroups"):
        admin(broker).describe("g")


# ---- remove ----------------------------------------------------------------------------------------------------------


def outcomes(broker: ScriptedBroker, **how: object) -> list[RemovalOutcome]:
    """What became of each member."""
    return [one.outcome for one in admin(broker).remove_members("g", **how)]  # type: ignore[arg-type]


def test_members_are_removed_in_one_request_each_with_its_result() -> None:
    """One unknown id keeps nobody else."""
    with ScriptedBroker(scripted(describe=TWO, leave=leaves)) as broker:
        found = outcomes(broker, instance_ids=["i"], member_ids=["d", "x"], reason="moving")
        (request,) = broker.requests(LEAVE)
    assert found == [RemovalOutcome.REMOVED, RemovalOutcome.REMOVED, RemovalOutcome.UNKNOWN]
    assert [(one.member_id, one.group_instance_id) for one in request.entity.members] == [
        ("", "i"),
        ("d", None),
        ("x", None),
    ]
    assert {one.reason for one in request.entity.members} == {"member was removed by an admin: moving"}


def test_everyone_is_whoever_the_group_has() -> None:
    """Described first, then removed."""
    with ScriptedBroker(scripted(describe=TWO, leave=leaves)) as broker:
        assert outcomes(broker, everyone=True) == [RemovalOutcome.REMOVED] * 2
        (request,) = broker.requests(LEAVE)
    assert [(one.member_id, one.group_instance_id) for one in request.entity.members] == [("d", None), ("", "i")]


def test_everyone_of_nobody_is_nothing() -> None:
    """An empty group is as it should be, and is not asked."""
    with ScriptedBroker(scripted(describe=consumer_group())) as broker:
        assert outcomes(broker, everyone=True) == []
        assert broker.requests(LEAVE) == []


def test_dry_run_asks_for_no_removal() -> None:
    """It describes, and says what would be."""
    with ScriptedBroker(scripted(describe=TWO)) as broker:
        found = outcomes(broker, instance_ids=["i", "x"], dry_run=True)
        assert found == [RemovalOutcome.WOULD_BE_REMOVED, RemovalOutcome.UNKNOWN]
        assert outcomes(broker, everyone=True, dry_run=True) == [RemovalOutcome.WOULD_BE_REMOVED] * 2
        assert broker.requests(LEAVE) == []


def test_lost_answer_of_a_removal_is_no_failure() -> None:
    """The first attempt removed the member, the second one does not find it: it is out of the group."""

    def leave(_: Received) -> Answer:
        return DISCONNECT if len(broker.requests(LEAVE)) == 1 else leave_answer(("d", None, 25))

    def describe(_: Received) -> Answer:
        return consumer_group() if broker.requests(LEAVE) else TWO

    with ScriptedBroker(scripted(describe=describe, leave=leave)) as broker:
        (gone,) = admin(broker).remove_members("g", member_ids=["d"])
        assert len(broker.requests(LEAVE)) == 2
    assert (gone.outcome, gone.succeeded) == (RemovalOutcome.ALREADY_GONE, True)
    assert gone.member is not None


def test_member_that_stays_after_unknown_is_a_refusal() -> None:
    """Brokers before 4.0 do not remove members of the consumer protocol."""
    with ScriptedBroker(scripted(describe=TWO, leave=leave_answer(("d", None, 25)))) as broker:
        assert outcomes(broker, member_ids=["d"]) == [RemovalOutcome.REFUSED]


def test_removal_goes_on_where_topics_may_not_be_described() -> None:
    """The right to remove is on the group; who it was is then not known. A dry run and everyone need to know."""
    hidden = consumer_group(code=29)
    with ScriptedBroker(scripted(describe=hidden, leave=leaves)) as broker:
        (done,) = admin(broker).remove_members("g", member_ids=["d"])
        assert (done.outcome, done.member) == (RemovalOutcome.REMOVED, None)
        assert "describing the group is not allowed" in done.message
        for how in ({"everyone": True}, {"member_ids": ["d"], "dry_run": True}):
            with pytest.raises(GroupError, match="DESCRIBE on every topic"):
                outcomes(broker, **how)


def test_forbidden_removal_names_the_right_that_it_needs() -> None:
    """READ on the group; nobody was removed."""
    with (
        ScriptedBroker(scripted(describe=TWO, leave=leave_answer(code=30))) as broker,
        pytest.raises(GroupError, match=r"removing members is not allowed .* the ACL operation READ on the group"),
    ):
        outcomes(broker, member_ids=["d"])


def test_unknown_group_is_refused_before_any_removal() -> None:
    """The coordinator itself would call every member unknown."""
    missing = {
        "describe": consumer_group(code=69, message="Group g not found."),
        "classic": classic_group(code=69, message="Group g not found."),
    }
    with ScriptedBroker(scripted(**missing)) as broker:
        with pytest.raises(GroupError, match="no such group"):
            outcomes(broker, member_ids=["d"])
        assert broker.requests(LEAVE) == []


# ---- configuration and use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "h:1", "security.protocol": "sasl_ssl"}, "sasl.mechanism"),
        ({"bootstrap.servers": "h:1", "security.protocol": "ssl", "ssl.ca.location": "/no/file"}, "ssl.ca.location"),
        ({"bootstrap.servers": "h:1", "socket.timeout.ms": "soon"}, "socket.timeout.ms"),
    ],
)
def test_configuration_is_a_consumer_s_and_refused_as_one(config: dict[str, object], key: str) -> None:
    """The same readers and refusals; nothing is opened."""
    with pytest.raises(ConfigurationError) as refusal:
        GroupAdmin(config)
    assert refusal.value.key == key


def test_group_id_of_the_configuration_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dict for consumers and admins; the environment counts as it does for them, and no group is needed."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_CLIENT_ID", "from-the-environment")
    with ScriptedBroker(scripted(describe=TWO)) as broker:
        for config in ({}, {"group.id": "another"}, {"group.id": None}):
            admin(broker, **config).describe("g", with_offsets=False)
        assert {request.entity.group_ids for request in broker.requests(DESCRIBE)} == {("g",)}
        assert {request.client_id for request in broker.requests(FIND)} == {"from-the-environment"}


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_time_must_be_some(timeout_s: float) -> None:
    """Nothing can be asked in no time."""
    with pytest.raises(ConfigurationError, match="timeout_s"):
        GroupAdmin({"bootstrap.servers": "h:1"}, timeout_s=timeout_s)


def test_group_must_be_named() -> None:
    """An empty id is refused before anything is opened."""
    with pytest.raises(ConfigurationError, match="group_id"):
        GroupAdmin({"bootstrap.servers": "127.0.0.1:1"}).describe("")


def test_call_within_a_loop_is_refused_with_the_way_out() -> None:
    """It would block the loop; in a thread it works."""
    with ScriptedBroker(scripted(describe=TWO)) as broker:

        async def directly() -> None:
            admin(broker).describe("g")

        async def in_a_thread() -> str:
            report = await asyncio.to_thread(admin(broker).describe, "g", with_offsets=False)
            return report.group.state

        with pytest.raises(UseError, match=r"asyncio\.to_thread"):
            asyncio.run(directly())
        assert asyncio.run(in_a_thread()) == "Stable"
