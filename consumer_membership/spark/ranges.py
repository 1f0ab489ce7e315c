"""Which offsets of which partitions a list of records has; in C as far as it goes, since every record is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby

from confluent_kafka import Message

from consumer_membership.spark.context import OffsetRange
from consumer_membership.spark.plan import Partition

#: Called by `map`, the quickest way: a million records cost a tenth of a second.
_number: Callable[[Message], int] = Message.partition  # type: ignore[assignment]  # None is an event's
_topic, _error = Message.topic, Message.error


def ranges_of(records: Sequence[Message], topics: Sequence[str]) -> tuple[OffsetRange, ...]:
    """One range for each partition, by topic and partition; `topics` are those that the records may be of.

    Records of one partition come in the order of their offsets.
    """
    if not records:
        return ()
    numbers: list[int] = list(map(_number, records))
    keys: Iterable[Hashable] = numbers if len(topics) == 1 else zip(map(_topic, records), numbers, strict=True)
    firsts: dict[Hashable, Message] = {}
    lasts: dict[Hashable, Message] = {}
    counts: Counter[Hashable] = Counter()
    at = 0
    # They come in runs, a fetched partition at a time.
    for key, run in groupby(keys):
        length = len(list(run))
        firsts.setdefault(key, records[at])
        at += length
        lasts[key] = records[at - 1]
        counts[key] += length
    found = [_range(firsts[key], last, counts[key]) for key, last in lasts.items()]
    return tuple(sorted(found, key=lambda one: one.place))


def _range(first: Message, last: Message, records: int) -> OffsetRange:
    return OffsetRange(
        topic=_text(last.topic()),
        partition=_whole(last.partition()),
        first=_whole(first.offset()),
        next_offset=_whole(last.offset()) + 1,
        records=records,
    )


def are_records(messages: Sequence[Message]) -> bool:
    """Whether there is no event, an error or a partition's end, among them."""
    return not any(map(_error, messages))


def before(records: Sequence[Message], ends: Mapping[Partition, int]) -> list[Message]:
    """The records below the end of their partition; each has one."""
    return [m for m in records if _whole(m.offset()) < ends[(_text(m.topic()), _whole(m.partition()))]]


def _text(value: str | None) -> str:
    """What a record has, and an event may lack."""
    return value or ""


def _whole(value: int | None) -> int:
    return value or 0
