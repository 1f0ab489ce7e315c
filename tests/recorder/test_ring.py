"""The ring keeps all events of a short-lived member; of a long-lived member it keeps a checkpoint and later events."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import StateChanged
from consumer_membership.membership.events import CommitRequested, Polled, TimePassed
from consumer_membership.membership.member import MemberCore
from consumer_membership.recorder import snapshot
from consumer_membership.recorder.ring import Recorder
from consumer_membership.recorder.values import RecordingError
from consumer_membership.types import GroupProtocol, OffsetAndMetadata, TopicPartition
from tests.recorder.members import SETTINGS, Recorded
from tests.simulation.simulation import protocols_of


def test_ring_keeps_short_life_completely() -> None:
    """Of a short-lived member, the ring keeps all events with times, draws and effects, and the last view."""
    member = Recorded()
    member.join()
    held = member.recorder.contents()
    assert (held.first, held.state, held.draws) == (0, None, ("member-1",))
    assert [entry.at for entry in held.entries] == [101.0, 102.0, 103.0, 104.0, 105.0, 106.0]
    assert any(isinstance(effect, StateChanged) for effect in held.entries[1].effects)
    assert (held.view_after, held.view) == (6, member.recorder.member.view())


def test_ring_keeps_long_life_from_checkpoint() -> None:
    """Of a long-lived member, the ring keeps one to two full segments and the number of earlier events."""
    member = Recorded(segment_weight=50)
    member.join()
    for _ in range(500):
        member.tell(Polled())
    held = member.recorder.contents()
    assert held.state is not None
    assert 50 <= len(held.entries) <= 101
    assert held.first + len(held.entries) == 506


def test_ring_weighs_entries_by_content() -> None:
    """The limit applies to the content of the entries, not to their number."""
    offsets = {TopicPartition("orders", number): OffsetAndMetadata(offset=1) for number in range(400)}
    member = Recorded(segment_weight=1_000)
    for number in range(1, 40):
        member.tell(CommitRequested(commit_id=number, offsets=offsets, timeout_s=1.0), TimePassed())
    assert len(member.recorder.contents().entries) < 25


def test_ring_keeps_exception_of_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring keeps the last event of a failed core with its exception, so that a replay can repeat it."""
    member = Recorded()
    member.join()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(MemberCore, "_advance", fail)
    with pytest.raises(ZeroDivisionError):
        member.recorder.handle(Polled(), 200.0)
    assert member.recorder.contents().entries[-1].error == "ZeroDivisionError: by nothing"


def test_recorder_keeps_member_running_if_snapshot_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a snapshot fails, the member continues, and the entries so far are kept with the failure."""

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


def test_disabled_recorder_keeps_nothing() -> None:
    """A disabled recorder keeps nothing, and its `handle` is the member's own method."""
    recorder = Recorder(
        SETTINGS, protocols_of(GroupProtocol.CONSUMER), new_member_id=lambda: "m", jitter=lambda: 0.5, is_on=False
    )
    recorder.handle(Polled(), 1.0)
    recorder.record_view(recorder.member.view())
    assert recorder.contents().entries == ()
    assert recorder.handle == recorder.member.handle
