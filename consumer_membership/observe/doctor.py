"""What is the matter with a group, ranked: every rule applied to what was seen of it.

The rules are pure: an `Observation` goes in, findings come out. They say what is seen from outside, of any client's
group, and nothing that only a member could know.
"""

from __future__ import annotations

from consumer_membership.observe.findings import Cause, GroupFinding, Urgency, ranked
from consumer_membership.observe.observation import Observation
from consumer_membership.observe.rules_of_access import ACCESS_RULES
from consumer_membership.observe.rules_of_members import MEMBER_RULES

RULES = (*ACCESS_RULES, *MEMBER_RULES)


def diagnosed(seen: Observation) -> tuple[GroupFinding, ...]:
    """All findings, the cause first that explains the others; one that says so where there is none."""
    findings = ranked(finding for rule in RULES for finding in rule(seen))
    if any(one.urgency is not Urgency.NOTE for one in findings):
        return findings
    lag = sum(seen.lags.values())
    well = GroupFinding(
        urgency=Urgency.NOTE,
        cause=Cause.WELL,
        subject=seen.last.group_id,
        explanation=f"nothing that could be seen from outside in {seen.seconds:.0f} s is the matter with the group",
        evidence=(f"{len(seen.members)} members, {lag:,} records to read",),
    )
    return (*findings, well)
