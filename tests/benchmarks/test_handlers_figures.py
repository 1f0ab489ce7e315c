"""The calculations of the figures about handlers, without measurements and without a broker."""

from __future__ import annotations

import pytest

from tests.benchmarks.figures.handlers_crash import Outcome, outcome
from tests.benchmarks.workers.handlers import NUMBER, GeneratedRecord, Job, Program, Run


def ledger(*numbers: int) -> bytes:
    """Return the ledger of a process that finished these records."""
    return b"".join(map(NUMBER.pack, numbers))


class Record(GeneratedRecord):
    """A record with this key and number."""

    def __init__(self, key: bytes, number: int) -> None:
        super().__init__(number)
        self._key = key


def run(expected: int = 3) -> Run:
    """Return a run whose handlers wait."""
    job = Job(program=Program.THREADS, config={}, topic="topic", expected=expected, groups=["group"], wait_s=1e-6)
    return Run(job, "group")


@pytest.mark.parametrize(
    ("ledgers", "expected"),
    [
        ([ledger(0, 1, 2), ledger(3, 4)], Outcome(lost=0, repeated=0)),
        ([ledger(0, 1, 2), ledger(2, 1, 3, 4)], Outcome(lost=0, repeated=2)),
        ([ledger(0, 1, 4), ledger(3)], Outcome(lost=1, repeated=0)),
        ([ledger(0, 1, 2)[:-1], ledger(2, 3, 4, 4)], Outcome(lost=0, repeated=1)),
    ],
)
def test_outcome_counts_lost_and_repeated_records(ledgers: list[bytes], expected: Outcome) -> None:
    """An incomplete last entry belongs to a record that the process did not finish."""
    assert outcome(ledgers, 5) == expected


def test_run_counts_records_that_overtake_or_overlap_within_their_key() -> None:
    """Handlers of one key run one after the other in the order of their records; other keys do not matter."""
    one = run()
    first = one.enter(Record(b"a", 1))
    other = one.enter(Record(b"b", 0))
    one.enter(Record(b"a", 2))
    assert one.disordered == 1
    one.leave(*first)
    one.leave(*other)
    one.enter(Record(b"b", 5))
    assert one.disordered == 1
    one.enter(Record(b"a", 0))
    assert one.disordered == 2


def test_run_calls_when_finished_with_the_last_handler() -> None:
    """The program stops after the last record, and not before."""
    called: list[bool] = []
    one = run(expected=2)
    one.when_finished = lambda: called.append(one.is_finished)
    for number in range(2):
        assert called == []
        one.function()(Record(b"a", number))
    assert called == [True]
