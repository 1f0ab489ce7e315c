"""The events that a group's verifiable consumers have reported, and the rules that each event must follow.

The rules are those of the service `verifiable_consumer.py` in Kafka's system tests. A member reports records only while
it has an assignment, and only of its own partitions. While a member owns a partition, the offsets of its records have
no gap. A member commits no offset beyond its reported records. No member begins before a committed offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class MemberState(Enum):
    """The state of a verifiable consumer, from its latest event."""

    STARTED = auto()
    DEAD = auto()
    REBALANCING = auto()
    JOINED = auto()


class BrokenRuleError(AssertionError):
    """An event breaks a rule; the message names the member, the rule and the event."""


@dataclass(slots=True)
class MemberLedger:
    """The events of one member, from all of its processes."""

    name: str
    state: MemberState = MemberState.DEAD
    assignment: set[int] = field(default_factory=set)
    position: dict[int, int] = field(default_factory=dict)
    assigned_count: int = 0
    revoked_count: int = 0
    consumed: int = 0

    def end(self) -> None:
        """Forget the assignment of a process that has ended."""
        self.state = MemberState.DEAD
        self.assignment = set()
        self.position = {}


@dataclass(slots=True)
class GroupLedger:
    """The events of all members of a group, in the order in which they are read."""

    position: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)

    def apply(self, member: MemberLedger, event: Mapping[str, Any], *, is_eager: bool) -> None:
        """Apply one event of a member.

        Raises:
            BrokenRuleError: The event breaks a rule.
        """
        match event["name"]:
            case "startup_complete":
                member.state = MemberState.STARTED
            case "shutdown_complete":
                member.end()
            case "partitions_assigned":
                assigned = _partitions(event)
                member.assigned_count += 1
                member.state = MemberState.JOINED
                member.assignment = assigned if is_eager else member.assignment | assigned
            case "partitions_revoked":
                member.revoked_count += 1
                if is_eager:
                    member.state = MemberState.REBALANCING
                else:
                    # The member may report records of its other partitions meanwhile (KIP-429, KIP-848).
                    member.assignment -= _partitions(event)
                member.position = {}
            case "records_consumed":
                self._records(member, event)
            case "offsets_committed" if event["success"]:
                self._offsets(member, event)
            case _:  # failed commits, single records, and events of some clients only
                pass

    def _records(self, member: MemberLedger, event: Mapping[str, Any]) -> None:
        if member.state is not MemberState.JOINED:
            raise BrokenRuleError(f"{member.name} reports records without an assignment ({member.state.name}): {event}")
        for one in event["partitions"]:
            partition, first, last = one["partition"], one["minOffset"], one["maxOffset"]
            if partition not in member.assignment:
                raise BrokenRuleError(
                    f"{member.name} reports records of partition {partition}, which it does not own: {event}"
                )
            if member.position.get(partition, first) != first:
                raise BrokenRuleError(
                    f"{member.name} continues partition {partition} at {first} instead of {member.position[partition]}"
                )
            if self.committed.get(partition, first) > first:
                raise BrokenRuleError(
                    f"{member.name} reads partition {partition} at {first}, before the committed offset "
                    f"{self.committed[partition]}"
                )
            member.position[partition] = self.position[partition] = last + 1
        member.consumed += event["count"]

    def _offsets(self, member: MemberLedger, event: Mapping[str, Any]) -> None:
        for one in event["offsets"]:
            partition, offset = one["partition"], one["offset"]
            if partition not in member.assignment:
                raise BrokenRuleError(f"{member.name} commits partition {partition}, which it does not own: {event}")
            if member.position.get(partition, -1) < offset:
                raise BrokenRuleError(
                    f"{member.name} commits {offset} of partition {partition}, ahead of its records: {event}"
                )
            self.committed[partition] = offset


def _partitions(event: Mapping[str, Any]) -> set[int]:
    return {one["partition"] for one in event["partitions"]}
