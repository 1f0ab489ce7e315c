"""`list` and `lag`: which groups there are, and how far one of them is behind; as tables, or as JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TextIO

from consumer_membership.admin import GroupAdmin, GroupListing, GroupReport, ListedGroup, PartitionProgress
from consumer_membership.cli.groups import DONE, REFUSED, Asking, answered, table, write_lines
from consumer_membership.observe.rates import Position, Rate, Rates
from consumer_membership.types import TopicPartition

_NUMBERS = frozenset({"PARTITION", "PARTITIONS", "COMMITTED", "END", "LAG", "READ/S", "WRITTEN/S", "DRAINED IN"})
_MINUTE_S, _HOUR_S = 60, 3_600


#: The states of groups of all kinds (GroupState.java), as brokers write them.
STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "NotReady",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
#: A longer group id does not widen the other rows.
_WIDEST_ID = 60


# ---- list ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Which groups to list: those in one of these states and of one of these protocols; nothing given: all."""

    config: Mapping[str, object]
    states: frozenset[str] = frozenset()
    protocols: frozenset[str] = frozenset()
    is_json: bool = False
    timeout_s: float | None = None


def list_groups(options: ListOptions, out: TextIO, err: TextIO) -> int:
    """List the groups on `out`; the exit code, 1 if a broker did not tell its own."""

    def ask() -> tuple[Iterable[str], int]:
        asking = Asking(config=options.config, group="", is_json=options.is_json, timeout_s=options.timeout_s)
        listing = asking.admin().list_groups()
        untold = listing.untold.items()
        err.writelines(f"consumer-membership list: the groups of {at} are missing: {why}\n" for at, why in untold)
        text = listed_text(listing, options, cuts=out.isatty())
        lines = listed_json(listing, options).splitlines() if options.is_json else text
        return lines, REFUSED if listing.untold else DONE

    return answered("list", ask, out, err)


def chosen(listing: GroupListing, options: ListOptions) -> tuple[ListedGroup, ...]:
    """The groups that the filters let through; states as brokers write them, upper or lower case."""
    states = {state.lower() for state in options.states}
    return tuple(
        group
        for group in listing.groups
        if not states or (group.state or "").lower() in states
        if not options.protocols or (group.kind or "") in options.protocols
    )


def listed_text(listing: GroupListing, options: ListOptions, *, cuts: bool = False) -> Iterator[str]:
    """A table of the groups. A very long id widens its own row only; `cuts`, for a terminal: it is cut."""
    rows = [
        {
            "GROUP": f"{group.group_id[: _WIDEST_ID - 1]}…"
            if cuts and len(group.group_id) > _WIDEST_ID
            else group.group_id,
            "STATE": group.state or "",
            "PROTOCOL": group.kind or "",
            "PROTOCOL TYPE": "" if group.protocol_type == "consumer" else group.protocol_type,
        }
        for group in chosen(listing, options)
    ]
    if rows:
        yield from table(rows, widest=_WIDEST_ID)
    else:
        is_filtered = options.states or options.protocols
        yield "No such groups." if is_filtered else "The cluster has no groups that this client may see."


def listed_json(listing: GroupListing, options: ListOptions) -> str:
    """The groups as one JSON object; null for what a broker is too old to say."""
    output = {
        "groups": [
            {
                "group_id": group.group_id,
                "state": group.state,
                "protocol": group.kind,
                "protocol_type": group.protocol_type,
            }
            for group in chosen(listing, options)
        ],
        "untold": [{"broker": str(broker), "reason": why} for broker, why in listing.untold.items()],
    }
    return json.dumps(output, indent=2)


# ---- lag -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """Whose lag to show, and whether again and again, until Ctrl-C or `looks` times."""

    asking: Asking
    watches: bool = False
    interval_s: float = 2.0
    looks: int | None = None


def show_lag(options: LagOptions, out: TextIO, err: TextIO, wait: Callable[[float], object] | None = None) -> int:
    """Show the group's lag on `out`; the exit code. While it watches, each look is told with rates."""
    pause = threading.Event().wait if wait is None else wait

    def ask() -> tuple[Iterable[str], int]:
        admin, rates = options.asking.admin(), Rates()
        count = options.looks if options.watches else 1
        looked = 0
        while True:
            lines = list(_look(admin, rates, options))
            looked += 1
            if looked == count:
                return lines, DONE
            write_lines(out, (*lines, *(() if options.asking.is_json else ("",))))
            pause(options.interval_s)

    return answered("lag", ask, out, err)


def _look(admin: GroupAdmin, rates: Rates, options: LagOptions) -> Iterable[str]:
    report = admin.describe(options.asking.group)
    rates.look(time.monotonic(), positions(report))
    if options.asking.is_json:
        return lag_json(report, rates, watches=options.watches).splitlines()
    return lag_text(report, rates)


def positions(report: GroupReport) -> Mapping[TopicPartition, Position]:
    """Where the group is in each partition."""
    return {
        TopicPartition(one.topic, one.partition): Position(committed=one.committed, end=one.end)
        for one in report.partitions
    }


def lag_text(report: GroupReport, rates: Rates) -> Iterator[str]:
    """The sum, each topic's share of it, and the partitions, the one that is furthest behind first."""
    group = report.group
    lag = "unknown" if report.lag is None else f"{report.lag:,}"
    yield f"Group {group.group_id}: {group.state}, lag {lag}{_pace(rates.of_all(), report.lag)}"
    if not report.partitions:
        return
    by_topic: dict[str, list[PartitionProgress]] = {}
    for one in report.partitions:
        by_topic.setdefault(one.topic, []).append(one)
    if len(by_topic) > 1:
        yield ""
        yield from table([_topic_row(topic, members) for topic, members in by_topic.items()], _NUMBERS)
    yield ""
    yield from table([_partition_row(one, rates) for one in worst_first(report.partitions)], _NUMBERS)


def worst_first(partitions: Sequence[PartitionProgress]) -> list[PartitionProgress]:
    """The largest lag first, then those whose lag is not known; otherwise as they come."""
    return sorted(partitions, key=lambda one: (one.lag is None, -(one.lag or 0)))


def _topic_row(topic: str, partitions: Sequence[PartitionProgress]) -> Mapping[str, str]:
    known = [one.lag for one in partitions if one.lag is not None]
    return {"TOPIC": topic, "PARTITIONS": str(len(partitions)), "LAG": f"{sum(known):,}" if known else ""}


def _partition_row(one: PartitionProgress, rates: Rates) -> Mapping[str, str]:
    partition = TopicPartition(one.topic, one.partition)
    rate = rates.of(partition)
    stands_s = rates.still_for_s(partition)
    return {
        "TOPIC": one.topic,
        "PARTITION": str(one.partition),
        "COMMITTED": "" if one.committed is None else f"{one.committed:,}",
        "END": "" if one.end is None else f"{one.end:,}",
        "LAG": "" if one.lag is None else f"{one.lag:,}",
        "READ/S": "" if rate is None else f"{rate.read:,.1f}",
        "WRITTEN/S": "" if rate is None else f"{rate.written:,.1f}",
        "DRAINED IN": "" if rate is None or one.lag is None else duration(rate.drained_in_s(one.lag)),
        "OWNER": one.owner or "",
        "NOTE": one.note or (f"stands still for {duration(stands_s)}" if stands_s else ""),
    }


def _pace(rate: Rate | None, lag: int | None) -> str:
    if rate is None:
        return ""
    until = "" if lag is None else f", drained in {duration(rate.drained_in_s(lag))}"
    return f", reads {rate.read:,.1f}/s, written {rate.written:,.1f}/s{until}"


def duration(seconds: float | None) -> str:
    """Some seconds for people: `42 s`, `3 min 5 s`, `2 h 7 min`; None: `never`."""
    if seconds is None:
        return "never"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S:,} h {whole % _HOUR_S // _MINUTE_S} min"


def lag_json(report: GroupReport, rates: Rates, *, watches: bool) -> str:
    """The lag as one JSON object, on one line where there will be more of them; null for what is not known."""
    rate = rates.of_all()
    output: dict[str, object] = {
        "group_id": report.group.group_id,
        "state": report.group.state,
        "lag": report.lag,
        "rate": None if rate is None else asdict(rate),
        "drained_in_s": None if rate is None or report.lag is None else rate.drained_in_s(report.lag),
        "partitions": [_partition_record(one, rates) for one in report.partitions],
    }
    return json.dumps(output, indent=None if watches else 2)


def _partition_record(one: PartitionProgress, rates: Rates) -> dict[str, object]:
    partition = TopicPartition(one.topic, one.partition)
    rate = rates.of(partition)
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
        "owner": one.owner,
        "rate": None if rate is None else asdict(rate),
        "still_for_s": rates.still_for_s(partition),
        "note": one.note or None,
    }
