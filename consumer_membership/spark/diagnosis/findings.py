"""What was found, why it matters and what to do about it; in words for whoever starts the job."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from consumer_membership.errors import ConfigurationError


class Severity(StrEnum):
    """How bad it is."""

    #: The job would fail, lose its members, or write twice.
    ERROR = "error"
    #: It works, and not as one would expect.
    WARNING = "warning"
    #: Nothing to do; what it means is said where it is worth knowing.
    OK = "ok"


_WORST_FIRST = tuple(Severity)
_WIDTH, _GAP = 120, "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: `subject` is a configuration key or a name, `found` what it is.

    `why` says why that matters, `remedy` what to do; both may be empty where all is well.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, the worst first; `print` shows them with their remedies."""

    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps a job with group members from working."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What makes it work otherwise than one would expect."""
        return tuple(one for one in self.findings if one.severity is Severity.WARNING)

    def raise_for_errors(self) -> None:
        """Return if there is no error.

        Raises ConfigurationError: there are some; the text has all of them, each with its remedy.
        """
        listed = [(one, "; ".join(filter(None, (one.why, one.remedy)))) for one in self.errors]
        if len(listed) == 1:
            ((one, words),) = listed
            raise ConfigurationError(one.subject, one.found, words)
        if listed:
            lines = "".join(f"\n- {one.subject}: {one.found}: {words}" for one, words in listed)
            raise ConfigurationError("check", f"{len(listed)} errors", lines)

    def __str__(self) -> str:
        errors, warnings = len(self.errors), len(self.warnings)
        counts = (
            f"{errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}, "
            f"{len(self.findings) - errors - warnings} ok"
        )
        return "\n".join((counts, *_lines(self.findings)))


def diagnosis(findings: Iterable[Finding]) -> Diagnosis:
    """These findings, the worst first and otherwise as they come."""
    return Diagnosis(findings=tuple(sorted(findings, key=lambda one: _WORST_FIRST.index(one.severity))))


def _lines(findings: tuple[Finding, ...]) -> Iterator[str]:
    kind = max(len(severity) for severity in Severity)
    subject = max((len(one.subject) for one in findings), default=0)
    margin = " " * (kind + len(_GAP))
    for one in findings:
        shown = one.severity.upper() if one.severity is Severity.ERROR else str(one.severity)
        heading = f"{shown:<{kind}}{_GAP}{one.subject:<{subject}}{_GAP}"
        yield from _paragraph(one.found, heading, " " * len(heading)) or [heading.rstrip()]
        yield from _paragraph(one.why, margin, margin)
        yield from _paragraph(one.remedy, f"{margin}-> ", f"{margin}   ")


def _paragraph(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
