"""Builders for tests of the benchmark harness: series, records, callbacks, and a run without a broker."""

from __future__ import annotations

from tests.benchmarks.bench import Bench
from tests.benchmarks.groups import Record
from tests.benchmarks.processes import Report
from tests.benchmarks.samples import Series


def series(*values: float, failures: int = 0, is_ours: bool = True) -> Series:
    """Return a series with these values and this number of failures."""
    made = Series(label="ours", unit="s", is_ours=is_ours)
    for value in values:
        made.add(value)
    for _ in range(failures):
        made.fail("because")
    return made


def record(partition: int, offset: int, handled_at: float) -> Record:
    """Return a record that was sent 0.1 s before it was handled."""
    return Record(partition=partition, offset=offset, number=offset, sent_at=handled_at - 0.1, handled_at=handled_at)


def callback(event: str, at: float, *partitions: int) -> Report:
    """Return a member's report of one callback."""
    return Report(event=event, at=at, facts={"partitions": list(partitions)})


def bench(rounds: int | None) -> Bench:
    """Return a run that connects to no broker."""
    return Bench(bootstrap="127.0.0.1:1", subject="ours_module", is_quick=True, rounds=rounds, seed=1)
