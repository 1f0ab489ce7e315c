"""The command `doctor`: print the diagnosis of a group as text or as one JSON object."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from consumer_membership.cli.groups import DONE, REFUSED, GroupQuery, run_query
from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.findings import FindingSeverity, GroupFinding
from consumer_membership.observe.observation import DEFAULT_SECONDS, Observation, observe
from consumer_membership.text import counted

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The group to observe, and for how many seconds."""

    query: GroupQuery
    seconds: float = DEFAULT_SECONDS


def examine(options: DoctorOptions, out: TextIO, err: TextIO, wait: Callable[[float], object] | None = None) -> int:
    """Print the findings to `out` and return the exit code: 1 if a finding is critical."""

    def run() -> tuple[Iterable[str], int]:
        query = options.query
        seen = observe(query.admin(), query.group, options.seconds, wait)
        findings = diagnose(seen)
        code = REFUSED if any(one.severity is FindingSeverity.CRITICAL for one in findings) else DONE
        return findings_json(seen, findings).splitlines() if query.is_json else findings_text(seen, findings), code

    return run_query("doctor", run, out, err)


def findings_text(seen: Observation, findings: Sequence[GroupFinding]) -> Iterator[str]:
    """Yield a headline and each finding with its explanation, evidence and fix."""
    state = "" if seen.group is None else f", {seen.group.state}"
    samples = counted(len(seen.surveys), "sample")
    yield f"Group {seen.last.group_id}{state}: observed for {seen.seconds:.0f} s, {samples}"
    for number, one in enumerate(findings, 1):
        yield ""
        yield f"{number}. {one.severity.value.upper()}  {one.cause.value}: {one.subject}"
        yield from _paragraph(one.explanation, "   ")
        for fact in one.evidence:
            yield from _paragraph(fact, "   - ")
        if one.remedy:
            yield from _paragraph(one.remedy, "   Fix: ")


def _paragraph(text: str, margin: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def findings_json(seen: Observation, findings: Sequence[GroupFinding]) -> str:
    """Return the findings as one JSON object, the most severe first."""
    output = {
        "group_id": seen.last.group_id,
        "state": None if seen.group is None else seen.group.state,
        "duration_s": round(seen.seconds, 3),
        "samples": len(seen.surveys),
        "findings": [
            {
                "severity": one.severity.value,
                "cause": one.cause.name.lower(),
                "subject": one.subject,
                "explanation": one.explanation,
                "evidence": list(one.evidence),
                "fix": one.remedy or None,
            }
            for one in findings
        ],
    }
    return json.dumps(output, indent=2)
