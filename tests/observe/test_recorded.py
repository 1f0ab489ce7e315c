"""The history of a member from its recording: ownership, stalls and causes, in wall-clock time."""

from __future__ import annotations

import gzip
from pathlib import Path
from uuid import UUID

import pytest

from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
from consumer_membership.membership.events import (
    Polled,
    StartOffsetsFetched,
    Step,
    StepFinished,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.reconciler import Reconciler
from consumer_membership.observe.recorded import RecordedMember, RecordedStandstill, recorded_member
from consumer_membership.recorder.recording import Recording, read
from consumer_membership.types import TopicIdPartition, TopicPartition
from tests.recorder.members import Recorded

ID = UUID(int=7)
ONE = TopicPartition("orders", 0)


@pytest.fixture
def member() -> Recorded:
    """Return a member that received partition 0 of `orders`, one second per event."""
    made = Recorded()
    made.join()
    made.tell(Polled())
    made.answer(frozenset({TopicIdPartition(ID, 0)}))
    made.tell(TopicIdsResolved(names={ID: "orders"}))
    attempt = made.recorder.member.newest_attempt
    made.tell(StartOffsetsFetched(attempt=attempt, offsets={ONE: 3}), StepFinished(attempt=attempt, step=Step.ASSIGN))
    return made


def read_back(member: Recorded, folder: Path) -> tuple[RecordedMember, Recording]:
    """Return the recorded member and its recording."""
    recording = member.written(folder / "a")
    return recorded_member(folder / "a"), recording


def test_recording_owns_partition_from_its_handover(member: Recorded, tmp_path: Path) -> None:
    """A partition stalls from the coordinator's response to its handover; the cause comes from the state machine."""
    recorded, recording = read_back(member, tmp_path)
    (run,) = recorded.runs
    taken = recording.moment(member.now)
    assert (run.partition, run.begin, run.end) == (ONE, pytest.approx(taken), pytest.approx(taken))
    (stood,) = recorded.standstills
    assert stood == RecordedStandstill(partition=ONE, begin=pytest.approx(taken - 2.0), end=pytest.approx(taken))  # type: ignore[arg-type]  # compared alone
    assert recorded.events[-1].text == (
        f"process {recording.process} (member-1) assigned orders[0] in epoch 1 after a wait of 2.000 s: "
        "the coordinator changed the assignment"
    )


def test_recording_ends_at_truncation_of_file(member: Recorded, tmp_path: Path) -> None:
    """If the file is truncated, ownership ends with its last event, because the partition's later owner is unknown."""
    taken = member.now
    member.now += 100.0
    path = tmp_path / "a"
    member.written(path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    recorded, recording = recorded_member(path), read(path)
    assert (recorded.end, recorded.runs[0].end) == (recording.moment(taken), recording.moment(taken))
    assert recorded.note == "a is incomplete: later events of its member are missing."


def test_recording_reports_loss_after_missed_poll(member: Recorded, tmp_path: Path) -> None:
    """The recorded events contain the end of the membership and the lost partitions."""
    member.now += 300.0
    member.tell(TimePassed())
    recorded, _ = read_back(member, tmp_path)
    words = [one.text.split(" ", 3)[3] for one in recorded.events[-2:]]
    assert words[0].startswith("STALE: max.poll.interval.ms=")
    assert words[1].startswith("lost orders[0]")


def test_recording_ends_at_first_replay_difference(
    member: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history ends where a replay by another package version differs, and a note reports this."""
    member.written(tmp_path / "a")
    monkeypatch.setattr(Reconciler, "start_offsets_fetched", lambda *_: None)
    recorded = recorded_member(tmp_path / "a")
    assert recorded.runs == ()
    assert "this version of the package behaves differently" in recorded.note


def test_recording_reports_dead_letters_together_and_disowned_handlers(member: Recorded, tmp_path: Path) -> None:
    """Dead letters within five seconds are one event; a pause, or disowned handlers, begin another one."""
    begun = member.now
    for at, error in ((0.0, "ValueError"), (4.0, "KeyError"), (20.0, "ValueError")):
        dead = RecordDeadLettered(partition=ONE, offset=int(at), attempts=2, error=error)
        member.recorder.note_handlers(dead, begun + at)
    member.recorder.note_handlers(HandlersDisowned(offsets={ONE: (30,)}, is_loss=True), begun + 21.0)
    member.now += 30.0
    recorded, recording = read_back(member, tmp_path)
    texts = [(event.at, event.text.partition(") ")[2]) for event in recorded.events[-3:]]
    assert texts == [
        (pytest.approx(recording.moment(begun + 4.0)), "dead-lettered 2 records of orders[0]: KeyError, ValueError"),
        (
            pytest.approx(recording.moment(begun + 20.0)),
            "dead-lettered orders-0 offset 20 after 2 attempts: ValueError",
        ),
        (pytest.approx(recording.moment(begun + 21.0)), "disowned the handlers of lost partitions: orders-0 offset 30"),
    ]
