"""The log lines for operators: each event is logged once, with Java's wording if Java has a line for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.exchanges import AssignmentComputed
from consumer_membership.membership.effects import LosePartitions, ProtocolChosen, RevokePartitions
from consumer_membership.membership.events import HeartbeatRejected, TimePassed, Verdict
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.network.log_observer import LogObserver
from consumer_membership.types import BrokerError, GroupProtocol, TopicPartition
from tests.support.protocols import CLASSIC_ONLY

REBALANCING = BrokerError(code=27, name="REBALANCE_IN_PROGRESS")
OLD_GENERATION = BrokerError(code=22, name="ILLEGAL_GENERATION")
JOINED = ex.JoinAnswered(request_id=1, generation=3, member_id="m", leader_id="m", protocol_name="range")
V = ex.ClassicVerdict


def classic_view(**changes: object) -> MembershipView:
    """Return a classic member's view."""
    member = MemberCore(MemberSettings(group_id="g"), CLASSIC_ONLY, new_member_id=str, jitter=lambda: 0.5)
    return replace(member.view(), **changes)  # type: ignore[arg-type]  # the test chooses the changes


def logged(
    caplog: pytest.LogCaptureFixture, event: GroupEvent, *effects: GroupEffect, view: MembershipView | None = None
) -> list[tuple[str, str]]:
    """Return the level and the text of each line that this event logs, without the group's name."""
    caplog.clear()
    with caplog.at_level("INFO", "consumer_membership.membership"):
        LogObserver("client").observed(event, effects, view or classic_view())
    return [
        (line.levelname, line.getMessage().removeprefix("[Consumer clientId=client, groupId=g] "))
        for line in caplog.records
    ]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (JOINED, "Successfully joined group with generation 3 as the leader, with protocol range"),
        (
            AssignmentComputed(generation=3, assignments={"m": frozenset({TopicPartition("a", 0)})}),
            "Finished assignment for group at generation 3: {'m': 'a-0'}",
        ),
        (ex.SyncAnswered(request_id=1, assignment=frozenset()), "Successfully synced group in generation 3"),
        (
            ex.ClassicHeartbeatRejected(request_id=1, verdict=V.REJOIN_NOW, error=REBALANCING),
            "Attempt to heartbeat failed since group is rebalancing",
        ),
        (
            ex.SyncRejected(request_id=1, verdict=V.REJOIN_NOW, error=REBALANCING),
            "SyncGroup failed: The group began another rebalance. Need to re-join the group.",
        ),
    ],
)
def test_log_observer_logs_a_classic_rebalance_at_info(
    caplog: pytest.LogCaptureFixture, event: GroupEvent, text: str
) -> None:
    """Operators search for Java's wording, and a rebalance is not a warning."""
    assert logged(caplog, event, view=classic_view(member_epoch=3)) == [("INFO", text)]


def test_log_observer_warns_of_a_subscription_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """The line names the member, the error and the consequence."""
    _, (level, text) = logged(caplog, replace(JOINED, unreadable={"m-7": "ends too early"}))
    assert (level, text) == (
        "WARNING",
        "The subscription of member m-7 cannot be parsed, so it is assigned no partitions: ends too early",
    )


def test_log_observer_warns_of_a_refusal_unless_it_is_outdated(caplog: pytest.LogCaptureFixture) -> None:
    """The response to a heartbeat of an older generation does not describe the present member."""
    refusal = ex.ClassicHeartbeatRejected(request_id=1, verdict=V.REJOIN_KEEP_ID, error=OLD_GENERATION)
    lines = logged(caplog, refusal, view=classic_view(last_error=OLD_GENERATION))
    assert lines == [("WARNING", "Heartbeat failed: ILLEGAL_GENERATION")]
    assert logged(caplog, refusal) == []


def test_log_observer_ignores_a_refused_leave_of_a_member_that_never_joined(caplog: pytest.LogCaptureFixture) -> None:
    """A refused leave is logged only for a member that has joined its group."""
    gone = BrokerError(code=69, name="GROUP_ID_NOT_FOUND", message="Group g not found.")
    refusal = HeartbeatRejected(request_id=1, verdict=Verdict.GROUP_GONE, error=gone)
    assert logged(caplog, refusal, view=classic_view(state=MemberState.UNSUBSCRIBED)) == []
    assert logged(caplog, refusal, view=classic_view(state=MemberState.JOINING)) == [
        ("WARNING", "ConsumerGroupHeartbeatRequest failed due to GROUP_ID_NOT_FOUND: Group g not found.")
    ]


def test_log_observer_logs_the_chosen_protocol_and_unused_keys(caplog: pytest.LogCaptureFixture) -> None:
    """The chosen protocol is logged in one line with its reason, and each unused key is a warning."""
    chosen = ProtocolChosen(protocol=GroupProtocol.CONSUMER, reason="group.protocol=auto", notes=("a is not used",))
    assert logged(caplog, TimePassed(), chosen) == [
        ("INFO", "Group protocol: consumer (group.protocol=auto)"),
        ("WARNING", "a is not used"),
    ]


def test_log_observer_begins_each_line_as_the_java_client_does(caplog: pytest.LogCaptureFixture) -> None:
    """The prefix names the instance id if there is one, the client id and the group."""
    with caplog.at_level("INFO", "consumer_membership.membership"):
        LogObserver("client").observed(JOINED, (), classic_view(instance_id="i"))
    assert caplog.records[0].getMessage().startswith("[Consumer instanceId=i, clientId=client, groupId=g] Success")


def test_log_observer_names_revoked_and_lost_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """If an order applies to all partitions, the log lists the partitions that the member held before it."""
    observer = LogObserver("client")
    owning = classic_view(owned={TopicPartition("a", 1): 3, TopicPartition("a", 0): 3})
    with caplog.at_level("INFO", "consumer_membership.membership"):
        observer.observed(TimePassed(), (), owning)
        observer.observed(TimePassed(), (RevokePartitions(attempt=1, partitions=None),), owning)
        observer.observed(TimePassed(), (LosePartitions(attempt=2),), classic_view())
    assert [line.getMessage().partition("] ")[2] for line in caplog.records] == [
        "Revoking previously assigned partitions a-0, a-1",
        "Lost previously assigned partitions a-0, a-1",
    ]
