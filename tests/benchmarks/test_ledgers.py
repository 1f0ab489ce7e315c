"""What is made of ledgers and callbacks. No measurement is made here, and no broker is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.instances import Movement, moved
from tests.benchmarks.ledgers import Account, Chapter, account, read
from tests.benchmarks.processes import Said
from tests.benchmarks.workers.committer import COMMITTED, ENTRY, HANDLED


def chapter(at: float, *numbers: int, committed: int, killed_at: float | None = None) -> Chapter:
    """A life that handled these records, one a second."""
    handled = tuple((at + second, number) for second, number in enumerate(numbers))
    return Chapter(handled=handled, committed=committed, killed_at=killed_at)


def test_ledger_s_cut_entry_was_not_made(tmp_path: Path) -> None:
    """A kill in the middle of a write leaves a part of an entry: that record counts as not handled."""
    path = tmp_path / "ledger"
    entries = [(HANDLED, 3, 7, 100, 1.0), (COMMITTED, 0, 0, 0, 1.5), (HANDLED, 3, 8, 101, 2.0)]
    path.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries) + ENTRY.pack(HANDLED, 3, 9, 102, 2.0)[:-1])

    found = read(path, killed_at=2.5)

    assert found == Chapter(handled=((1.0, 100), (2.0, 101)), committed=1, killed_at=2.5)
    assert found.in_flight == 1


def test_life_without_a_ledger_did_nothing(tmp_path: Path) -> None:
    """It was killed before its first record."""
    assert read(tmp_path / "none", killed_at=1.0) == Chapter(handled=(), committed=0, killed_at=1.0)


def test_batch_in_flight_explains_its_repetition() -> None:
    """The two records after the last commit come again at the replacement; nobody handles number 5."""
    killed = chapter(0.0, 0, 1, 2, 3, committed=2, killed_at=4.0)
    replacement = chapter(5.0, 2, 3, 4, committed=3)

    assert account([killed, replacement], total=6) == Account(lost=1, twice=(2, 0), unexplained=0)


def test_replacement_that_is_killed_explains_the_next_repetition() -> None:
    """Handled three times, by two killed members and the one that stays: each kill has its own repetition."""
    lives = [
        chapter(0.0, 0, committed=0, killed_at=1.0),
        chapter(2.0, 0, committed=0, killed_at=3.0),
        chapter(4.0, 0, committed=1),
    ]

    assert account(lives, total=1) == Account(lost=0, twice=(1, 1, 0), unexplained=0)


@pytest.mark.parametrize(
    "lives",
    [
        [chapter(0.0, 0, committed=1, killed_at=1.0), chapter(2.0, 0, committed=1)],
        [chapter(0.0, 0, committed=0, killed_at=3.0), chapter(2.0, 0, committed=1)],
        [chapter(0.0, 0, committed=0), chapter(2.0, 0, committed=1)],
        [chapter(0.0, 0, 0, committed=2)],
    ],
    ids=["committed", "before the kill", "not killed", "by itself"],
)
def test_other_repetitions_are_not_explained(lives: list[Chapter]) -> None:
    """What was committed never comes again, and nobody handles what a living member has."""
    assert account(lives, total=1).unexplained == 1


def test_movement_is_what_an_instance_or_another_one_notices() -> None:
    """A partition that is lost, one that is new, and one that somebody else's callback names; each once."""
    calls = [
        Said(word="assigned", at=1.0, facts={"partitions": [1, 9]}),
        Said(word="revoked", at=2.0, facts={"partitions": []}),
    ]

    found = moved(frozenset({1, 2, 3}), frozenset({2, 3, 4}), calls)

    assert found == Movement(partitions=frozenset({1, 4, 9}), callbacks=2)
