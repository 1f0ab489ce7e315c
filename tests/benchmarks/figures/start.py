"""From a constructor to the first record, and the import before it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in, tell
from tests.benchmarks.processes import WorkerFailedError, run_worker
from tests.benchmarks.samples import Series, at_most, difference, median_of
from tests.benchmarks.workers import first_record

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

NAME = "start"

_RECORDS = 1_200
_STEPS = ("constructed_s", "subscribed_s", "assigned_s", "first_record_s", "close_s")
_SLOWER_BY_S = 0.05
_IMPORT_S = 0.4
_TIMEOUT_S = 60.0
_IMPORTS = (("ours", ""), ("ours", "hypothesis"), ("raw", ""))
_IMPORT_PROGRAM = """
import sys, time
if "{hidden}":
    sys.modules["{hidden}"] = None
began, cpu = time.perf_counter(), time.process_time()
from {module} import Consumer
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def run(bench: Bench) -> Figure:
    """Measure one member of a fresh group, 12 partitions with records, from the earliest."""
    began_load = os.getloadavg()[0]
    topic = bench.filled_topic("start", _RECORDS)
    sides = (bench.ours(), bench.raw(), bench.raw("raw classic", group_protocol="classic"))
    first = {side: Series(label=f"first record, {side.label}", unit="s", is_ours=side.is_ours) for side in sides}
    bench.in_turns(bench.count(15, 4), *(partial(_start, bench, side, topic, first[side]) for side in sides))

    imports = tuple(_Import.of(bench, *which) for which in _IMPORTS)
    for one in imports:
        one.measure()  # compiles the bytecode, which an installation has done already: not counted
    bench.in_turns(bench.count(11, 4), *(one.count for one in imports))

    ours, raw, _ = (first[side] for side in sides)
    checks = (
        at_most(
            f"constructor to first record: median at most raw + {_SLOWER_BY_S} s",
            difference(median_of(ours), median_of(raw)),
            _SLOWER_BY_S,
            "s more than raw",
            [ours, raw],
        ),
        at_most(
            f"import of the package as users install it (without hypothesis): median at most {_IMPORT_S} s",
            median_of(imports[1].wall),
            _IMPORT_S,
            "s",
            [imports[1].wall],
        ),
    )
    return Figure(
        name=NAME,
        title="Start: constructor to first record, one member of a fresh group, 12 partitions",
        series=(*first.values(), *(one.wall for one in imports), *(one.cpu for one in imports)),
        checks=checks,
        notes=(
            *(_timeline(series) for series in first.values()),
            "import: in a fresh interpreter; its CPU time is its duration on a machine that does nothing else",
            "kio imports hypothesis where that is installed, as it is for the tests and is not for users",
        ),
        began_load=began_load,
    )


def _start(bench: Bench, side: Side, topic: str, series: Series) -> None:
    with counted_in(series):
        job = first_record.Job(module=side.module, config=bench.config(side), topic=topic)
        facts = run_worker("first_record", job, _TIMEOUT_S).facts
        series.add(facts["first_record_s"], **facts)
        tell(f"start: {side.label} {facts['first_record_s']:.3f} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """The import of one module's `Consumer`, in fresh interpreters."""

    module: str
    hidden: str
    wall: Series
    cpu: Series

    @classmethod
    def of(cls, bench: Bench, whose: str, hidden: str) -> _Import:
        label = f"import, {whose}, without {hidden}" if hidden else f"import, {whose}"
        is_ours = whose == "ours"
        return cls(
            module=bench.subject if is_ours else "confluent_kafka",
            hidden=hidden,
            wall=Series(label=label, unit="s", is_ours=is_ours),
            cpu=Series(label=f"CPU: {label}", unit="s", is_ours=is_ours),
        )

    def count(self) -> None:
        """Measure once, for the figure."""
        with counted_in(self.wall, self.cpu):
            wall_s, cpu_s = self.measure()
            self.wall.add(wall_s)
            self.cpu.add(cpu_s)

    def measure(self) -> tuple[float, float]:
        """Wall and processor seconds.

        Raises:
            WorkerFailedError: It cannot be imported.
        """
        program = _IMPORT_PROGRAM.format(module=self.module, hidden=self.hidden)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WorkerFailedError(f"importing {self.module}: {done.stderr.strip()}")
        wall_s, cpu_s = map(float, done.stdout.split())
        return wall_s, cpu_s


def _timeline(series: Series) -> str:
    """The medians of the steps on the way."""
    steps = []
    for step in _STEPS:
        one = Series(label=step, unit="s")
        for sample in series.samples:
            one.add(sample.detail[step])
        median = median_of(one)
        steps.append(f"{step.removesuffix('_s')} {'?' if median is None else format(median, '.3f')}")
    return f"{series.label}, medians in seconds since the constructor (close: its own duration): {', '.join(steps)}"
