"""`GroupMember` with a scripted member: callbacks, commits, leases, errors and the close, without librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import GroupMember
from consumer_membership.errors import CommitError, ConfigurationError, FatalGroupError, LeaseOverError
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.membership.effects import Problem, RaiseToApplication, WarmPartitions
from consumer_membership.membership.events import LeaveRequested, Polled, Subscribed, Warmed
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.metrics.application_ledger import CallbackKind
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES
from consumer_membership.runtime import cluster_access
from consumer_membership.runtime.probes import thread
from consumer_membership.types import BrokerAddress, BrokerError, LeaveOption, TopicPartition
from tests.clients.scripted import SHARDS_CONFIG, ScriptedGroupMember
from tests.runtime.probes.watched import ask
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S, wait_until

ADDRESS = "127.0.0.1:0"
NODE = BrokerAddress(node_id=1, host="b", port=9092)
S0, S1 = TopicPartition("shards", 0), TopicPartition("shards", 1)


@pytest.fixture
def member() -> Iterator[ScriptedGroupMember]:
    """A member that has subscribed and polled."""
    with ScriptedGroupMember() as made:
        made.joins()
        yield made


def test_first_poll_joins_and_later_polls_call_the_callbacks(member: ScriptedGroupMember) -> None:
    """The callbacks receive the partitions that move; `poll` returns True after a callback."""
    assert len(member.member.of(Subscribed)) == len(member.member.of(Polled)) == 1
    member.member.assign({S0: -1001, S1: -1001})
    assert member.poll(PATIENCE_S) is True
    member.member.pause([S1])
    member.member.revoke([S1])
    assert member.poll(PATIENCE_S) is True
    member.member.lose()
    assert member.poll(PATIENCE_S) is True
    assert member.calls == [("assign", [0, 1]), ("revoke", [1]), ("lost", [0])]
    assert [step.failed for step in member.member.steps] == [False] * 4


def test_group_member_has_no_handle_of_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing creates a confluent-kafka consumer, from the constructor to the close."""

    def refuse(*_: object) -> None:
        raise AssertionError("a handle was created")

    monkeypatch.setattr(cluster_access, "LibrdkafkaConsumer", refuse)
    with ScriptedGroupMember() as made:
        made.joins()
        made.member.assign({S0: -1001})
        assert made.poll(PATIENCE_S) is True


def test_waiting_polls_count_as_polls(member: ScriptedGroupMember) -> None:
    """Each `poll` increases the count by which the member checks max.poll.interval.ms."""
    before = member.member.progress()
    member.poll(0)
    polls, records = member.member.progress()
    assert (polls > before[0], records) == (True, 0)


def test_exception_of_a_callback_propagates_and_the_step_failed(member: ScriptedGroupMember) -> None:
    """As in a consumer, the partitions of a failed on_assign are not owned."""

    def fail(_: GroupMember, __: list[Partition]) -> None:
        raise ValueError("no space")

    member.subscribe(["shards"], on_assign=fail)
    member.member.assign({S0: -1001})
    with pytest.raises(ValueError, match="no space"):
        member.poll(PATIENCE_S)
    assert member.member.steps[-1].failed


def test_fatal_error_is_raised_by_polls_and_commits(member: ScriptedGroupMember) -> None:
    """The exception is also a KafkaException with a fatal error of the broker's code."""
    error = BrokerError(code=82, name="FENCED_INSTANCE_ID", message="another process has the id")
    member.member.in_state(MemberState.FATAL)
    member.member.order(RaiseToApplication(problem=Problem.FATAL, error=error))
    with pytest.raises(FatalGroupError) as refused:
        member.poll(PATIENCE_S)
    assert isinstance(refused.value, KafkaException)
    assert (refused.value.args[0].code(), refused.value.args[0].fatal()) == (82, True)
    with pytest.raises(FatalGroupError):
        member.commit([Partition("shards", 0, 7)])


def test_commit_stores_the_progress_of_shards(member: ScriptedGroupMember) -> None:
    """`committed` returns the offset that the application committed; a refused commit raises."""
    done = member.commit([Partition("shards", 0, 7, metadata="page 7")])
    assert [(one.offset, one.error) for one in done] == [(7, None)]
    (found,) = member.committed([Partition("shards", 0)], PATIENCE_S)
    assert found.offset == 7
    member.member.commit_error = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
    with pytest.raises(CommitError):
        member.commit([Partition("shards", 0, 8)])


def test_lease_belongs_to_the_assignment() -> None:
    """A lease has the epoch of the assignment as its token, and ends when the partition is lost."""
    with ScriptedGroupMember(ownership_lease_enable=True) as member:
        member.joins()
        member.member.assign({S0: -1001}, epoch=5)
        member.poll(PATIENCE_S)
        lease = member.lease(Partition("shards", 0))
        assert lease.token == 5
        member.member.lose()
        member.poll(PATIENCE_S)
        assert not lease.holds
        with pytest.raises(LeaseOverError):
            member.lease(Partition("shards", 0))


def test_close_revokes_and_leaves_once() -> None:
    """A second close does nothing, and later calls raise."""
    with ScriptedGroupMember() as member:
        member.joins()
        member.member.assign({S0: -1001})
        member.poll(PATIENCE_S)
        member.member.attempt += 1
        member.member.farewell = []
        member.close(membership="remain")
        member.close()
    (leave,) = member.member.of(LeaveRequested)
    assert leave.option is LeaveOption.REMAIN
    assert member.member.is_stopped
    with pytest.raises(RuntimeError):
        member.poll(0)


def test_close_inside_a_callback_takes_place_at_the_end_of_the_poll(member: ScriptedGroupMember) -> None:
    """The poll returns, and the member is closed."""
    member.subscribe(["shards"], on_assign=lambda closing, _: closing.close())
    member.member.assign({S0: -1001})
    member.poll(PATIENCE_S)
    assert member.member.is_stopped


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        ({"error_cb": print}, "a GroupMember has no such callback"),
        ({"group.instance.ids": "a"}, "No such configuration property; "),
        ({"group.id": ""}, "group.id"),
    ],
)
def test_wrong_configuration_is_refused(config: dict[str, object], remedy: str) -> None:
    """The constructor refuses unknown keys by name, because librdkafka does not check a group member's keys."""
    with pytest.raises(ConfigurationError, match=remedy):
        GroupMember(SHARDS_CONFIG | config)


def test_membership_is_the_latest_view(member: ScriptedGroupMember) -> None:
    """`membership` never blocks, and also works after the close."""
    member.member.view = replace(member.member.view, member_epoch=4)
    assert (member.membership().member_epoch, member.generation()) == (4, 4)
    member.close()
    assert member.membership().group_id == "shards"


# ---- observability --------------------------------------------------------------------------------------------------


def test_health_is_starting_then_idle_then_consuming_then_closed(member: ScriptedGroupMember) -> None:
    """A member that owns partitions is CONSUMING; nothing is sampled, so it has no partitions' progress."""
    with ScriptedGroupMember() as fresh:
        assert fresh.health().verdict is HealthVerdict.STARTING
    stable = replace(view_of(MemberState.STABLE), group_id="shards", coordinator=NODE)
    member.member.view = stable
    assert (member.health().verdict, member.health().is_ready) == (HealthVerdict.IDLE, True)
    member.member.view = replace(stable, owned={S0: 5, S1: 5})
    health = member.health()
    assert (health.verdict, health.why, health.is_ready) == (HealthVerdict.CONSUMING, "owns 2 partitions", True)
    assert (dict(health.partitions), health.would_restart_help) == ({}, False)
    member.close()
    assert member.health().verdict is HealthVerdict.CLOSED


def test_health_notices_a_missing_poll(member: ScriptedGroupMember) -> None:
    """The last poll is known exactly, without a sampling thread."""
    line, ahead_s = member.session.line, 0.0
    now = line.now
    line.now = lambda: now() + ahead_s
    member.member.view = replace(view_of(MemberState.STABLE), owned={S0: 5}, coordinator=NODE)
    assert member.health().verdict is HealthVerdict.CONSUMING
    ahead_s = 200.0
    assert (member.health().verdict, member.health().would_restart_help) == (HealthVerdict.NOT_POLLED, False)
    ahead_s = 400.0
    assert (member.health().verdict, member.health().would_restart_help) == (HealthVerdict.NOT_POLLED, True)
    member.poll(0)
    assert member.health().verdict is HealthVerdict.CONSUMING


def test_view_has_the_wait_of_the_application() -> None:
    """The view of a member that subscribed and was not polled shows that it waits for the poll, as in a consumer."""
    with ScriptedGroupMember() as member:
        member.subscribe(["shards"])
        assert member.membership().waits_for is WaitsFor.POLL_TO_JOIN
        member.poll(0)
        assert member.membership().waits_for is None


def test_metrics_count_polls_and_callbacks_and_are_on_the_page_until_the_close(member: ScriptedGroupMember) -> None:
    """`/metrics` lists the member with the consumers of the process, until its close."""
    member.member.assign({S0: -1001})
    member.poll(PATIENCE_S)
    member.poll(0)
    metrics = member.metrics()
    assert metrics.application.poll.count == 3
    assert metrics.application.callbacks[CallbackKind.ASSIGNED].count == 1
    assert (metrics.application.records, metrics.view.group_id) == (0, "shards")
    assert THIS_PROCESS_SOURCES.at(metrics.number) is not None
    member.close()
    assert THIS_PROCESS_SOURCES.at(metrics.number) is None
    assert member.metrics().is_closed


def test_probes_report_the_member_until_its_close() -> None:
    """The process is live, and is ready as soon as the member is in its group."""
    with ScriptedGroupMember(health_http_address=ADDRESS) as member:
        at = thread.THIS_PROCESS.probes.served()[ADDRESS]
        assert ask(at, "/readyz")[0] == 503
        member.poll(0)
        member.member.view = replace(view_of(MemberState.STABLE), owned={S0: 5}, coordinator=NODE)
        status, body, _ = ask(at, "/readyz")
        assert (status, "owns 1 partition" in body) == (200, True)
        assert ask(at, "/livez")[0] == 200
    wait_until(lambda: ADDRESS not in thread.THIS_PROCESS.probes.served(), "the end of the address")


def test_dump_writes_the_recording_of_the_membership(member: ScriptedGroupMember) -> None:
    """`dump` returns the path of the recording that the membership thread writes."""
    assert member.dump("somewhere") == Path("somewhere")
    assert member.member.dumps == ["requested by the program"]


def test_on_warm_is_called_before_the_partitions_are_owned(member: ScriptedGroupMember) -> None:
    """on_warm receives the partitions that will be handed over; no partition moves yet, so `poll` continues to wait."""
    warmed: list[int] = []
    member.subscribe(["shards"], on_warm=lambda _, partitions: warmed.extend(one.partition for one in partitions))
    member.member.order(WarmPartitions(attempt=1, partitions=frozenset({S0, S1})))
    assert member.poll(0) is False
    assert (warmed, member.member.of(Warmed)) == ([0, 1], [Warmed(attempt=1, failed=False)])


def test_member_may_share_the_membership_thread() -> None:
    """`membership.threads=shared` also applies to members that fetch nothing."""
    with ScriptedGroupMember(membership_threads="shared") as shared, ScriptedGroupMember() as alone:
        assert (shared.thread_settings.shares_thread, alone.thread_settings.shares_thread) == (True, False)
