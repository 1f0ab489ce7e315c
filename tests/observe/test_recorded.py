"""A recording's account of its member: ownership, stalls and causes, in wall-clock time."""

from __future__ import annotations

import gzip
from pathlib import Path
from uuid import UUID

import pytest

from consumer_membership.membership.events import (
    Polled,
    StartOffsetsFetched,
    Step,
    StepFinished,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.reconciler import Reconciler
from consumer_membership.observe.recorded import MemberAccount, RecordedStandstill, account_of
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


def told(member: Recorded, folder: Path) -> tuple[MemberAccount, Recording]:
    """Return the account and its recording."""
    recording = member.written(folder / "a")
    return account_of(folder / "a"), recording


def test_account_owns_partition_from_its_handover(member: Recorded, tmp_path: Path) -> None:
    """The partition stalled from the coordinator's response until then; the cause is the state machine's."""
    account, recording = told(member, tmp_path)
    (run,) = account.runs
    taken = recording.moment(member.now)
    assert (run.partition, run.begin, run.end) == (ONE, pytest.approx(taken), pytest.approx(taken))
    (stood,) = account.standstills
    assert stood == RecordedStandstill(partition=ONE, begin=pytest.approx(taken - 2.0), end=pytest.approx(taken))  # type: ignore[arg-type]  # compared alone
    assert account.facts[-1].text == (
        f"process {recording.process} (member-1) has orders[0] in epoch 1, told of them 2.000 s before: "
        "the coordinator changed the assignment"
    )


def test_account_ends_at_truncation_of_file(member: Recorded, tmp_path: Path) -> None:
    """The partition's later owner is unknown."""
    taken = member.now
    member.now += 100.0
    path = tmp_path / "a"
    member.written(path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    account, recording = account_of(path), read(path)
    assert (account.end, account.runs[0].end) == (recording.moment(taken), recording.moment(taken))
    assert account.note == "a was cut short: what became of its member afterwards is not known."


def test_account_reports_loss_after_missed_poll(member: Recorded, tmp_path: Path) -> None:
    """The account has the end of the membership and the lost partitions."""
    member.now += 300.0
    member.tell(TimePassed())
    account, _ = told(member, tmp_path)
    words = [one.text.split(" ", 3)[3] for one in account.facts[-2:]]
    assert words[0].startswith("STALE: max.poll.interval.ms=")
    assert words[1].startswith("lost orders[0]")


def test_account_ends_at_first_replay_difference(
    member: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The behavior of another package version is not guessed, and a note states this."""
    member.written(tmp_path / "a")
    monkeypatch.setattr(Reconciler, "start_offsets_fetched", lambda *_: None)
    account = account_of(tmp_path / "a")
    assert account.runs == ()
    assert "this version of the package does otherwise there" in account.note
