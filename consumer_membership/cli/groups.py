"""The commands `describe` and `remove-members`, and what all query commands share: exit codes, errors and tables."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from consumer_membership.admin import GroupAdmin, GroupReport, MemberDescription, PartitionProgress, Removal
from consumer_membership.cli.narration import named
from consumer_membership.demo.screen import discard
from consumer_membership.errors import ConfigurationError, MembershipError
from consumer_membership.text import printable
from consumer_membership.types import GroupProtocol, TopicPartition

#: The exit codes: success; a request failed; invalid arguments; Ctrl-C (128 + SIGINT, as in shells).
DONE, REFUSED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_PROTOCOLS = {GroupProtocol.CONSUMER: "consumer protocol (KIP-848)", GroupProtocol.CLASSIC: "classic protocol"}
_AWAY = "away"
_KEEPS = "keeps its partitions until its session ends"
#: The columns with numbers, which are right-aligned.
_NUMBERS = frozenset({"PARTITION", "COMMITTED", "END", "LAG", "FINISHED BEYOND", "EPOCH"})
_GAP = "  "
#: The text of a cell without a value.
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuery:
    """The cluster, the group and the timeout of a query; the timeout None is the default of `GroupAdmin`."""

    config: Mapping[str, object]
    group: str
    is_json: bool = False
    timeout_s: float | None = None

    def admin(self) -> GroupAdmin:
        """Return an admin client for the cluster.

        Raises:
            ConfigurationError: The configuration is invalid.
        """
        if self.timeout_s is None:
            return GroupAdmin(self.config)
        return GroupAdmin(self.config, timeout_s=self.timeout_s)


def run_query(command: str, query: Callable[[], tuple[Iterable[str], int]], out: TextIO, err: TextIO) -> int:
    """Write the lines that `query` returns to `out` and return its exit code; write an error as one line to `err`.

    Names of groups, clients and hosts come from other systems, so control characters are escaped.
    """
    # Failed attempts are not logged; the final error contains the last one.
    logging.getLogger("consumer_membership").addHandler(logging.NullHandler())
    try:
        lines, code = query()
        write_lines(out, lines)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would report the closed pipe again at exit.
        discard(out)
        return DONE
    except OSError as error:
        # Network errors are MembershipErrors, so this is an error of the output, such as a full disk.
        discard(out)
        err.write(f"consumer-membership {command}: {error.strerror or error}\n")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except MembershipError as error:
        err.write(f"consumer-membership {command}: {printable(str(error))}\n")
        return MISUSED if isinstance(error, ConfigurationError) else REFUSED
    return code


def write_lines(out: TextIO, lines: Iterable[str]) -> None:
    """Write each line with control characters escaped."""
    out.writelines(f"{printable(line)}\n" for line in lines)
    out.flush()


# ---- describe --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """The group to show, and which of the two tables to print."""

    query: GroupQuery
    shows_members: bool = True
    shows_offsets: bool = True


def describe(options: DescribeOptions, out: TextIO, err: TextIO) -> int:
    """Print the group to `out` and return the exit code; a failed request is one line on `err`."""

    def fetch() -> tuple[Iterable[str], int]:
        query = options.query
        report = query.admin().describe(query.group, with_offsets=options.shows_offsets)
        as_json = query.is_json
        return described_json(report, options).splitlines() if as_json else described_text(report, options), DONE

    return run_query("describe", fetch, out, err)


def described_text(report: GroupReport, options: DescribeOptions) -> Iterator[str]:
    """Yield a headline, the table of members and the table of partitions."""
    yield _headline(report, with_lag=options.shows_offsets)
    if options.shows_members and report.group.members:
        yield ""
        yield from table([_member_row(member, report) for member in report.group.members], _NUMBERS)
    if options.shows_offsets:
        yield ""
        if report.partitions:
            yield from table(list(map(_partition_row, report.partitions)), _NUMBERS)
        else:
            yield "The group has no committed offsets and no assigned partitions."


def _headline(report: GroupReport, *, with_lag: bool) -> str:
    """Return the group's type, state and lag in one line."""
    group = report.group
    facts = [_PROTOCOLS[group.protocol], group.state]
    if group.epoch is not None:
        catching_up = group.assignment_epoch is not None and group.assignment_epoch < group.epoch
        facts.append(f"epoch {group.epoch}" + (f" (assignment epoch {group.assignment_epoch})" if catching_up else ""))
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
    suffix = f" (unknown in {unknown} of {_counted(len(report.partitions), 'partition')})" if unknown else ""
    return f"{report.lag:,}{suffix}"


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _member_row(member: MemberDescription, report: GroupReport) -> Mapping[str, str]:
    """Return a member's row; the protocol is shown only if it differs from the group's protocol."""
    differs = member.protocol is not report.group.protocol
    topics = " ".join(sorted(member.topics))
    return {
        "MEMBER ID": member.member_id,
        "INSTANCE ID": member.instance_id or "",
        "CLIENT ID": member.client_id,
        "HOST": member.host,
        "RACK": member.rack_id or "",
        "PROTOCOL": member.protocol.value if differs else "",
        "EPOCH": _epoch_of(member),
        "ASSIGNED": named(member.assignment),
        "TARGET": _target(member),
        "SUBSCRIBED": f"{topics} /{member.pattern}/".strip() if member.pattern else topics,
        "NOTE": _KEEPS if member.is_away else member.note,
    }


def _epoch_of(member: MemberDescription) -> str:
    """Return the member's epoch, or `away` for a static member that has left temporarily."""
    return _AWAY if member.is_away else "" if member.epoch is None else str(member.epoch)


def _target(member: MemberDescription) -> str:
    """Return the target assignment if it differs from the current assignment."""
    if member.target is None or member.target == member.assignment:
        return ""
    return named(member.target) or "none"


def _partition_row(partition: PartitionProgress) -> Mapping[str, str]:
    return {
        "TOPIC": partition.topic,
        "PARTITION": str(partition.partition),
        "COMMITTED": _number(partition.committed),
        "END": _number(partition.end),
        "LAG": _number(partition.lag),
        "FINISHED BEYOND": _number(partition.finished_beyond or None),
        "OWNER": partition.owner or "",
        "NEXT OWNER": partition.next_owner or "",
        "NOTE": partition.note,
    }


def described_json(report: GroupReport, options: DescribeOptions) -> str:
    """Return the report as one JSON object; unknown values are null."""
    group, coordinator = report.group, report.coordinator
    output: dict[str, object] = {
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
        output["members"] = [_member_record(member) for member in group.members]
    if options.shows_offsets:
        output["lag"] = report.lag
        output["partitions"] = [partition_record(one) for one in report.partitions]
    return json.dumps(output, indent=2)


def partition_record(partition: PartitionProgress) -> dict[str, object]:
    """Return a partition as a JSON object."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": partition.committed,
        "end_offset": partition.end,
        "lag": partition.lag,
        "finished_beyond_committed": partition.finished_beyond,
        "oldest_unfinished_offset": partition.committed if partition.finished_beyond else None,
        "owner": partition.owner,
        "next_owner": partition.next_owner,
        "note": partition.note or None,
    }


def _member_record(member: MemberDescription) -> dict[str, object]:
    """Return a member as a JSON object."""
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
        "target_assignment": None if member.target is None else _records(member.target),
        "note": member.note or None,
    }


def _records(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)]


# ---- remove-members --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOptions:
    """The members to remove, and their group."""

    query: GroupQuery
    instance_ids: tuple[str, ...] = ()
    member_ids: tuple[str, ...] = ()
    #: Member ids by instance id.
    static_members: Mapping[str, str] = field(default_factory=dict)
    all_members: bool = False
    reason: str | None = None
    is_dry_run: bool = False


def remove_members(options: RemovalOptions, out: TextIO, err: TextIO) -> int:
    """Remove the members, print each result to `out`, and return the exit code: 1 if a member was not removed."""

    def remove() -> tuple[Iterable[str], int]:
        query = options.query
        removals = query.admin().remove_members(
            query.group,
            instance_ids=options.instance_ids,
            member_ids=options.member_ids,
            static_members=options.static_members,
            all_members=options.all_members,
            reason=options.reason,
            dry_run=options.is_dry_run,
        )
        code = DONE if all(removal.succeeded for removal in removals) else REFUSED
        as_json = query.is_json
        return removals_json(removals, options).splitlines() if as_json else removals_text(removals, options), code

    return run_query("remove-members", remove, out, err)


def removals_text(removals: Sequence[Removal], options: RemovalOptions) -> Iterator[str]:
    """Yield a summary, a table with the result of each member, and the messages with the members they apply to."""
    if not removals:
        yield f"Group {options.query.group}: the group has no members"
        return
    done = sum(removal.succeeded for removal in removals)
    act = "would be removed (dry run: no member was removed)" if options.is_dry_run else "removed"
    yield f"Group {options.query.group}: {done} of {_counted(len(removals), 'member')} {act}"
    yield ""
    yield from table([_removal_row(removal) for removal in removals])
    messages: dict[str, list[str]] = {}
    for removal in removals:
        if removal.message:
            messages.setdefault(removal.message, []).append(_requested(removal))
    if messages:
        yield ""
    for message, members in messages.items():
        yield f"{', '.join(members)}: {message}"


def _requested(removal: Removal) -> str:
    requested = removal.requested
    return " = ".join(one for one in (requested.instance_id, requested.member_id) if one)


def _removal_row(removal: Removal) -> dict[str, str]:
    member = removal.member
    row = {"REQUESTED ID": _requested(removal), "RESULT": removal.outcome.value}
    if member is None:
        return row
    return row | {
        "MEMBER ID": member.member_id,
        "INSTANCE ID": member.instance_id or "",
        "CLIENT ID": member.client_id,
        "HOST": member.host,
        "EPOCH": _epoch_of(member),
    }


def removals_json(removals: Sequence[Removal], options: RemovalOptions) -> str:
    """Return the results as one JSON object."""
    results = [
        {
            "requested": {
                "member_id": removal.requested.member_id or None,
                "instance_id": removal.requested.instance_id,
            },
            "outcome": removal.outcome.name.lower(),
            "succeeded": removal.succeeded,
            "message": removal.message or None,
            "member": None if removal.member is None else _member_record(removal.member),
        }
        for removal in removals
    ]
    output = {"group_id": options.query.group, "dry_run": options.is_dry_run, "results": results}
    return json.dumps(output, indent=2)


# ---- tables ----------------------------------------------------------------------------------------------------------


def table(
    rows: Sequence[Mapping[str, str]], numbers: frozenset[str] = frozenset(), widest: int | None = None
) -> list[str]:
    """Return a header and the rows as aligned lines; empty columns are omitted and `numbers` are right-aligned.

    A cell longer than `widest` shifts only the rest of its own row.
    """
    columns = dict.fromkeys(column for row in rows for column in row)
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    lines = [{column: column for column in shown}, *rows]
    widths = {column: max(len(line.get(column) or _UNKNOWN) for line in lines) for column in shown}
    if widest is not None:
        widths = {column: min(width, widest) for column, width in widths.items()}
    texts = ([(column, line.get(column) or _UNKNOWN) for column in shown] for line in lines)
    return [
        _GAP.join(text.rjust(widths[c]) if c in numbers else text.ljust(widths[c]) for c, text in line).rstrip()
        for line in texts
    ]


def _number(value: int | None) -> str:
    """Return the number with thousands separators, or an empty string for None."""
    return "" if value is None else f"{value:,}"
