"""Builders of findings, and lookups by subject."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_membership.spark.diagnosis.findings import Finding, Severity


def one(findings: Iterable[Finding], subject: str) -> Finding:
    """The only finding about this subject."""
    (found,) = (finding for finding in findings if finding.subject == subject)
    return found


def subjects(findings: Iterable[Finding], severity: Severity) -> list[str]:
    """The subjects of the findings with this severity."""
    return [finding.subject for finding in findings if finding.severity is severity]


def error(subject: str, found: str, why: str, remedy: str) -> Finding:
    """A finding that makes a job fail unless its remedy is applied."""
    return Finding(severity=Severity.ERROR, subject=subject, found=found, why=why, remedy=remedy)


def warning(subject: str, found: str, why: str, remedy: str) -> Finding:
    """A finding to consider before a job runs."""
    return Finding(severity=Severity.WARNING, subject=subject, found=found, why=why, remedy=remedy)


def ok(subject: str, found: str) -> Finding:
    """A finding about a healthy subject."""
    return Finding(severity=Severity.OK, subject=subject, found=found)
