"""The rules for the events of verifiable consumers: a ledger that accepts everything would prove nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kafkatest.ledger import BrokenRuleError, GroupLedger, MemberLedger, MemberState


def assigned(*numbers: int) -> dict[str, Any]:
    """Return the event of an assignment."""
    return {"name": "partitions_assigned", "partitions": [{"topic": "t", "partition": number} for number in numbers]}


def revoked(*numbers: int) -> dict[str, Any]:
    """Return the event of a revocation."""
    return {"name": "partitions_revoked", "partitions": [{"topic": "t", "partition": number} for number in numbers]}


def consumed(partition: int, first: int, last: int) -> dict[str, Any]:
    """Return the event of a batch."""
    some = {"topic": "t", "partition": partition, "minOffset": first, "maxOffset": last}
    return {"name": "records_consumed", "count": last - first + 1, "partitions": [some]}


def committed(partition: int, offset: int) -> dict[str, Any]:
    """Return the event of a successful commit."""
    return {
        "name": "offsets_committed",
        "success": True,
        "offsets": [{"topic": "t", "partition": partition, "offset": offset}],
    }


def take(*events: dict[str, Any], is_eager: bool = False) -> MemberLedger:
    """Apply events of one member in a group of its own."""
    member, group = MemberLedger("m"), GroupLedger()
    for event in events:
        group.take(member, event, is_eager=is_eager)
    return member


def test_ledger_accepts_a_correct_member() -> None:
    """Records in order, committed afterwards, and partitions that come and go."""
    events = [assigned(0), consumed(0, 0, 4), committed(0, 5), consumed(0, 5, 5), assigned(1), revoked(0)]
    member = take(*events)
    assert (member.assignment, member.consumed, member.state) == ({1}, 6, MemberState.JOINED)
    assert (member.assigned_count, member.revoked_count) == (2, 1)


def test_eager_assignment_replaces_the_former_one() -> None:
    """An eager member receives its complete assignment; an incremental one receives the difference."""
    assert take(assigned(0, 1), assigned(1), is_eager=True).assignment == {1}
    assert take(assigned(0), assigned(1)).assignment == {0, 1}


def test_incremental_member_reports_records_between_revocation_and_assignment() -> None:
    """Its other partitions are not affected: cooperative classic members and members of the consumer protocol."""
    events = [assigned(0, 1), revoked(0), consumed(1, 0, 3)]
    assert take(*events).consumed == 4
    with pytest.raises(BrokenRuleError, match="without an assignment"):
        take(*events, is_eager=True)


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([consumed(0, 0, 1)], "without an assignment"),
        ([assigned(1), consumed(0, 0, 1)], "does not own"),
        ([assigned(0), consumed(0, 0, 1), consumed(0, 3, 4)], "continues partition 0 at 3, not 2"),
        ([assigned(0), consumed(0, 0, 4), committed(0, 6)], "ahead of its records"),
        ([assigned(0), committed(1, 1)], "does not own"),
        ([assigned(0), consumed(0, 0, 9), committed(0, 10), revoked(), assigned(0), consumed(0, 5, 9)], "before the"),
    ],
    ids=["unassigned", "foreign records", "gap", "commit ahead", "foreign commit", "repeated"],
)
def test_ledger_raises_for_each_broken_rule(events: Sequence[dict[str, Any]], rule: str) -> None:
    """Each rule of Kafka's service is checked."""
    with pytest.raises(BrokenRuleError, match=rule):
        take(*events)
