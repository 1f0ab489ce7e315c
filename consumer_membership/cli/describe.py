"""`describe`: what a group is, who its members are, and how far they are; as tables, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO

from confluent_kafka import TopicPartition as Partition

from consumer_membership.admin import GroupReport, MemberDescription, PartitionProgress
from consumer_membership.cli.asking import DONE, Asking, answered
from consumer_membership.cli.narration import named
from consumer_membership.cli.tables import number, table
from consumer_membership.types import GroupProtocol, TopicPartition

_PROTOCOLS = {GroupProtocol.CONSUMER: "consumer protocol (KIP-848)", GroupProtocol.CLASSIC: "classic protocol"}
_AWAY = "away"
_KEEPS = "keeps its partitions until its session ends"
_MEMBER_COLUMNS = (
    "MEMBER ID",
    "INSTANCE ID",
    "CLIENT ID",
    "HOST",
    "RACK",
    "PROTOCOL",
    "EPOCH",
    "ASSIGNED",
    "TARGET",
    "SUBSCRIBED",
    "NOTE",
)
_PARTITION_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "OWNER", "NEXT OWNER", "NOTE")
_NUMBERS = frozenset({"PARTITION", "COMMITTED", "END", "LAG", "EPOCH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """Which group to show, and which of its two tables."""

    asking: Asking
    shows_members: bool = True
    shows_offsets: bool = True


def describe(options: DescribeOptions, out: TextIO, err: TextIO) -> int:
    """Show the group on `out`; the exit code. What a broker or the network refuses is one line on `err`."""

    def ask() -> int:
        asking = options.asking
        report = asking.admin().describe(asking.group, with_offsets=options.shows_offsets)
        lines = [as_json(report, options)] if asking.is_json else as_text(report, options)
        out.writelines(f"{line}\n" for line in lines)
        return DONE

    return answered("describe", ask, out, err)


# ---- for people ------------------------------------------------------------------------------------------------------


def as_text(report: GroupReport, options: DescribeOptions) -> Iterator[str]:
    """First what the group is, then its members, then its partitions."""
    yield headline(report, with_lag=options.shows_offsets)
    if options.shows_members and report.group.members:
        yield ""
        yield from table(_MEMBER_COLUMNS, [member_row(member, report) for member in report.group.members], _NUMBERS)
    if options.shows_offsets:
        yield ""
        if report.partitions:
            yield from table(
                _PARTITION_COLUMNS, [_partition_row(partition) for partition in report.partitions], _NUMBERS
            )
        else:
            yield "Nothing is committed, and nobody has partitions."


def headline(report: GroupReport, *, with_lag: bool = True) -> str:
    """The group in one line."""
    group = report.group
    facts = [_PROTOCOLS[group.protocol], group.state]
    if group.epoch is not None:
        catching_up = group.assignment_epoch is not None and group.assignment_epoch < group.epoch
        facts.append(f"epoch {group.epoch}" + (f" (assignment of {group.assignment_epoch})" if catching_up else ""))
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.protocol_type not in ("", "consumer"):
        facts.append(f"protocol type {group.protocol_type}")
    facts.append(f"coordinator {report.coordinator}")
    facts.append(_counted(len(group.members), "member"))
    if with_lag and report.partitions:
        facts.append(f"lag {_lag(report)}")
    return f"Group {group.group_id}: {', '.join(facts)}"


def _lag(report: GroupReport) -> str:
    if report.lag is None:
        return "unknown"
    unknown = sum(partition.lag is None for partition in report.partitions)
    in_some = f" (unknown in {unknown} of {_counted(len(report.partitions), 'partition')})" if unknown else ""
    return f"{report.lag:,}{in_some}"


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def member_row(member: MemberDescription, report: GroupReport | None = None) -> Mapping[str, str]:
    """One member under `_MEMBER_COLUMNS`; its protocol only where it is not its group's."""
    is_foreign = report is not None and member.protocol is not report.group.protocol
    topics = " ".join(sorted(member.topics))
    return {
        "MEMBER ID": member.member_id,
        "INSTANCE ID": member.instance_id or "",
        "CLIENT ID": member.client_id,
        "HOST": member.host,
        "RACK": member.rack_id or "",
        "PROTOCOL": member.protocol.value if is_foreign else "",
        "EPOCH": epoch_of(member),
        "ASSIGNED": _named(member.assignment),
        "TARGET": _target(member),
        "SUBSCRIBED": f"{topics} /{member.pattern}/".strip() if member.pattern else topics,
        "NOTE": _KEEPS if member.is_away else member.note,
    }


def epoch_of(member: MemberDescription) -> str:
    """The member's epoch, or in a word that it is away."""
    return _AWAY if member.is_away else "" if member.epoch is None else str(member.epoch)


def _target(member: MemberDescription) -> str:
    """What the member is to have, where that is something else than it has."""
    if member.target is None or member.target == member.assignment:
        return ""
    return _named(member.target) or "nothing"


def _named(partitions: Iterable[TopicPartition]) -> str:
    return named(Partition(topic, partition) for topic, partition in partitions)


def _partition_row(partition: PartitionProgress) -> Mapping[str, str]:
    return {
        "TOPIC": partition.topic,
        "PARTITION": str(partition.partition),
        "COMMITTED": number(partition.committed),
        "END": number(partition.end),
        "LAG": number(partition.lag),
        "OWNER": partition.owner or "",
        "NEXT OWNER": partition.next_owner or "",
        "NOTE": partition.note,
    }


# ---- for programs ----------------------------------------------------------------------------------------------------


def as_json(report: GroupReport, options: DescribeOptions) -> str:
    """The report as one JSON object; null for what is not known."""
    group, coordinator = report.group, report.coordinator
    told: dict[str, object] = {
        "group_id": group.group_id,
        "protocol": group.protocol.value,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor or None,
        "coordinator": {"id": coordinator.node_id, "host": coordinator.host, "port": coordinator.port},
    }
    if options.shows_members:
        told["members"] = [member_record(member) for member in group.members]
    if options.shows_offsets:
        told["lag"] = report.lag
        told["partitions"] = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "owner": one.owner,
                "next_owner": one.next_owner,
                "note": one.note or None,
            }
            for one in report.partitions
        ]
    return json.dumps(told, indent=2)


def member_record(member: MemberDescription) -> dict[str, object]:
    """One member as JSON has it."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "is_away": member.is_away,
        "protocol": member.protocol.value,
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "assignment": _records(member.assignment),
        "target": None if member.target is None else _records(member.target),
        "note": member.note or None,
    }


def _records(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)]
