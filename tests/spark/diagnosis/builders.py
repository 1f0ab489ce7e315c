"""Findings made, and looked up by their subjects."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_membership.spark.diagnosis.findings import Finding, Severity


def one(findings: Iterable[Finding], subject: str) -> Finding:
    """The only finding about this subject."""
    (found,) = (finding for finding in findings if finding.subject == subject)
    return found


def subjects(findings: Iterable[Finding], severity: Severity) -> list[str]:
    """What the findings of this severity are about."""
    return [finding.subject for finding in findings if finding.severity is severity]


def error(subject: str, found: str, why: str, remedy: str) -> Finding:
    """A finding without whose remedy a job fails."""
    return Finding(severity=Severity.ERROR, subject=subject, found=found, why=why, remedy=remedy)


def warning(subject: str, found: str, why: str, remedy: str) -> Finding:
    """A finding that is worth a thought before a job runs."""
    return Finding(severity=Severity.WARNING, subject=subject, found=found, why=why, remedy=remedy)


def ok(subject: str, found: str) -> Finding:
    """Something that is as it should be."""
    return Finding(severity=Severity.OK, subject=subject, found=found)
