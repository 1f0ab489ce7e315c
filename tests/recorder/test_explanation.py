"""The paragraph of `--explain` names the cause of each kind of stall."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
from consumer_membership.membership.events import (
    CoordinatorLookupFailed,
    CoordinatorLost,
    HeartbeatRejected,
    Polled,
    StartOffsetsFetched,
    TimePassed,
    TopicIdsResolved,
    Verdict,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.recorder.explanation import explained
from consumer_membership.recorder.replay import Replay
from consumer_membership.types import BrokerError, TopicIdPartition, TopicPartition
from tests.recorder.members import ID, Recorded


@pytest.fixture
def member() -> Recorded:
    """Return a member that has joined."""
    recorded = Recorded()
    recorded.join()
    return recorded


def explanation_of(member: Recorded, path: Path, *, later_s: float = 0.0) -> str:
    """Return the explanation this many seconds after the last event."""
    member.now += later_s
    recording = member.written(path / "a")
    replayed = tuple(Replay(recording).steps())
    return explained(recording, recording.entries, replayed[-1].view)


def is_assigned(member: Recorded) -> None:
    """Let the coordinator assign a partition with a known start offset."""
    member.tell(TimePassed())
    member.answer(frozenset({TopicIdPartition(ID, 0)}))
    member.tell(TopicIdsResolved(names={ID: "orders"}))
    member.tell(StartOffsetsFetched(attempt=2, offsets={TopicPartition("orders", 0): 5}))


def test_explanation_of_healthy_member_states_its_partitions(member: Recorded, tmp_path: Path) -> None:
    """The explanation of a healthy member is only its state."""
    member.tell(Polled())
    assert explanation_of(member, tmp_path).startswith(
        "The membership was stable: the member owned its complete assignment of 0 partitions."
    )


def test_explanation_names_callback_that_does_not_return(member: Recorded, tmp_path: Path) -> None:
    """The text names the callback that does not return, and for how long it has been waited for."""
    is_assigned(member)
    explanation = explanation_of(member, tmp_path, later_s=50.0)
    assert explanation.startswith("The member was in a rebalance: it owned 0 partitions, and its target was 1.")
    assert "It had waited for 50.0 s for on_assign. The application must act" in explanation
    assert "Since then a rebalance has waited for its next poll." in explanation


def test_explanation_of_truncated_file_does_not_blame_application(member: Recorded, tmp_path: Path) -> None:
    """The text about a truncated file has no last poll, because the missing part may contain polls."""
    member.tell(Polled())
    member.now += 100.0
    recording = replace(member.written(tmp_path / "a"), is_whole=False)
    replayed = tuple(Replay(recording).steps())
    assert "last polled" not in explained(recording, recording.entries, replayed[-1].view)


@pytest.mark.parametrize(("silent_s", "is_mentioned"), [(5.0, False), (7.0, True)])
def test_explanation_mentions_a_poll_that_is_older_than_two_samples(
    member: Recorded,
    tmp_path: Path,
    silent_s: float,
    is_mentioned: bool,  # noqa: FBT001
) -> None:
    """A last poll is mentioned only after two samples of three seconds, because a later poll may not be sampled yet."""
    member.tell(Polled())
    explanation = explanation_of(member, tmp_path, later_s=silent_s)
    assert ("The application last polled" in explanation) is is_mentioned


def test_explanation_names_exceeded_max_poll_interval(member: Recorded, tmp_path: Path) -> None:
    """If the application did not poll in time, the text names max.poll.interval.ms and its value."""
    member.now += 400.0
    member.tell(TimePassed())
    explanation = explanation_of(member, tmp_path)
    assert explanation.startswith("The application did not poll within max.poll.interval.ms (300 s)")


def test_explanation_names_request_without_response(member: Recorded, tmp_path: Path) -> None:
    """If a request has no response, the text names the request and the elapsed time."""
    member.tell(TimePassed(), Polled())
    explanation = explanation_of(member, tmp_path, later_s=20.0)
    assert (
        "A Heartbeat request had received no response for 22.0 s. The coordinator last responded 22.0 s before"
        in explanation
    )


def test_explanation_of_unreachable_broker_has_last_error(member: Recorded, tmp_path: Path) -> None:
    """If no broker is reachable, the text has the last error."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    member.tell(CoordinatorLost(reason="broken"), CoordinatorLookupFailed(error=error, is_final=False))
    explanation = explanation_of(member, tmp_path)
    assert "for group coordinator" in explanation
    assert "The last error was: _TRANSPORT: Connection refused." in explanation


def test_explanation_of_fatal_error_has_brokers_message(member: Recorded, tmp_path: Path) -> None:
    """After a fatal error, the text has the broker's message."""
    member.tell(TimePassed())
    error = BrokerError(code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized")
    sent = member.last_request
    member.tell(HeartbeatRejected(request_id=sent, verdict=Verdict.FATAL, error=error))
    assert explanation_of(member, tmp_path).startswith(
        "The membership ended permanently: GROUP_AUTHORIZATION_FAILED: Not authorized."
    )


def test_explanation_of_core_failure_names_exception_and_event(
    member: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure of the core, which is a bug of this package, the text names the exception and the event."""
    advance = MemberCore._advance

    def fail(one: MemberCore) -> None:
        if one.context.event.now >= 200.0:
            raise ZeroDivisionError("by nothing")
        advance(one)

    monkeypatch.setattr(MemberCore, "_advance", fail)
    with pytest.raises(ZeroDivisionError):
        member.recorder.handle(Polled(), 200.0)
    explanation = explanation_of(member, tmp_path)
    assert explanation.startswith("The core failed with ZeroDivisionError: by nothing on the event Polled")


def test_explanation_reports_dead_letters_and_disowned_handlers(member: Recorded, tmp_path: Path) -> None:
    """The last dead letter and the last disowned handlers are named, with their times before the end."""
    partition = TopicPartition("orders", 0)
    for offset in (41, 42):
        dead = RecordDeadLettered(partition=partition, offset=offset, attempts=5, error="ValueError")
        member.recorder.note_handlers(dead, member.now)
    member.recorder.note_handlers(HandlersDisowned(offsets={partition: (50,)}, is_loss=True), member.now + 1)
    text = explanation_of(member, tmp_path, later_s=4.0)
    last = "orders-0 offset 42 after 5 attempts: ValueError."
    assert f"Its processor dead-lettered 2 records, the last one 4.0 s before the end: {last}" in text
    assert "Its processor disowned the handlers of lost partitions: orders-0 offset 50, 3.0 s before the end." in text
