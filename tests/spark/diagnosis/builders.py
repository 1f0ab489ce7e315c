"""Findings looked up by their subjects."""

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
