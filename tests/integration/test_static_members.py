"""Static members on real brokers: takeover, wait, fail, pools, and the place after a leave (KIP-345, KIP-1092)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)

from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.consumer import Membership
from consumer_membership.devbroker import SUPPORTED_VERSIONS, Broker
from consumer_membership.membership.states import MemberState
from consumer_membership.types import GroupProtocol
from tests.integration.environments import CONSUMER, COOPERATIVE, EAGER, Environment
from tests.support.acls import AUTHORIZER, allow, forbid
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import configure_group, create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS, TWO_MEMBERS
from tests.support.proxy import HEARTBEAT, Proxy
from tests.support.versions import NEWEST, OLDEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module", params=reversed(SUPPORTED_VERSIONS))
def any_broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """One broker of each supported version, with Kafka's own group settings: sessions of 45 s."""
    return broker_pool.shared(request.param)


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def quick_broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end after 6 s."""
    return broker_pool.shared(request.param, properties=SHORT_SESSIONS)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with 12 partitions for this test only."""
    return create_topic(broker.bootstrap_servers, unique("topic"), 12)


def static(broker: Broker, group: str, topic: str, instance_id: str = "a", **config: Any) -> Worker:
    """A static member in a thread."""
    return Worker(broker.bootstrap_servers, group, [topic], group_instance_id=instance_id, **config)


_CRASHES = """
import os, sys
from consumer_membership import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.instance.id": sys.argv[3],
    "auto.offset.reset": "earliest"})
consumer.subscribe([sys.argv[4]], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


def crashed(broker: Broker, group: str, topic: str, instance_id: str = "a") -> None:
    """Leave a stale static member that was killed while it held partitions."""
    words = [sys.executable, "-c", _CRASHES, broker.bootstrap_servers, group, instance_id, topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() in (b"", b"0"):
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)


# ---- takeover -------------------------------------------------------------------------------------------------------


def test_replacement_of_a_crashed_member_gets_its_partitions_at_once(any_broker: Broker) -> None:
    """Rules 3.3: The replacement gets the same partitions within the stale member's session of 45 s.

    No other member changes.
    """
    topic, group = create_topic(any_broker.bootstrap_servers, unique("topic"), 6), unique("group")
    with static(any_broker, group, topic, "b") as other:
        other.settled(6)
        crashed(any_broker, group, topic)
        other.settled(3)
        calls = list(other.notes.calls)
        with static(any_broker, group, topic) as again:
            again.settled(3)
            assert not again.owned & other.owned
            assert (other.notes.calls, again.notes.errors) == (calls, [])


def test_newest_holder_takes_over_and_the_former_holder_ends(any_broker: Broker) -> None:
    """KIP-345: The former holder calls on_lost, raises a fatal error that names the newcomer, and cannot commit.

    Its close sends no leave.
    """
    topic, group = create_topic(any_broker.bootstrap_servers, unique("topic"), 6), unique("group")
    produce(any_broker.bootstrap_servers, topic, 60)
    with static(any_broker, group, topic, enable_auto_commit=False) as former:
        former.wait(lambda w: len(w.notes.records) == 60, "60 records")
        with static(any_broker, group, topic) as newcomer:
            newcomer.settled(6)
            # The next poll after the one with the error.
            former.wait(lambda w: bool(w.notes.errors and w.notes.named("lost")), "the fatal error and on_lost")
            error = former.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.FENCED_INSTANCE_ID, True)
            assert str(newcomer.consumer.memberid()) in error.str()
            assert (former.state, former.owned) == (MemberState.FATAL, frozenset())
            with pytest.raises(KafkaException):
                former.consumer.commit(asynchronous=False)
            former.stop()
            assert len(former.notes.named("lost")) == 1
            assert newcomer.state is MemberState.STABLE
            newcomer.settled(6)
            assert (len(newcomer.notes.named("assign")), newcomer.notes.named("revoke")) == (1, [])


def test_concurrent_takeovers_leave_one_holder(any_broker: Broker) -> None:
    """Of a holder and two newcomers one gets the partitions; the others end with a fatal error and do not rejoin."""
    topic, group = create_topic(any_broker.bootstrap_servers, unique("topic"), 6), unique("group")
    with ExitStack() as stack:
        holder = stack.enter_context(static(any_broker, group, topic))
        holder.settled(6)
        everybody = [holder, *(static(any_broker, group, topic) for _ in range(2))]
        for newcomer in everybody[1:]:
            stack.enter_context(newcomer)
        holder.wait(lambda _: sum(bool(w.notes.errors) for w in everybody) == 2, "the errors of two that end")
        (winner,) = [w for w in everybody if w.state is not MemberState.FATAL]
        winner.settled(6)
        assert winner is not holder
        assert {error.code() for w in everybody for error in w.notes.errors} == {KafkaError.FENCED_INSTANCE_ID}


def test_takeover_works_without_a_description_of_the_group(broker_pool: RunBrokers) -> None:
    """A member's topic that the newcomer may not see makes the description fail.

    The coordinator's error text names the holder instead.
    """
    broker = broker_pool.shared(NEWEST, properties=AUTHORIZER)
    topic, secret = (create_topic(broker.bootstrap_servers, unique(name), 3) for name in ("topic", "secret"))
    group = unique("group")
    with Worker(broker.bootstrap_servers, group, [secret]) as other, static(broker, group, topic) as former:
        other.settled(3)
        former.settled(3)
        forbid(broker.bootstrap_servers, ResourceType.TOPIC, secret, AclOperation.DESCRIBE)
        with static(broker, group, topic) as newcomer:
            newcomer.settled(3)
            former.wait(lambda w: w.state is MemberState.FATAL, "its end")


def test_static_member_that_returns_with_another_assignor_is_admitted(broker: Broker, topic: str) -> None:
    """B12: It requests `range` instead of `uniform`; each partition still has one owner."""
    group = unique("group")
    with static(broker, group, topic, "b", group_remote_assignor="uniform") as other:
        with static(broker, group, topic, group_remote_assignor="uniform") as first:
            first.settled(6)
            other.settled(6)
        with static(broker, group, topic, group_remote_assignor="range") as again:
            again.settled(6)
            other.settled(6)
            assert not again.owned & other.owned
            assert (other.notes.errors, again.notes.errors) == ([], [])


# ---- fail and wait --------------------------------------------------------------------------------------------------


def test_policy_fail_ends_the_newcomer_and_keeps_the_holder(broker: Broker, topic: str) -> None:
    """S05: By KIP-848's rule the newcomer ends; its error names the holder and the remedy."""
    group = unique("group")
    with static(broker, group, topic) as holder:
        holder.settled(12)
        with static(broker, group, topic, group_instance_id_conflict_policy="fail") as newcomer:
            newcomer.wait(lambda w: bool(w.notes.errors), "the fatal error")
            error = newcomer.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.UNRELEASED_INSTANCE_ID, True)
            assert str(holder.consumer.memberid()) in error.str()
            assert "group.instance.id.conflict.policy" in error.str()
        assert (holder.state, holder.notes.errors) == (MemberState.STABLE, [])


def test_policy_decides_about_the_place_of_a_closed_classic_member(broker: Broker, topic: str) -> None:
    """4.10: The broker would replace it without a check, so `fail` ends; the default gets the place at once."""
    group = unique("group")
    with static(broker, group, topic, group_protocol="classic", session_timeout_ms=60_000) as former:
        former.settled(12)
    with static(broker, group, topic, group_protocol="consumer", group_instance_id_conflict_policy="fail") as refused:
        refused.wait(lambda w: bool(w.notes.errors), "the fatal error")
        assert refused.notes.errors[0].code() == KafkaError.UNRELEASED_INSTANCE_ID
    with static(broker, group, topic, group_protocol="consumer") as again:
        again.settled(12)
        assert again.notes.errors == []


def test_policy_wait_joins_when_the_session_of_a_crashed_holder_ends(quick_broker: Broker) -> None:
    """Meanwhile the view shows the holder that it waits for and the latest end of the wait."""
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 4), unique("group")
    crashed(quick_broker, group, topic)
    with static(quick_broker, group, topic, group_instance_id_conflict_policy="wait") as again:
        again.wait(lambda w: w.consumer.membership().waits_until is not None, "a bound")
        assert "held by member" in again.consumer.membership().waits_for_detail
        again.settled(4)
        assert (again.notes.errors, again.consumer.membership().waits_until) == ([], None)


def test_policy_wait_ends_after_a_session_if_the_holder_is_alive(quick_broker: Broker) -> None:
    """The wait is bounded by a session."""
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 4), unique("group")
    with static(quick_broker, group, topic) as holder:
        holder.settled(4)
        with static(quick_broker, group, topic, group_instance_id_conflict_policy="wait") as newcomer:
            newcomer.wait(lambda w: bool(w.notes.errors), "the fatal error")
            assert "so the holder is alive" in newcomer.notes.errors[0].str()
        holder.settled(4)


# ---- takeover-when-dead ---------------------------------------------------------------------------------------------


@contextmanager
def careful(broker: Broker, group: str, topic: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the id `a` and its partitions, with the policy takeover-when-dead."""
    words = [sys.executable, "-c", _CRASHES, broker.bootstrap_servers, group, "a", topic]
    prefix = "CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID_"
    own = {f"{prefix}CONFLICT_POLICY": "takeover-when-dead", f"{prefix}LOCK_DIRECTORY": str(directory)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ | own) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() in (b"", b"0"):
            assert process.poll() is None
        try:
            yield process
        finally:
            process.kill()


def careful_here(broker: Broker, group: str, topic: str, directory: Path) -> Worker:
    """A member of this process with the same policy."""
    locks: dict[str, Any] = {"group_instance_id_lock_directory": str(directory)}
    return static(broker, group, topic, group_instance_id_conflict_policy="takeover-when-dead", **locks)


def test_replacement_of_a_killed_process_joins_at_once_with_proof(any_broker: Broker, tmp_path: Path) -> None:
    """The killed process left its lock file: the replacement has its partitions within its session of 45 s."""
    topic, group = create_topic(any_broker.bootstrap_servers, unique("topic"), 6), unique("group")
    with static(any_broker, group, topic, "b") as other:
        other.settled(6)
        with careful(any_broker, group, topic, tmp_path) as process:
            other.settled(3)
            calls = list(other.notes.calls)
            process.kill()
            process.wait()
            with careful_here(any_broker, group, topic, tmp_path) as again:
                again.settled(3)
                assert not again.owned & other.owned
                assert (other.notes.calls, again.notes.errors) == (calls, [])


def test_process_that_is_alive_is_waited_for_and_named(
    quick_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped process keeps its id; a live one is named after a session; at its death the new one joins."""
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 4), unique("group")
    with careful(quick_broker, group, topic, tmp_path) as first:
        first.send_signal(signal.SIGSTOP)
        with careful_here(quick_broker, group, topic, tmp_path) as second:
            second.wait(lambda w: "held by member" in w.consumer.membership().waits_for_detail, "that it waits")
            assert second.consumer.membership().waits_until is None
            first.send_signal(signal.SIGCONT)
            second.wait(lambda _: "so that process is alive" in caplog.text, "the warning after a session")
            assert (second.state, second.notes.errors) == (MemberState.JOINING, [])
            assert f"'a' is still held by member {_holder_of(quick_broker, group)} (client " in caplog.text
            first.kill()
            second.settled(4)


def _holder_of(broker: Broker, group: str) -> str:
    """The member id of the group's only member."""
    described = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers}).describe(group, with_offsets=False)
    (member,) = described.group.members
    return member.member_id


# ---- pools ----------------------------------------------------------------------------------------------------------


def test_pool_ids_survive_a_rolling_restart(broker: Broker, topic: str) -> None:
    """Pods of a Deployment with a pool get other names and the same ids, and no other member's partitions move."""
    group = unique("group")
    config: dict[str, Any] = {"group_instance_id_pool": "orders-{0..2}"}
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(broker.bootstrap_servers, group, [topic], **config)) for _ in range(3)]
        for worker in workers:
            worker.settled(4)
        for old in workers:
            owned, instance = old.owned, old.consumer.membership().instance_id
            others = [worker for worker in workers if worker is not old]
            calls = [list(worker.notes.calls) for worker in others]
            old.stop()
            new = stack.enter_context(Worker(broker.bootstrap_servers, group, [topic], **config))
            new.settled(4)
            assert (new.owned, new.consumer.membership().instance_id) == (owned, instance)
            assert [worker.notes.calls for worker in others] == calls
            workers = [*others, new]


def test_exhausted_pool_fails_or_waits_by_its_policy(broker: Broker, topic: str) -> None:
    """`wait` takes the id that is released first; `fail` raises an error about the exhausted pool."""
    group, pool = unique("group"), ["x", "y"]
    with ExitStack() as stack:

        def member(**config: Any) -> Worker:
            config |= {"group_instance_id_pool": pool}
            return stack.enter_context(Worker(broker.bootstrap_servers, group, [topic], **config))

        one, two = member(), member()
        one.settled(6)
        two.settled(6)
        refused = member(group_instance_id_conflict_policy="fail")
        refused.wait(lambda w: bool(w.notes.errors), "the fatal error")
        assert "all 2 ids of group.instance.id.pool are held" in refused.notes.errors[0].str()
        waits = member()
        waits.wait(lambda w: w.consumer.membership().waits_for is not None, "that it waits")
        instance, owned = one.consumer.membership().instance_id, one.owned
        one.stop()
        waits.settled(6)
        assert (waits.consumer.membership().instance_id, waits.owned) == (instance, owned)


# ---- what becomes of the place --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "membership", "is_kept"),
    [
        ("a", "default", True),
        ("a", "remain", True),
        ("a", "leave", False),
        (None, "default", False),
        (None, "leave", False),
        (None, "remain", True),
    ],
)
def test_close_options_keep_or_release_the_place(
    environment: Environment, instance_id: str | None, membership: Membership, *, is_kept: bool
) -> None:
    """C14: A member that keeps its place is still in the group.

    One that leaves is not, and other members get its partitions.
    """
    topic, group = environment.topic(12), unique("group")
    with environment.member(group, [topic], group_instance_id="stays") as other:
        with environment.member(group, [topic], group_instance_id=instance_id) as goes:
            goes.settled(6)
            other.settled(6)
            member_id = goes.consumer.memberid()
            goes.stop(membership)
        if not is_kept:
            other.settled(12)
        described = GroupAdmin({"bootstrap.servers": environment.bootstrap_servers}).describe(group, with_offsets=False)
        members = {member.member_id for member in described.group.members}
        assert (member_id in members) is is_kept
        assert len(other.owned) == (6 if is_kept else 12)


def test_unsubscribe_with_leave_removes_a_static_member(environment: Environment) -> None:
    """`unsubscribe` has the same options as `close`; the consumer may subscribe again."""
    topic, group = environment.topic(12), unique("group")
    with (
        environment.member(group, [topic], group_instance_id="stays") as other,
        environment.member(group, [topic], group_instance_id="a") as goes,
    ):
        goes.settled(6)
        other.settled(6)
        goes.order(lambda consumer: consumer.unsubscribe(membership="leave"))
        other.settled(12)
        goes.order(lambda consumer: consumer.subscribe([topic]))
        goes.settled(6)


# ---- removed, and gone ----------------------------------------------------------------------------------------------


def _was_heard_since_it_settled(worker: Worker) -> bool:
    """Whether the member has received a heartbeat response since its last transition.

    A classic member cannot distinguish an earlier removal from a coordinator that moved and lost the member.
    """
    view = worker.consumer.membership()
    return (view.last_heartbeat_at or 0.0) > view.transitions[-1].at


@pytest.mark.parametrize("mode", [CONSUMER, EAGER, COOPERATIVE], ids=["consumer", "eager", "cooperative"])
def test_removed_static_member_ends_and_dynamic_member_rejoins(
    broker: Broker, topic: str, mode: Mapping[str, Any]
) -> None:
    """If an administrator removes both members, the static one ends, and the dynamic one rejoins automatically.

    The removal's result announces this.
    """
    group = unique("group")
    with (
        static(broker, group, topic, **mode) as fixed,
        Worker(broker.bootstrap_servers, group, [topic], **mode) as moving,
    ):
        fixed.settled(6)
        moving.settled(6)
        fixed.wait(_was_heard_since_it_settled, "a heartbeat that the coordinator took")
        admin = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers})
        removed = admin.remove_members(group, instance_ids=["a"], member_ids=[str(moving.consumer.memberid())])
        assert [
            "stops with a fatal error" in removed[0].message,
            "joins again automatically" in removed[1].message,
        ] == [
            True,
            True,
        ]
        fixed.wait(lambda w: bool(w.notes.errors), "the fatal error")
        error = fixed.notes.errors[0]
        assert (error.code(), error.fatal()) == (KafkaError.UNKNOWN_MEMBER_ID, True)
        assert "removed from the group during its session" in error.str()
        moving.settled(12)
        assert (len(moving.notes.named("lost")), moving.notes.errors) == (1, [])


@pytest.mark.parametrize(
    "mode", [{"heartbeat_interval_ms": 5000}, {**EAGER, "heartbeat_interval_ms": 2000}], ids=["consumer", "classic"]
)
def test_removed_idle_static_member_ends_while_librdkafka_s_rejoins(
    quick_broker: Broker, mode: Mapping[str, Any]
) -> None:
    """This package's member ends at a heartbeat, by the broker's interval of 0.5 s or its own; librdkafka's rejoins.

    Both members are idle when they are removed.
    """
    servers = quick_broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    protocol = mode.get("group_protocol", "consumer")
    raw = RawConsumer(
        {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "group.instance.id": "raw"}
    )
    admin = GroupAdmin({"bootstrap.servers": servers})
    try:
        raw.subscribe([topic])
        with static(quick_broker, group, topic, **mode) as ours:
            ours.wait(lambda w: raw.poll(0) is None and w.state is MemberState.STABLE and len(w.owned) == 1, "a half")
            since = monotonic()
            ours.wait(lambda _: raw.poll(0) is None and monotonic() - since > 4, "a calm member")
            admin.remove_members(group, instance_ids=["a", "raw"])
            ours.wait(lambda w: raw.poll(0) is None and bool(w.notes.errors), "the fatal error")
            assert "removed from the group during its session" in ours.notes.errors[0].str()
            ours.wait(lambda _: raw.poll(0) is None and len(raw.assignment()) == 2, "librdkafka's return")
            assert [one.instance_id for one in admin.describe(group).group.members] == ["raw"]
    finally:
        raw.close()


@contextmanager
def turned_classic(broker: Broker, group: str, topic: str, **config: Any) -> Iterator[tuple[Worker, RawConsumer]]:
    """A member whose group became a classic group with another member between two of its heartbeats."""
    servers = broker.bootstrap_servers
    raw = RawConsumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "classic"})
    try:
        with Proxy(servers) as proxy, Worker(proxy.address, group, [topic], **config) as member:
            member.settled(12)
            proxy.hold_from(HEARTBEAT)
            proxy.wait(lambda: proxy.held[HEARTBEAT] > 0, "a heartbeat under way")
            GroupAdmin({"bootstrap.servers": servers}).remove_members(group, all_members=True)
            raw.subscribe([topic])
            member.wait(lambda _: raw.poll(0.05) is None and len(raw.assignment()) == 12, "the classic group")
            proxy.heal()
            member.wait(lambda w: raw.poll(0) is None and bool(w.notes.named("lost")), "on_lost")
            yield member, raw
            assert member.notes.raised == []
    finally:
        raw.close()


def test_auto_member_of_a_group_that_became_classic_rejoins_as_classic(broker: Broker, topic: str) -> None:
    """H35: With `auto`, a member whose group became classic loses its partitions and rejoins as a classic member."""
    with turned_classic(broker, unique("group"), topic) as (member, raw):
        member.wait(lambda w: raw.poll(0) is None and (w.state, len(w.owned)) == (MemberState.STABLE, 6), "a half")
        assert member.consumer.membership().protocol is GroupProtocol.CLASSIC


def test_consumer_only_member_of_a_group_that_became_classic_ends(quick_broker: Broker) -> None:
    """H35: With `consumer`, the member is refused if the brokers do not convert the group.

    The error has their text and a remedy.
    """
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 12), unique("group")
    with turned_classic(quick_broker, group, topic, group_protocol="consumer") as (member, raw):
        member.wait(lambda w: raw.poll(0) is None and any(one.fatal() for one in w.notes.errors), "the fatal error")
        error = next(one for one in member.notes.errors if one.fatal())
        assert error.code() == KafkaError.GROUP_ID_NOT_FOUND
        assert group in error.str()
        assert "close its classic members" in error.str()
        assert (member.state, member.owned) == (MemberState.FATAL, frozenset())


# ---- what a static member knows, and limits -------------------------------------------------------------------------


def test_view_shows_the_session_timeout_of_a_static_member(any_broker: Broker) -> None:
    """The view reads the session timeout from the broker's configuration of the group."""
    topic, group = create_topic(any_broker.bootstrap_servers, unique("topic"), 2), unique("group")
    with static(any_broker, group, topic) as member:
        member.wait(lambda w: w.consumer.membership().session_timeout_s == 45.0, "45 s")


def test_session_timeout_without_describe_configs_is_none(broker_pool: RunBrokers) -> None:
    """Without DESCRIBE_CONFIGS on the group the view has no session timeout, and the member works normally."""
    broker = broker_pool.shared(NEWEST, properties=AUTHORIZER)
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    allow(broker.bootstrap_servers, ResourceType.GROUP, group, AclOperation.READ)
    with static(broker, group, topic) as member:
        member.settled(2)
        # The member requests the session timeout when it has joined.
        answered_by = monotonic() + 1.0
        member.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0) > answered_by, "later heartbeats")
        assert member.consumer.membership().session_timeout_s is None


def test_session_timeout_follows_the_group_s_configuration(quick_broker: Broker) -> None:
    """The member reads the session timeout again when the broker's heartbeat interval has changed."""
    servers = quick_broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    with static(quick_broker, group, topic, heartbeat_interval_ms=5000) as member:
        member.wait(lambda w: w.consumer.membership().session_timeout_s == 6.0, "the broker's default")
        configure_group(
            servers, group, {"consumer.heartbeat.interval.ms": "400", "consumer.session.timeout.ms": "9000"}
        )
        member.wait(lambda w: w.consumer.membership().session_timeout_s == 9.0, "the group's own")
        assert member.consumer.membership().heartbeat_interval_s == 0.4


def test_lowered_session_timeout_is_in_the_view_after_one_former_session(quick_broker: Broker) -> None:
    """A static member reads the session timeout again after each session, although its heartbeat interval stays."""
    servers = quick_broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    with static(quick_broker, group, topic) as member:
        member.wait(lambda w: w.consumer.membership().session_timeout_s == 6.0, "the broker's default")
        interval_s = member.consumer.membership().heartbeat_interval_s
        configure_group(servers, group, {"consumer.session.timeout.ms": "2000"})
        member.wait(lambda w: w.consumer.membership().session_timeout_s == 2.0, "the lower session timeout")
        view = member.consumer.membership()
        assert view.heartbeat_interval_s == interval_s
        assert view.lease_until is not None
        assert view.last_heartbeat_at is not None
        assert view.lease_until <= view.last_heartbeat_at + 2.0
        assert (member.notes.named("lost"), member.notes.errors) == ([], [])


def test_group_is_rolled_from_dynamic_to_static_members_and_back(environment: Environment) -> None:
    """KIP-345: Each step replaces one member; static and dynamic members share the group meanwhile.

    Every record is handled once. On the way back, a static member closes with "leave", so that its place is free.
    """
    topic, group, steps = environment.topic(4), unique("group"), ((None, "a"), (None, "b"), ("a", None), ("b", None))
    admin = GroupAdmin({"bootstrap.servers": environment.bootstrap_servers})
    with ExitStack() as stack:
        members = [stack.enter_context(environment.member(group, [topic])) for _ in range(2)]
        everybody = list(members)
        for number, (former, instance) in enumerate(steps, start=1):
            for one in members:
                one.settled(2)
            produce(environment.bootstrap_servers, topic, 100)
            members[0].wait(lambda _: sum(len(w.notes.records) for w in everybody) == 100 * number, "its records")  # noqa: B023
            goes = next(one for one in members if one.consumer.membership().instance_id == former)
            goes.stop("default" if former is None else "leave")
            comes = stack.enter_context(environment.member(group, [topic], group_instance_id=instance))
            everybody.append(comes)
            members = [*(one for one in members if one is not goes), comes]
            for one in members:
                one.settled(2)
            described = admin.describe(group, with_offsets=False).group.members
            expected = sorted(one.consumer.membership().instance_id or "" for one in members)
            assert sorted(one.instance_id or "" for one in described) == expected
    records = [(partition, offset) for one in everybody for _, partition, offset, _ in one.notes.records]
    assert (len(records), len(set(records))) == (400, 400)
    assert [one.notes.errors for one in everybody] == [[]] * len(everybody)


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_full_group_admits_returning_static_members_only(broker_pool: RunBrokers, version: str) -> None:
    """KIP-389: A static member that left temporarily or crashed gets its place back.

    A new member is refused, and the other member is not affected.
    """
    broker = broker_pool.shared(version, properties=TWO_MEMBERS)
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 4), unique("group")
    with static(broker, group, topic, "stays") as stays:
        with static(broker, group, topic) as first:
            first.settled(2)
            stays.settled(2)
        with static(broker, group, topic, "stranger") as stranger:
            stranger.wait(lambda w: bool(w.notes.errors), "the fatal error")
            assert stranger.notes.errors[0].code() == KafkaError.GROUP_MAX_SIZE_REACHED
        with static(broker, group, topic) as again:
            again.settled(2)
            stays.settled(2)
        crashed(broker, group, topic)
        with static(broker, group, topic) as replacement:
            replacement.settled(2)
            stays.settled(2)
        assert (stays.notes.errors, stays.notes.named("lost")) == ([], [])
