"""The rules for the events of verifiable consumers: the ledger accepts correct events and raises for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kafkatest.ledger import BrokenRuleError, GroupLedger, MemberLedger, MemberState


def assigned(*numbers: int) -> dict[str, Any]:
    """Return an assignment event."""
    return {"name": "partitions_assigned", "partitions": [{"topic": "t", "partition": number} for number in numbers]}


def revoked(*numbers: int) -> dict[str, Any]:
    """Return a revocation event."""
    return {"name": "partitions_revoked", "partitions": [{"topic": "t", "partition": number} for number in numbers]}


def consumed(partition: int, first: int, last: int) -> dict[str, Any]:
    """Return an event for the records of a batch."""
    batch = {"topic": "t", "partition": partition, "minOffset": first, "maxOffset": last}
    return {"name": "records_consumed", "count": last - first + 1, "partitions": [batch]}


def committed(partition: int, offset: int) -> dict[str, Any]:
    """Return an event for a successful commit."""
    return {
        "name": "offsets_committed",
        "success": True,
        "offsets": [{"topic": "t", "partition": partition, "offset": offset}],
    }


def applied(*events: dict[str, Any], is_eager: bool = False) -> MemberLedger:
    """Return the ledger of a group's only member after these events."""
    member, group = MemberLedger("m"), GroupLedger()
    for event in events:
        group.apply(member, event, is_eager=is_eager)
    return member


def test_ledger_accepts_a_correct_member() -> None:
    """A member may report records in order, commit them afterwards, and gain and lose partitions."""
    events = [assigned(0), consumed(0, 0, 4), committed(0, 5), consumed(0, 5, 5), assigned(1), revoked(0)]
    member = applied(*events)
    assert (member.assignment, member.consumed, member.state) == ({1}, 6, MemberState.JOINED)
    assert (member.assigned_count, member.revoked_count) == (2, 1)


def test_eager_assignment_replaces_the_previous_assignment() -> None:
    """An eager member receives its complete assignment; an incremental member receives only the added partitions."""
    assert applied(assigned(0, 1), assigned(1), is_eager=True).assignment == {1}
    assert applied(assigned(0), assigned(1)).assignment == {0, 1}


def test_incremental_member_may_report_records_between_revocation_and_assignment() -> None:
    """A revocation does not affect the other partitions of a cooperative classic or consumer protocol member."""
    events = [assigned(0, 1), revoked(0), consumed(1, 0, 3)]
    assert applied(*events).consumed == 4
    with pytest.raises(BrokenRuleError, match="without an assignment"):
        applied(*events, is_eager=True)


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([consumed(0, 0, 1)], "without an assignment"),
        ([assigned(1), consumed(0, 0, 1)], "does not own"),
        ([assigned(0), consumed(0, 0, 1), consumed(0, 3, 4)], "continues partition 0 at 3 instead of 2"),
        ([assigned(0), consumed(0, 0, 4), committed(0, 6)], "ahead of its records"),
        ([assigned(0), committed(1, 1)], "does not own"),
        ([assigned(0), consumed(0, 0, 9), committed(0, 10), revoked(), assigned(0), consumed(0, 5, 9)], "before the"),
    ],
    ids=["unassigned", "foreign records", "gap", "commit ahead", "foreign commit", "repeated"],
)
def test_ledger_raises_for_each_broken_rule(events: Sequence[dict[str, Any]], rule: str) -> None:
    """For each rule of Kafka's service, an event that breaks it raises an error."""
    with pytest.raises(BrokenRuleError, match=rule):
        applied(*events)
