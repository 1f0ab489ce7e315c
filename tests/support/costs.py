"""The durations, CPU times and replayed recordings of a test run: summed over the stages, and printed at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Self

SLOWEST = 10
#: The recordings of members on real brokers that this process replayed with equal effects.
REPLAYED: list[str] = []


@dataclass(slots=True)
class Costs:
    """The costs of one stage, or of several.

    Attributes:
        tests: Seconds of each test, including its fixtures.
        cpu: CPU seconds of each file's tests, including child processes that ended during the tests.
        starts: Seconds of each start of a broker, by the broker's kind.
        left_out: The number of tests that each flag deselected.
        reasons: The number of tests that only the full run has, by reason.
        recordings: The number of recordings of members on real brokers that were replayed with equal effects.
    """

    tests: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    recordings: int = 0

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """Return the total costs of several stages."""
        together = cls()
        for path in paths:
            one = cls(**json.loads(path.read_text()))
            together.tests |= one.tests
            together.add_cpu(one.cpu)
            for kind, seconds in one.starts.items():
                together.starts.setdefault(kind, []).extend(seconds)
            together.left_out = dict(Counter(together.left_out) + Counter(one.left_out))
            together.reasons = dict(Counter(together.reasons) + Counter(one.reasons))
            together.recordings += one.recordings
        return together

    def write(self, path: Path) -> None:
        """Write the costs to a file that `read` reads."""
        path.write_text(json.dumps(asdict(self)))

    def add_test(self, name: str, seconds: float) -> None:
        """Add the seconds of one phase of a test."""
        self.tests[name] = self.tests.get(name, 0.0) + seconds

    def add_cpu(self, spent: Mapping[str, float]) -> None:
        """Add the CPU seconds of files."""
        for file, seconds in spent.items():
            self.cpu[file] = self.cpu.get(file, 0.0) + seconds

    def add_starts(self, starts: Iterable[tuple[str, float]]) -> None:
        """Add the starts of brokers, each with its kind and seconds."""
        found = defaultdict(list, self.starts)
        for kind, seconds in starts:
            found[kind].append(seconds)
        self.starts = dict(found)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a summary."""
        slowest = sorted(self.tests.items(), key=lambda one: -one[1])[:SLOWEST]
        if slowest:
            yield f"the {len(slowest)} slowest tests:"
            yield from (f"{seconds:8.1f} s  {name}" for name, seconds in slowest)
        most = sorted(self.cpu.items(), key=lambda one: -one[1])[:SLOWEST]
        if most:
            yield f"CPU time of tests: {sum(self.cpu.values()):.0f} s; the {len(most)} files with the most:"
            yield from (f"{seconds:8.1f} s  {file}" for file, seconds in most)
        if self.starts:
            all_of_them = [seconds for of_kind in self.starts.values() for seconds in of_kind]
            yield f"brokers started: {len(all_of_them)}, {sum(all_of_them):.0f} s in all"
            for kind, seconds in sorted(self.starts.items(), key=lambda one: -sum(one[1])):
                yield f"{sum(seconds):8.1f} s  {len(seconds)} x {shorten(kind, 100, placeholder=' ...')}"
        if self.recordings:
            yield f"recordings of members on real brokers, replayed identically: {self.recordings}"
        if self.reasons:
            yield f"left to `python -m tests --full`: {sum(self.reasons.values())} tests"
            yield from (
                f"{count:8}  {reason}" for reason, count in sorted(self.reasons.items(), key=lambda one: -one[1])
            )
