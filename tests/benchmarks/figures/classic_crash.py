"""The time without records of a static member of a classic group that was killed and restarted at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure
from tests.benchmarks.figures.crash import FROM_CONSTRUCTOR, FROM_START, RECORDS_PER_S, Recovery, crash_in_turns
from tests.benchmarks.samples import medians_at_most

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench

FACTOR = 1.1
_STRATEGY = "range"


def run(bench: Bench) -> Figure:
    """Kill one of three members at random times, repeatedly, in groups of both sides in turns."""
    topic = bench.topic("classic-crash")
    config = {"group_protocol": "classic", "partition_assignment_strategy": _STRATEGY}
    ours, raw = Recovery.of(bench.ours(**config)), Recovery.of(bench.raw(**config))
    with bench.streaming(topic, RECORDS_PER_S / PARTITIONS):
        errors = crash_in_turns(bench, topic, ours, raw)
    return Figure(
        title="Classic groups, crash: kill -9 of one of three static members, restarted at once",
        series=tuple(one for both in zip(ours.series, raw.series, strict=True) for one in both),
        checks=(
            *(
                medians_at_most(f"classic, {what}: median at most {FACTOR} x raw", mine, theirs, FACTOR)
                for what, mine, theirs in (
                    (FROM_CONSTRUCTOR, ours.from_constructor, raw.from_constructor),
                    (FROM_START, ours.from_start, raw.from_start),
                )
            ),
            *ours.nothing_moved("classic crash"),
        ),
        notes=(
            f"{RECORDS_PER_S} records a second into {PARTITIONS} partitions, {_STRATEGY}, otherwise default settings",
            "moved: only the killed process or its replacement owns it, or another member's callback names it",
            (
                "imports are part of the process's start and not of the constructor; the workers hide hypothesis, which"
                " users do not have"
            ),
            "CPU: of the whole process; if it is much less than the duration, the machine ran other work",
            ours.timeline(),
            raw.timeline(),
            *errors,
        ),
    )
