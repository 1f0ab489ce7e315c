"""The evaluation of ledgers and callbacks, without measurements and without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.instances import Movement, moved
from tests.benchmarks.ledgers import Account, Ledger, account, read
from tests.benchmarks.processes import Report
from tests.benchmarks.workers.committer import COMMITTED, ENTRY, HANDLED


def ledger(at: float, *numbers: int, committed: int, killed_at: float | None = None) -> Ledger:
    """Return the ledger of a member that handled these records, one per second."""
    handled = tuple((at + second, number) for second, number in enumerate(numbers))
    return Ledger(handled=handled, committed=committed, killed_at=killed_at)


def test_read_ignores_an_incomplete_last_entry(tmp_path: Path) -> None:
    """A kill during a write leaves a partial entry, and its record counts as not handled."""
    path = tmp_path / "ledger"
    entries = [(HANDLED, 3, 7, 100, 1.0), (COMMITTED, 0, 0, 0, 1.5), (HANDLED, 3, 8, 101, 2.0)]
    path.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries) + ENTRY.pack(HANDLED, 3, 9, 102, 2.0)[:-1])

    found = read(path, killed_at=2.5)

    assert found == Ledger(handled=((1.0, 100), (2.0, 101)), committed=1, killed_at=2.5)
    assert found.in_flight == 1


def test_read_of_a_missing_ledger_returns_an_empty_ledger(tmp_path: Path) -> None:
    """A member that was killed before its first record has no ledger."""
    assert read(tmp_path / "none", killed_at=1.0) == Ledger(handled=(), committed=0, killed_at=1.0)


def test_account_explains_repetitions_of_the_batch_in_flight() -> None:
    """The replacement repeats the two records after the last commit; record 5 is lost."""
    killed = ledger(0.0, 0, 1, 2, 3, committed=2, killed_at=4.0)
    replacement = ledger(5.0, 2, 3, 4, committed=3)

    assert account([killed, replacement], total=6) == Account(lost=1, twice=(2, 0), unexplained=0)


def test_account_explains_one_repetition_per_kill() -> None:
    """Each of two kills explains its own repetition of a record that was handled three times."""
    ledgers = [
        ledger(0.0, 0, committed=0, killed_at=1.0),
        ledger(2.0, 0, committed=0, killed_at=3.0),
        ledger(4.0, 0, committed=1),
    ]

    assert account(ledgers, total=1) == Account(lost=0, twice=(1, 1, 0), unexplained=0)


@pytest.mark.parametrize(
    "ledgers",
    [
        [ledger(0.0, 0, committed=1, killed_at=1.0), ledger(2.0, 0, committed=1)],
        [ledger(0.0, 0, committed=0, killed_at=3.0), ledger(2.0, 0, committed=1)],
        [ledger(0.0, 0, committed=0), ledger(2.0, 0, committed=1)],
        [ledger(0.0, 0, 0, committed=2)],
    ],
    ids=["committed", "before the kill", "not killed", "same process"],
)
def test_account_does_not_explain_repetitions_without_a_kill_in_flight(ledgers: list[Ledger]) -> None:
    """Committed records are never repeated, and a living member's records have no other reader."""
    assert account(ledgers, total=1).unexplained == 1


def test_moved_returns_lost_new_and_called_back_partitions_once() -> None:
    """The movement includes lost partitions, new ones, and those in another instance's callbacks, each once."""
    calls = [
        Report(event="assigned", at=1.0, facts={"partitions": [1, 9]}),
        Report(event="revoked", at=2.0, facts={"partitions": []}),
    ]

    found = moved(frozenset({1, 2, 3}), frozenset({2, 3, 4}), calls)

    assert found == Movement(partitions=frozenset({1, 4, 9}), callbacks=2)
