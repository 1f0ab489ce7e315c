"""`doctor`: what is the matter with a group, in words or as one JSON object."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from consumer_membership.cli.groups import DONE, REFUSED, Asking, answered
from consumer_membership.observe.doctor import diagnosed
from consumer_membership.observe.findings import GroupFinding, Urgency
from consumer_membership.observe.observation import DEFAULT_SECONDS, Observation, observe

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Which group to look at, and for how long."""

    asking: Asking
    seconds: float = DEFAULT_SECONDS


def examine(options: DoctorOptions, out: TextIO, err: TextIO, wait: Callable[[float], object] | None = None) -> int:
    """Tell on `out` what was found; the exit code, 1 where something critical was."""

    def ask() -> tuple[Iterable[str], int]:
        asking = options.asking
        seen = observe(asking.admin(), asking.group, options.seconds, wait)
        findings = diagnosed(seen)
        code = REFUSED if any(one.urgency is Urgency.CRITICAL for one in findings) else DONE
        return findings_json(seen, findings).splitlines() if asking.is_json else findings_text(seen, findings), code

    return answered("doctor", ask, out, err)


def findings_text(seen: Observation, findings: Sequence[GroupFinding]) -> Iterator[str]:
    """Each finding: what it is, by what that is seen, what helps."""
    state = "" if seen.group is None else f", {seen.group.state}"
    yield f"Group {seen.last.group_id}{state}: watched for {seen.seconds:.0f} s in {len(seen.surveys)} looks"
    for number, one in enumerate(findings, 1):
        yield ""
        yield f"{number}. {one.urgency.value.upper()}  {one.cause.value}: {one.subject}"
        yield from _paragraph(one.explanation, "   ")
        for fact in one.evidence:
            yield from _paragraph(fact, "   - ")
        if one.remedy:
            yield from _paragraph(one.remedy, "   -> ")


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
    """The findings as one JSON object, in their order."""
    output = {
        "group_id": seen.last.group_id,
        "state": None if seen.group is None else seen.group.state,
        "seconds": round(seen.seconds, 3),
        "looks": len(seen.surveys),
        "findings": [
            {
                "urgency": one.urgency.value,
                "cause": one.cause.name.lower(),
                "subject": one.subject,
                "explanation": one.explanation,
                "evidence": list(one.evidence),
                "remedy": one.remedy or None,
            }
            for one in findings
        ],
    }
    return json.dumps(output, indent=2)
