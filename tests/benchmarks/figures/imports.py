"""The duration of the import of `Consumer` in a new process, on a quiet and on a busy machine."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Series, median_above_at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.samples import Check

_RAW_MODULE = "confluent_kafka"
#: The allowed difference from raw, which covers other work of the machine.
SLOWER_BY_S = {"quiet": 0.10, "busy": 0.20}
_SPIN = "while True: pass"
#: The program also gets the class, because a module may import it only on the first access.
_PROGRAM = """
import sys, time
sys.modules["hypothesis"] = None
began, cpu = time.perf_counter(), time.process_time()
import {module}
{module}.Consumer
print(time.perf_counter() - began, time.process_time() - cpu, len(sys.modules))
"""


def run(bench: Bench) -> Figure:
    """Import both modules in new interpreters, in turns: alone, then beside a process that uses one core."""
    imports: list[_Import] = []
    checks: list[Check] = []
    for load, slower_by_s in SLOWER_BY_S.items():
        pair = (_Import.of(bench.subject, load, is_ours=True), _Import.of(_RAW_MODULE, load, is_ours=False))
        for one in pair:
            one.measure()  # not counted: it reads the files into the system's cache
        with _busy() if load == "busy" else nullcontext():
            bench.in_turns(bench.count(25, 9), *(one.count for one in pair))
        ours, raw = (one.wall for one in pair)
        bound = f"import, {load} machine: median at most raw + {slower_by_s:.2f} s"
        checks.append(median_above_at_most(bound, ours, raw, slower_by_s, "s more than raw"))
        imports += pair
    return Figure(
        title="Import: `Consumer` in a fresh interpreter",
        series=(*(one.wall for one in imports), *(one.cpu for one in imports)),
        checks=tuple(checks),
        notes=(
            "quiet: without other processes of the figure, see the load; busy: beside one process that uses a core",
            "CPU: if it is much less than the duration, the machine ran other work",
            "without hypothesis, which the tests install and users do not; bytecode is compiled in advance",
            f"modules in the interpreter afterwards: {', '.join(map(_Import.module_count, imports[:2]))}",
        ),
    )


@contextmanager
def _busy() -> Iterator[None]:
    """Use one core in another process until the end of the block."""
    with subprocess.Popen([sys.executable, "-c", _SPIN]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


@dataclass(slots=True, kw_only=True)
class _Import:
    """The import of one module's `Consumer`."""

    module: str
    wall: Series
    cpu: Series
    modules: int = 0

    @classmethod
    def of(cls, module: str, load: str, *, is_ours: bool) -> _Import:
        label = f"import, {load}, {'ours' if is_ours else 'raw'}"
        return cls(
            module=module,
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
        """Return the duration and the processor time of one import, in seconds.

        Raises:
            WorkerFailedError: The module cannot be imported.
        """
        program = _PROGRAM.format(module=self.module)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WorkerFailedError(f"importing {self.module}: {done.stderr.strip()}")
        wall_s, cpu_s, modules = map(float, done.stdout.split())
        self.modules = int(modules)
        return wall_s, cpu_s

    def module_count(self) -> str:
        """Return as text how many modules the interpreter has after the import."""
        return f"{self.modules} with {self.module}"
