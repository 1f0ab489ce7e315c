"""What a member's process tells the demo: one JSON object per line of its standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TypeAlias

from consumer_membership.demo.records import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """These records were handled, before their offsets are committed; `strange` ones are not the demo's own."""

    runs: tuple[Run, ...]
    strange: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The member as its `membership()` shows it; sent whenever it differs from the last one."""

    state: str
    epoch: int
    owned: tuple[int, ...]
    waits_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The member went through these states, at this time of the machine's monotonic clock; the reason is the last's."""

    at: float
    states: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A rebalance callback ran."""

    at: float
    callback: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Complained:
    """Something went wrong in the member; what follows from it shows in the other reports."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The consumer was closed in good order; the last report of a process."""

    handled: int


Report: TypeAlias = Handled | Standing | Changed | Called | Complained | Left

_KINDS: Mapping[str, type[Report]] = MappingProxyType(
    {kind.__name__: kind for kind in (Handled, Standing, Changed, Called, Complained, Left)}
)


def encode(report: Report) -> str:
    """The report as one line, with its end."""
    return json.dumps({"kind": type(report).__name__, **asdict(report)}, separators=(",", ":")) + "\n"


def decode(line: str) -> Report:
    """The report of one line.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        for name in ("states", "owned", "partitions"):
            if name in fields:
                fields[name] = tuple(fields[name])
        if "runs" in fields:
            fields["runs"] = tuple(Run(*run) for run in fields["runs"])
        return kind(**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a member's report: {line!r}") from error
