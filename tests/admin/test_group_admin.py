"""`GroupAdmin` over TCP against a scripted coordinator: both protocols, errors with fixes, lost responses."""

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
from tests.runtime.clients import DESCRIBE, DESCRIBE_CLASSIC, FIND, LEAVE, LIST_OFFSETS, refusal_at_timeout
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
    """Return an admin of this cluster, with short backoffs."""
    quick = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 10}
    return GroupAdmin({"bootstrap.servers": broker.bootstrap_servers, **quick, **config}, timeout_s=timeout_s)


# ---- describe --------------------------------------------------------------------------------------------------------


def test_describe_returns_members_and_lag() -> None:
    """A report has the coordinator's members and epochs, and the owner and the lag of each partition."""
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


def test_describe_finds_classic_group() -> None:
    """If ConsumerGroupDescribe does not find the group, DescribeGroups describes it as a classic group."""
    member = classic_member("a", member_assignment=blob({"t": (0, 1)}))
    answers = scripted(describe=NOT_CONSUMER, classic=classic_group(member), fetch=fetch_answer_v9({}))
    with ScriptedBroker(answers, topics=TOPICS) as broker:
        report = admin(broker).describe("g")
    assert report.group.protocol is GroupProtocol.CLASSIC
    assert [one.owner for one in report.partitions] == ["a", "a"]


def test_describe_finds_classic_group_without_consumer_protocol() -> None:
    """A broker without api key 69 has only classic groups, which DescribeGroups describes."""
    versions = {key: ends for key, ends in NEWEST.items() if key != DESCRIBE}
    answers = scripted(classic=classic_group(), fetch=fetch_answer_v9({}))
    with ScriptedBroker(answers, versions=versions) as broker:
        assert admin(broker).describe("g").group.state == "Stable"


def test_describe_without_offsets_sends_no_offset_requests() -> None:
    """Without offsets, a description sends fewer requests and needs fewer ACLs."""
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
            "group.id='g': the cluster has no group with this id; check group.id and bootstrap.servers",
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
            consumer_group(code=30), None, 30, "allow the ACL operation DESCRIBE on the group", id="the group"
        ),
        pytest.param(consumer_group(code=29), None, 29, "DESCRIBE on every topic", id="a topic of it"),
        pytest.param(consumer_group(code=24), None, 24, "describing a group failed: INVALID_GROUP_ID", id="other"),
    ],
)
def test_describe_raises_group_error_with_group_and_fix(
    consumer: Answer, classic: Answer, code: int, words: str
) -> None:
    """Each error has this package's class, Kafka's code, the group and the fix."""
    with (
        ScriptedBroker(scripted(describe=consumer, classic=classic)) as broker,
        pytest.raises(GroupError) as refusal,
    ):
        admin(broker).describe("g")
    assert refusal.value.code == code
    assert "group.id='g'" in str(refusal.value)
    assert words in str(refusal.value)


def test_describe_retries_loading_or_moved_coordinator() -> None:
    """A coordinator that loads the group, or that has moved, is retried with a backoff."""

    def describe(_: Received) -> Answer:
        count = len(broker.requests(DESCRIBE))
        if count == 1:
            broker.coordinator = 2
        return {1: consumer_group(code=16), 2: DISCONNECT, 3: consumer_group(code=14)}.get(count, TWO)

    with ScriptedBroker(scripted(describe=describe, fetch=fetch_answer_v9({})), nodes=2, topics=TOPICS) as broker:
        assert len(admin(broker).describe("g").group.members) == 2
        assert [request.node_id for request in broker.requests(DESCRIBE)] == [1, 2, 2, 2]


def test_describe_raises_last_error_of_loading_coordinator_after_timeout() -> None:
    """After the timeout, the error has the coordinator's last error code and the fix."""
    with ScriptedBroker(scripted(describe=consumer_group(code=14))) as broker:
        refused = refusal_at_timeout(lambda time_s: admin(broker, timeout_s=time_s).describe("g"), GroupError)
    assert "not ready within the timeout (COORDINATOR_LOAD_IN_PROGRESS); retry" in str(refused)
    assert refused.code == 14


def test_describe_raises_transport_error_after_timeout() -> None:
    """If the cluster does not respond, the call raises TransportError after the timeout."""
    with ScriptedBroker(scripted(describe=DROP)) as broker, pytest.raises(TransportError):
        admin(broker, timeout_s=0.05).describe("g")


def test_describe_raises_unsupported_if_broker_lacks_both_apis() -> None:
    """If the broker lacks both APIs, the error names DescribeGroups."""
    versions = {key: ends for key, ends in NEWEST.items() if key not in (DESCRIBE, DESCRIBE_CLASSIC)}
    with ScriptedBroker(versions=versions) as broker, pytest.raises(UnsupportedProtocolError, match="DescribeGroups"):
        admin(broker).describe("g")


# ---- remove ----------------------------------------------------------------------------------------------------------


def outcomes(broker: ScriptedBroker, **how: object) -> list[RemovalOutcome]:
    """Return the outcome of each member."""
    return [one.outcome for one in admin(broker).remove_members("g", **how)]  # type: ignore[arg-type]


def test_remove_members_sends_one_request_and_returns_each_result() -> None:
    """An unknown id does not affect the other members."""
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


def test_remove_members_everyone_removes_described_members() -> None:
    """The group is described before its members are removed."""
    with ScriptedBroker(scripted(describe=TWO, leave=leaves)) as broker:
        assert outcomes(broker, all_members=True) == [RemovalOutcome.REMOVED] * 2
        (request,) = broker.requests(LEAVE)
    assert [(one.member_id, one.group_instance_id) for one in request.entity.members] == [("d", None), ("", "i")]


def test_remove_members_everyone_of_empty_group_sends_no_removal() -> None:
    """An empty group is a success and needs no request."""
    with ScriptedBroker(scripted(describe=consumer_group())) as broker:
        assert outcomes(broker, all_members=True) == []
        assert broker.requests(LEAVE) == []


def test_remove_members_dry_run_sends_no_removal() -> None:
    """A dry run describes the group and reports what would be removed."""
    with ScriptedBroker(scripted(describe=TWO)) as broker:
        found = outcomes(broker, instance_ids=["i", "x"], dry_run=True)
        assert found == [RemovalOutcome.WOULD_BE_REMOVED, RemovalOutcome.UNKNOWN]
        assert outcomes(broker, all_members=True, dry_run=True) == [RemovalOutcome.WOULD_BE_REMOVED] * 2
        assert broker.requests(LEAVE) == []


def test_remove_members_succeeds_after_lost_response() -> None:
    """The first attempt removes the member and the retry does not find it, so it has left the group."""

    def leave(_: Received) -> Answer:
        return DISCONNECT if len(broker.requests(LEAVE)) == 1 else leave_answer(("d", None, 25))

    def describe(_: Received) -> Answer:
        return consumer_group() if broker.requests(LEAVE) else TWO

    with ScriptedBroker(scripted(describe=describe, leave=leave)) as broker:
        (gone,) = admin(broker).remove_members("g", member_ids=["d"])
        assert len(broker.requests(LEAVE)) == 2
    assert (gone.outcome, gone.succeeded) == (RemovalOutcome.ALREADY_GONE, True)
    assert gone.member is not None


def test_remove_members_reports_refused_if_member_stays() -> None:
    """Brokers before 4.0 do not remove members of the consumer protocol."""
    with ScriptedBroker(scripted(describe=TWO, leave=leave_answer(("d", None, 25)))) as broker:
        assert outcomes(broker, member_ids=["d"]) == [RemovalOutcome.REFUSED]


def test_remove_members_works_without_describe_on_topics() -> None:
    """Removal needs an ACL on the group only; a dry run and everyone need the description."""
    hidden = consumer_group(code=29)
    with ScriptedBroker(scripted(describe=hidden, leave=leaves)) as broker:
        (done,) = admin(broker).remove_members("g", member_ids=["d"])
        assert (done.outcome, done.member) == (RemovalOutcome.REMOVED, None)
        assert "describing the group is not allowed" in done.message
        for how in ({"all_members": True}, {"member_ids": ["d"], "dry_run": True}):
            with pytest.raises(GroupError, match="DESCRIBE on every topic"):
                outcomes(broker, **how)


def test_unauthorized_removal_names_required_acl() -> None:
    """The required ACL is READ on the group, and no member is removed."""
    with (
        ScriptedBroker(scripted(describe=TWO, leave=leave_answer(code=30))) as broker,
        pytest.raises(GroupError, match=r"removing members is not allowed .* the ACL operation READ on the group"),
    ):
        outcomes(broker, member_ids=["d"])


def test_remove_members_of_unknown_group_raises_before_removal() -> None:
    """An unknown group is an error before any removal, because its coordinator would report each member as unknown."""
    missing = {
        "describe": consumer_group(code=69, message="Group g not found."),
        "classic": classic_group(code=69, message="Group g not found."),
    }
    with ScriptedBroker(scripted(**missing)) as broker:
        with pytest.raises(GroupError, match="no group with this id"):
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
def test_group_admin_rejects_config_like_consumer(config: dict[str, object], key: str) -> None:
    """The consumer's configuration checks apply, and no connection is opened."""
    with pytest.raises(ConfigurationError) as refusal:
        GroupAdmin(config)
    assert refusal.value.key == key


def test_group_admin_ignores_group_id_of_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dict serves consumers and admins; environment variables apply, and no group id is required."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_CLIENT_ID", "from-the-environment")
    with ScriptedBroker(scripted(describe=TWO)) as broker:
        for config in ({}, {"group.id": "another"}, {"group.id": None}):
            admin(broker, **config).describe("g", with_offsets=False)
        assert {request.entity.group_ids for request in broker.requests(DESCRIBE)} == {("g",)}
        assert {request.client_id for request in broker.requests(FIND)} == {"from-the-environment"}


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_group_admin_with_invalid_timeout_raises(timeout_s: float) -> None:
    """The timeout must be positive."""
    with pytest.raises(ConfigurationError, match="timeout_s"):
        GroupAdmin({"bootstrap.servers": "h:1"}, timeout_s=timeout_s)


def test_describe_with_empty_group_id_raises() -> None:
    """An empty group id raises an error before a connection is opened."""
    with pytest.raises(ConfigurationError, match="group_id"):
        GroupAdmin({"bootstrap.servers": "127.0.0.1:1"}).describe("")


def test_describe_in_event_loop_raises_and_names_to_thread() -> None:
    """The call would block the event loop; in a thread it works."""
    with ScriptedBroker(scripted(describe=TWO)) as broker:

        async def directly() -> None:
            admin(broker).describe("g")

        async def in_a_thread() -> str:
            report = await asyncio.to_thread(admin(broker).describe, "g", with_offsets=False)
            return report.group.state

        with pytest.raises(UseError, match=r"asyncio\.to_thread"):
            asyncio.run(directly())
        assert asyncio.run(in_a_thread()) == "Stable"
