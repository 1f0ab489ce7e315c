"""Diagnose a group: apply all rules to an observation and rank the findings.

The rules are pure functions from an `Observation` to findings. They use only what is visible from outside, so that
they work for groups of any client.
"""

from __future__ import annotations

from consumer_membership.observe.findings import Cause, FindingSeverity, GroupFinding, ranked
from consumer_membership.observe.observation import Observation
from consumer_membership.observe.rules_of_access import ACCESS_RULES
from consumer_membership.observe.rules_of_members import MEMBER_RULES
from consumer_membership.text import counted

RULES = (*ACCESS_RULES, *MEMBER_RULES)


def diagnose(seen: Observation) -> tuple[GroupFinding, ...]:
    """Return all findings, root causes first; if there is no problem, a finding states that."""
    findings = ranked(finding for rule in RULES for finding in rule(seen))
    if any(one.severity is not FindingSeverity.INFO for one in findings):
        return findings
    lag = sum(seen.lags.values())
    healthy = GroupFinding(
        severity=FindingSeverity.INFO,
        cause=Cause.HEALTHY,
        subject=seen.last.group_id,
        explanation=f"no problem was visible from outside in {seen.seconds:.0f} s",
        evidence=(f"{counted(len(seen.members), 'member')}, lag {lag:,}",),
    )
    return (*findings, healthy)
