"""The findings of a check: what was found, why it matters, and the remedy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from consumer_membership.errors import ConfigurationError


class Severity(StrEnum):
    """The severity of a finding."""

    #: The job would fail, lose its members, or write duplicates.
    ERROR = "error"
    #: The job works, but not as you may expect.
    WARNING = "warning"
    #: No action is needed.
    OK = "ok"


_WORST_FIRST = tuple(Severity)
_WIDTH, _GAP = 120, "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        severity: The severity.
        subject: The configuration key or the name of what was checked.
        found: The value or the state that was found.
        why: Why it matters; may be empty.
        remedy: What to do; empty if no action is needed.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, the most severe first; `print` shows them with their remedies."""

    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep a job with group members from working."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings with which the job works, but not as you may expect."""
        return tuple(one for one in self.findings if one.severity is Severity.WARNING)

    def raise_for_errors(self) -> None:
        """Return if there is no error.

        Raises:
            ConfigurationError: there are errors; the text has all of them, each with its remedy.
        """
        listed = [(one, "; ".join(filter(None, (one.why, one.remedy)))) for one in self.errors]
        if len(listed) == 1:
            ((one, text),) = listed
            raise ConfigurationError(one.subject, one.found, text)
        if listed:
            lines = "".join(f"\n- {one.subject}: {one.found}: {text}" for one, text in listed)
            raise ConfigurationError("check", f"{len(listed)} errors", lines)

    def __str__(self) -> str:
        errors, warnings = len(self.errors), len(self.warnings)
        counts = (
            f"{errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}, "
            f"{len(self.findings) - errors - warnings} ok"
        )
        return "\n".join((counts, *_lines(self.findings)))


def diagnosis(findings: Iterable[Finding]) -> Diagnosis:
    """Sort findings, the most severe first and otherwise in their order."""
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
