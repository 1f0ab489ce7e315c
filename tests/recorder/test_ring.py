"""What is kept of a member's life: all of it as long as it is short, then the latest, from a checkpoint on."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import StateChanged
from consumer_membership.membership.events import CommitRequested, Polled, TimePassed
from consumer_membership.membership.member import GroupMember
from consumer_membership.recorder import snapshot
from consumer_membership.recorder.ring import Recorder
from consumer_membership.recorder.values import RecordingError
from consumer_membership.types import GroupProtocol, OffsetAndMetadata, TopicPartition
from tests.recorder.members import SETTINGS, Recorded
from tests.simulation.world import protocols_of


def test_short_life_is_kept_from_its_birth() -> None:
    """Events with their times, what was drawn, and what they led to; and how the member looks after the last."""
    member = Recorded()
    member.join()
    held = member.recorder.contents()
    assert (held.first, held.state, held.draws) == (0, None, ("member-1",))
    assert [entry.at for entry in held.entries] == [101.0, 102.0, 103.0, 104.0, 105.0, 106.0]
    assert any(isinstance(effect, StateChanged) for effect in held.entries[1].effects)
    assert (held.view_after, held.view) == (6, member.recorder.member.view())


def test_long_life_is_kept_from_a_checkpoint_on() -> None:
    """The ring has one full segment at least and two at most, and knows how many events there were before them."""
    member = Recorded(segment_weight=50)
    member.join()
    for _ in range(500):
        member.tell(Polled())
    held = member.recorder.contents()
    assert held.state is not None
    assert 50 <= len(held.entries) <= 101
    assert held.first + len(held.entries) == 506


def test_commits_of_many_partitions_weigh_more() -> None:
    """What is kept is bounded by what it holds, not by the number of events."""
    offsets = {TopicPartition("orders", number): OffsetAndMetadata(offset=1) for number in range(400)}
    member = Recorded(segment_weight=1_000)
    for number in range(1, 40):
        member.tell(CommitRequested(commit_id=number, offsets=offsets, timeout_s=1.0), TimePassed())
    assert len(member.recorder.contents().entries) < 25


def test_what_the_core_raises_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last event of a core that failed is the one that a replay must come to."""
    member = Recorded()
    member.join()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(GroupMember, "_advance", fail)
    with pytest.raises(ZeroDivisionError):
        member.recorder.handle(Polled(), 200.0)
    assert member.recorder.contents().entries[-1].error == "ZeroDivisionError: by nothing"


def test_member_goes_on_where_its_state_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept stays; what is the matter is told with it."""

    def fail(*_: object) -> bytes:
        raise RecordingError("a new kind of value")

    monkeypatch.setattr(snapshot, "taken", fail)
    member = Recorded(segment_weight=50)
    member.join()
    for _ in range(200):
        member.tell(Polled())
    assert len(member.recorder.contents().entries) == 51
    assert member.recorder.failure == "RecordingError: a new kind of value"
    assert member.recorder.member.context.event.now == member.now


def test_recorder_that_is_off_keeps_nothing() -> None:
    """What it hands on is the member's own method."""
    recorder = Recorder(
        SETTINGS, protocols_of(GroupProtocol.CONSUMER), new_member_id=lambda: "m", jitter=lambda: 0.5, is_on=False
    )
    recorder.handle(Polled(), 1.0)
    recorder.record_view(recorder.member.view())
    assert recorder.contents().entries == ()
    assert recorder.handle == recorder.member.handle
