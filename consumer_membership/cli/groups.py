"""`describe` and `remove-members`: a group, its members and how far they are; as tables, or as one JSON object."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TextIO

from consumer_membership.admin import GroupAdmin, GroupReport, MemberDescription, PartitionProgress, Removal
from consumer_membership.cli.narration import named
from consumer_membership.demo.screen import discard
from consumer_membership.errors import ConfigurationError, MembershipError
from consumer_membership.text import printable
from consumer_membership.types import GroupProtocol, TopicPartition

#: The exit codes: all went well; a broker or the network refused; the arguments are wrong; Ctrl-C, as shells have it.
DONE, REFUSED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_PROTOCOLS = {GroupProtocol.CONSUMER: "consumer protocol (KIP-848)", GroupProtocol.CLASSIC: "classic protocol"}
_AWAY = "away"
_KEEPS = "keeps its partitions until its session ends"
#: The columns that are numbers.
_NUMBERS = frozenset({"PARTITION", "COMMITTED", "END", "LAG", "EPOCH"})
_GAP = "  "
#: What stands where nothing is known.
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Which cluster to ask about which group, and how long; None: the default."""

    config: Mapping[str, object]
    group: str
    is_json: bool = False
    timeout_s: float | None = None

    def admin(self) -> GroupAdmin:
        """Who asks.

        Raises:
            ConfigurationError: the configuration cannot work.
        """
        if self.timeout_s is None:
            return GroupAdmin(self.config)
        return GroupAdmin(self.config, timeout_s=self.timeout_s)


def answered(command: str, ask: Callable[[], tuple[Iterable[str], int]], out: TextIO, err: TextIO) -> int:
    """Write the lines of `ask` to `out`; its exit code. What it raises is one line on `err`.

    Names of groups, clients and hosts are texts of strangers: each line is escaped so that it controls no terminal.
    """
    # What failed on the way is in the error, if it mattered in the end.
    logging.getLogger("consumer_membership").addHandler(logging.NullHandler())
    try:
        lines, code = ask()
        write_lines(out, lines)
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain about the same pipe once more at its exit.
        discard(out)
        return DONE
    except OSError as error:
        # The network's are translated: it is the output's, as of a full disk.
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
    """Write each as one printable line."""
    out.writelines(f"{printable(line)}\n" for line in lines)
    out.flush()


# ---- describe --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """Which group to show, and which of its two tables."""

    asking: Asking
    shows_members: bool = True
    shows_offsets: bool = True


def describe(options: DescribeOptions, out: TextIO, err: TextIO) -> int:
    """Show the group on `out`; the exit code. What a broker or the network refuses is one line on `err`."""

    def ask() -> tuple[Iterable[str], int]:
        asking = options.asking
        report = asking.admin().describe(asking.group, with_offsets=options.shows_offsets)
        as_json = asking.is_json
        return described_json(report, options).splitlines() if as_json else described_text(report, options), DONE

    return answered("describe", ask, out, err)


def described_text(report: GroupReport, options: DescribeOptions) -> Iterator[str]:
    """First what the group is, then its members, then its partitions."""
    yield _headline(report, with_lag=options.shows_offsets)
    if options.shows_members and report.group.members:
        yield ""
        yield from table([_member_row(member, report) for member in report.group.members], _NUMBERS)
    if options.shows_offsets:
        yield ""
        if report.partitions:
            yield from table(list(map(_partition_row, report.partitions)), _NUMBERS)
        else:
            yield "Nothing is committed, and nobody has partitions."


def _headline(report: GroupReport, *, with_lag: bool) -> str:
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


def _member_row(member: MemberDescription, report: GroupReport) -> Mapping[str, str]:
    """One member; its protocol only where it is not its group's."""
    is_foreign = member.protocol is not report.group.protocol
    topics = " ".join(sorted(member.topics))
    return {
        "MEMBER ID": member.member_id,
        "INSTANCE ID": member.instance_id or "",
        "CLIENT ID": member.client_id,
        "HOST": member.host,
        "RACK": member.rack_id or "",
        "PROTOCOL": member.protocol.value if is_foreign else "",
        "EPOCH": _epoch_of(member),
        "ASSIGNED": named(member.assignment),
        "TARGET": _target(member),
        "SUBSCRIBED": f"{topics} /{member.pattern}/".strip() if member.pattern else topics,
        "NOTE": _KEEPS if member.is_away else member.note,
    }


def _epoch_of(member: MemberDescription) -> str:
    """The member's epoch, or in a word that it is away."""
    return _AWAY if member.is_away else "" if member.epoch is None else str(member.epoch)


def _target(member: MemberDescription) -> str:
    """What the member is to have, where that is something else than it has."""
    if member.target is None or member.target == member.assignment:
        return ""
    return named(member.target) or "nothing"


def _partition_row(partition: PartitionProgress) -> Mapping[str, str]:
    return {
        "TOPIC": partition.topic,
        "PARTITION": str(partition.partition),
        "COMMITTED": _number(partition.committed),
        "END": _number(partition.end),
        "LAG": _number(partition.lag),
        "OWNER": partition.owner or "",
        "NEXT OWNER": partition.next_owner or "",
        "NOTE": partition.note,
    }


def described_json(report: GroupReport, options: DescribeOptions) -> str:
    """The report as one JSON object; null for what is not known."""
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
        output["partitions"] = [asdict(one) | {"note": one.note or None} for one in report.partitions]
    return json.dumps(output, indent=2)


def _member_record(member: MemberDescription) -> dict[str, object]:
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


# ---- remove-members --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOptions:
    """Whom to remove from which group."""

    asking: Asking
    instance_ids: tuple[str, ...] = ()
    member_ids: tuple[str, ...] = ()
    everyone: bool = False
    reason: str | None = None
    is_dry_run: bool = False


def remove_members(options: RemovalOptions, out: TextIO, err: TextIO) -> int:
    """Remove the members and show what became of each on `out`; the exit code, 1 if any of them failed."""

    def ask() -> tuple[Iterable[str], int]:
        asking = options.asking
        removals = asking.admin().remove_members(
            asking.group,
            instance_ids=options.instance_ids,
            member_ids=options.member_ids,
            everyone=options.everyone,
            reason=options.reason,
            dry_run=options.is_dry_run,
        )
        code = DONE if all(removal.succeeded for removal in removals) else REFUSED
        as_json = asking.is_json
        return removals_json(removals, options).splitlines() if as_json else removals_text(removals, options), code

    return answered("remove-members", ask, out, err)


def removals_text(removals: Sequence[Removal], options: RemovalOptions) -> Iterator[str]:
    """First the sum, then each member, then what follows for whom."""
    if not removals:
        yield f"Group {options.asking.group}: no members, nobody to remove"
        return
    done = sum(removal.succeeded for removal in removals)
    act = "would be removed (dry run, nothing was done)" if options.is_dry_run else "removed"
    yield f"Group {options.asking.group}: {done} of {len(removals)} {act}"
    yield ""
    yield from table([_removal_row(removal) for removal in removals])
    messages: dict[str, list[str]] = {}
    for removal in removals:
        if removal.message:
            messages.setdefault(removal.message, []).append(_asked(removal))
    if messages:
        yield ""
    for message, who in messages.items():
        yield f"{', '.join(who)}: {message}"


def _asked(removal: Removal) -> str:
    return removal.asked.member_id or removal.asked.instance_id or ""


def _removal_row(removal: Removal) -> dict[str, str]:
    member = removal.member
    row = {"ASKED FOR": _asked(removal), "RESULT": removal.outcome.value}
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
    """The results as one JSON object."""
    results = [
        {
            "asked": {"member_id": removal.asked.member_id or None, "instance_id": removal.asked.instance_id},
            "outcome": removal.outcome.name.lower(),
            "succeeded": removal.succeeded,
            "message": removal.message or None,
            "member": None if removal.member is None else _member_record(removal.member),
        }
        for removal in removals
    ]
    output = {"group_id": options.asking.group, "dry_run": options.is_dry_run, "results": results}
    return json.dumps(output, indent=2)


# ---- tables ----------------------------------------------------------------------------------------------------------


def table(
    rows: Sequence[Mapping[str, str]], numbers: frozenset[str] = frozenset(), widest: int | None = None
) -> list[str]:
    """The rows as lines under their keys; columns in which no row has anything are left out; `numbers` to the right.

    A cell that is longer than `widest` moves the rest of its own row only.
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
    """The number with separators, empty where there is none."""
    return "" if value is None else f"{value:,}"
