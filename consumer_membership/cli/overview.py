"""The commands `list` and `lag`: the groups of a cluster, and the lag of one group, as tables or JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from consumer_membership.admin import GroupAdmin, GroupListing, GroupReport, ListedGroup, PartitionProgress
from consumer_membership.cli.groups import DONE, REFUSED, GroupQuery, partition_record, run_query, table, write_lines
from consumer_membership.observe.rates import Position, Rate, Rates
from consumer_membership.types import TopicPartition

_NUMBERS = frozenset(
    {"PARTITION", "PARTITIONS", "COMMITTED", "END", "LAG", "FINISHED BEYOND", "CONSUMED/S", "PRODUCED/S", "DRAINED IN"}
)
_MINUTE_S, _HOUR_S = 60, 3_600


#: The states of groups of all types (GroupState.java), spelled as by brokers.
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
#: A longer group id does not widen the other rows, in characters.
_WIDEST_ID = 60


# ---- list ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The states and types of the groups to list; an empty set means all."""

    config: Mapping[str, object]
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    is_json: bool = False
    timeout_s: float | None = None


def list_groups(options: ListOptions, out: TextIO, err: TextIO) -> int:
    """Print the groups to `out` and return the exit code: 1 if a broker did not return its groups."""

    def fetch() -> tuple[Iterable[str], int]:
        query = GroupQuery(config=options.config, group="", is_json=options.is_json, timeout_s=options.timeout_s)
        listing = query.admin().list_groups()
        errors = listing.errors.items()
        err.writelines(
            f"consumer-membership list: broker {broker} did not return its groups: {error}\n"
            for broker, error in errors
        )
        text = listed_text(listing, options, cuts=out.isatty())
        lines = listed_json(listing, options).splitlines() if options.is_json else text
        return lines, REFUSED if listing.errors else DONE

    return run_query("list", fetch, out, err)


def chosen(listing: GroupListing, options: ListOptions) -> tuple[ListedGroup, ...]:
    """Return the groups that match the filters; states match in upper and lower case."""
    states = {state.lower() for state in options.states}
    return tuple(
        group
        for group in listing.groups
        if not states or (group.state or "").lower() in states
        if not options.types or (group.kind or "") in options.types
    )


def listed_text(listing: GroupListing, options: ListOptions, *, cuts: bool = False) -> Iterator[str]:
    """Yield the table of groups; a very long group id widens only its own row, or is cut if `cuts` (on a terminal)."""
    rows = [
        {
            "GROUP": f"{group.group_id[: _WIDEST_ID - 1]}…"
            if cuts and len(group.group_id) > _WIDEST_ID
            else group.group_id,
            "STATE": group.state or "",
            "TYPE": group.kind or "",
            "PROTOCOL TYPE": "" if group.protocol_type == "consumer" else group.protocol_type,
        }
        for group in chosen(listing, options)
    ]
    if rows:
        yield from table(rows, widest=_WIDEST_ID)
    else:
        is_filtered = options.states or options.types
        yield "No groups match." if is_filtered else "The cluster has no groups that this client may describe."


def listed_json(listing: GroupListing, options: ListOptions) -> str:
    """Return the groups as one JSON object; values that an older broker does not report are null."""
    output = {
        "groups": [
            {
                "group_id": group.group_id,
                "state": group.state,
                "type": group.kind,
                "protocol_type": group.protocol_type,
            }
            for group in chosen(listing, options)
        ],
        "errors": [{"broker": str(broker), "error": error} for broker, error in listing.errors.items()],
    }
    return json.dumps(output, indent=2)


# ---- lag -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """The group, and whether to repeat until Ctrl-C or until `samples` samples were printed."""

    query: GroupQuery
    watches: bool = False
    interval_s: float = 2.0
    samples: int | None = None


def show_lag(options: LagOptions, out: TextIO, err: TextIO, wait: Callable[[float], object] | None = None) -> int:
    """Print the group's lag to `out` and return the exit code; repeated samples include rates."""
    pause = threading.Event().wait if wait is None else wait

    def sample() -> tuple[Iterable[str], int]:
        admin, rates = options.query.admin(), Rates()
        count = options.samples if options.watches else 1
        taken = 0
        while True:
            lines = list(_sample(admin, rates, options))
            taken += 1
            if taken == count:
                return lines, DONE
            write_lines(out, (*lines, *(() if options.query.is_json else ("",))))
            pause(options.interval_s)

    return run_query("lag", sample, out, err)


def _sample(admin: GroupAdmin, rates: Rates, options: LagOptions) -> Iterable[str]:
    report = admin.describe(options.query.group)
    rates.add(time.monotonic(), positions(report))
    if options.query.is_json:
        return lag_json(report, rates, watches=options.watches).splitlines()
    return lag_text(report, rates)


def positions(report: GroupReport) -> Mapping[TopicPartition, Position]:
    """Return the committed offset and the end offset of each partition."""
    return {
        TopicPartition(one.topic, one.partition): Position(
            committed=one.committed, end=one.end, finished_beyond=one.finished_beyond
        )
        for one in report.partitions
    }


def lag_text(report: GroupReport, rates: Rates) -> Iterator[str]:
    """Yield the total lag, the lag of each topic if there are several, and the partitions, largest lag first."""
    group = report.group
    lag = "unknown" if report.lag is None else f"{report.lag:,}"
    yield f"Group {group.group_id}: {group.state}, lag {lag}{_pace(rates.of_all(), report.remaining)}"
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
    """Return the partitions sorted by lag, largest first and unknown last."""
    return sorted(partitions, key=lambda one: (one.lag is None, -(one.lag or 0)))


def _topic_row(topic: str, partitions: Sequence[PartitionProgress]) -> Mapping[str, str]:
    known = [one.lag for one in partitions if one.lag is not None]
    return {"TOPIC": topic, "PARTITIONS": str(len(partitions)), "LAG": f"{sum(known):,}" if known else ""}


def _partition_row(one: PartitionProgress, rates: Rates) -> Mapping[str, str]:
    partition = TopicPartition(one.topic, one.partition)
    rate = rates.of(partition)
    stalled_s = rates.stalled_for_s(partition)
    return {
        "TOPIC": one.topic,
        "PARTITION": str(one.partition),
        "COMMITTED": "" if one.committed is None else f"{one.committed:,}",
        "END": "" if one.end is None else f"{one.end:,}",
        "LAG": "" if one.lag is None else f"{one.lag:,}",
        "FINISHED BEYOND": f"{one.finished_beyond:,}" if one.finished_beyond else "",
        "CONSUMED/S": "" if rate is None else f"{rate.consumed:,.1f}",
        "PRODUCED/S": "" if rate is None else f"{rate.produced:,.1f}",
        "DRAINED IN": "" if rate is None or one.remaining is None else duration(rate.drained_in_s(one.remaining)),
        "OWNER": one.owner or "",
        "NOTE": one.note or (f"stalled for {duration(stalled_s)}" if stalled_s else ""),
    }


def _pace(rate: Rate | None, lag: int | None) -> str:
    if rate is None:
        return ""
    until = "" if lag is None else f", {drain_time(rate, lag)}"
    return f", consumed {rate.consumed:,.1f}/s, produced {rate.produced:,.1f}/s{until}"


def drain_time(rate: Rate, lag: int) -> str:
    """Return when the lag will be zero at constant rates."""
    seconds = rate.drained_in_s(lag)
    return "lag does not shrink" if seconds is None else f"drained in {duration(seconds)}"


def duration(seconds: float | None) -> str:
    """Return a duration for display: `42 s`, `3 min 5 s`, `2 h 7 min`, or `never` for None."""
    if seconds is None:
        return "never"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S:,} h {whole % _HOUR_S // _MINUTE_S} min"


def lag_json(report: GroupReport, rates: Rates, *, watches: bool) -> str:
    """Return the lag as one JSON object, on one line if `watches`; unknown values are null."""
    rate = rates.of_all()
    output: dict[str, object] = {
        "group_id": report.group.group_id,
        "state": report.group.state,
        "lag": report.lag,
        "consumed_per_s": None if rate is None else rate.consumed,
        "produced_per_s": None if rate is None else rate.produced,
        "drained_in_s": None if rate is None or report.remaining is None else rate.drained_in_s(report.remaining),
        "partitions": [_partition_record(one, rates) for one in report.partitions],
    }
    return json.dumps(output, indent=None if watches else 2)


def _partition_record(one: PartitionProgress, rates: Rates) -> dict[str, object]:
    partition = TopicPartition(one.topic, one.partition)
    rate = rates.of(partition)
    return partition_record(one) | {
        "consumed_per_s": None if rate is None else rate.consumed,
        "produced_per_s": None if rate is None else rate.produced,
        "stalled_for_s": rates.stalled_for_s(partition),
    }
