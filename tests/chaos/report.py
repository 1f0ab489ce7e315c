"""The table of a run: for each fault the number of its rounds, and their total or worst figures."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.rounds import Outcome

_HEADER = "| fault | rounds | failed | records | worst stall | lost | repeated | overlap |"


def table(outcomes: Iterable[Outcome], kinds: Iterable[str]) -> str:
    """Return the table of these faults, including faults without a round; a round of two faults counts in both rows."""
    by_fault: dict[str, list[Outcome]] = {name: [] for name in kinds}
    every: list[Outcome] = []
    for outcome in outcomes:
        every.append(outcome)
        for name in {fault.kind for fault in outcome.plan.faults}:
            by_fault.setdefault(name, []).append(outcome)
    rows = [_row(name, found) for name, found in sorted(by_fault.items())]
    return "\n".join([_HEADER, "|---|---|---|---|---|---|---|---|", *rows, _row("all", every)])


def _row(name: str, outcomes: list[Outcome]) -> str:
    figures = [outcome.verdict.figures for outcome in outcomes]
    failed = sum(not outcome.has_passed for outcome in outcomes)
    worst_stall_s = max((one.worst_stall_s for one in figures), default=0.0)
    overlap_s = max((one.overlap_s for one in figures), default=0.0)
    values = [
        f"{len(outcomes)}",
        f"{failed}",
        f"{sum(one.records for one in figures):,}",
        f"{worst_stall_s:.1f} s",
        f"{sum(one.lost for one in figures)}",
        f"{sum(one.repeated for one in figures)}",
        f"{overlap_s * 1000:.0f} ms",
    ]
    return f"| {name} | {' | '.join(values)} |"
