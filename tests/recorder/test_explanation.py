"""The paragraph of `--explain`: each way to stand still is told by its cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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
from consumer_membership.membership.member import GroupMember
from consumer_membership.recorder.explanation import explained
from consumer_membership.recorder.replay import Replay
from consumer_membership.types import BrokerError, TopicIdPartition, TopicPartition
from tests.recorder.members import ID, Recorded


@pytest.fixture
def member() -> Recorded:
    """One that has joined."""
    recorded = Recorded()
    recorded.join()
    return recorded


def words(member: Recorded, path: Path, *, later_s: float = 0.0) -> str:
    """What is said of it so many seconds after the last event."""
    member.now += later_s
    recording = member.written(path / "a")
    replayed = tuple(Replay(recording).steps())
    return explained(recording, recording.entries, replayed[-1].view)


def is_assigned(member: Recorded) -> None:
    """The coordinator assigns a partition, and its start is known."""
    member.tell(TimePassed())
    member.answer(frozenset({TopicIdPartition(ID, 0)}))
    member.tell(TopicIdsResolved(names={ID: "orders"}))
    member.tell(StartOffsetsFetched(attempt=2, offsets={TopicPartition("orders", 0): 5}))


def test_member_in_order(member: Recorded, tmp_path: Path) -> None:
    """There is nothing to explain but where it stands."""
    member.tell(Polled())
    assert words(member, tmp_path).startswith(
        "The membership was in order: 0 partitions, all that the member was to have."
    )


def test_application_that_does_not_come_back_from_a_callback(member: Recorded, tmp_path: Path) -> None:
    """Whose turn it is, and since when nobody heard of the application."""
    is_assigned(member)
    said = words(member, tmp_path, later_s=50.0)
    assert said.startswith("The member was in the middle of a rebalance: it owned 0 partitions, and was to own 1.")
    assert "It had waited for 50.0 s for the application's on_assign. It is the application's turn" in said
    assert "Since then it was ordered to take part in a rebalance, and did not." in said


def test_file_that_was_cut_short_blames_nobody_for_what_it_has_not(member: Recorded, tmp_path: Path) -> None:
    """The application polled until the file was written, as far as anybody knows."""
    member.tell(Polled())
    member.now += 100.0
    recording = replace(member.written(tmp_path / "a"), is_whole=False)
    replayed = tuple(Replay(recording).steps())
    assert "last seen polling" not in explained(recording, recording.entries, replayed[-1].view)


def test_application_that_did_not_poll_in_time(member: Recorded, tmp_path: Path) -> None:
    """The limit is named."""
    member.now += 400.0
    member.tell(TimePassed())
    said = words(member, tmp_path)
    assert said.startswith("The application did not poll within max.poll.interval.ms (300 s)")


def test_coordinator_that_does_not_answer(member: Recorded, tmp_path: Path) -> None:
    """What was sent, and since when."""
    member.tell(TimePassed(), Polled())
    said = words(member, tmp_path, later_s=20.0)
    assert "The coordinator had not answered a Heartbeat for 22.0 s. It was last heard of 22.0 s before." in said


def test_brokers_that_cannot_be_reached(member: Recorded, tmp_path: Path) -> None:
    """The last error says why."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    member.tell(CoordinatorLost(reason="broken"), CoordinatorLookupFailed(error=error, is_final=False))
    said = words(member, tmp_path)
    assert "for the group's coordinator to be found" in said
    assert "The last error was: _TRANSPORT: Connection refused." in said


def test_refusal_for_good(member: Recorded, tmp_path: Path) -> None:
    """The broker's words."""
    member.tell(TimePassed())
    error = BrokerError(code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized")
    sent = member.last_request
    member.tell(HeartbeatRejected(request_id=sent, verdict=Verdict.FATAL, error=error))
    assert words(member, tmp_path).startswith(
        "The membership ended for good: GROUP_AUTHORIZATION_FAILED: Not authorized."
    )


def test_fault_of_the_core(member: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is our bug, and the event is named."""
    advance = GroupMember._advance

    def fail(one: GroupMember) -> None:
        if one.context.event.now >= 200.0:
            raise ZeroDivisionError("by nothing")
        advance(one)

    monkeypatch.setattr(GroupMember, "_advance", fail)
    with pytest.raises(ZeroDivisionError):
        member.recorder.handle(Polled(), 200.0)
    said = words(member, tmp_path)
    assert said.startswith("The core failed with ZeroDivisionError: by nothing when it was told Polled")
