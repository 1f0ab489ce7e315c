"""Reports for probes: the health of all consumers of a process, as text for people and as JSON for programs.

| probe | meaning | it fails if |
|---|---|---|
| liveness | a restart of the process would not help | a restart of the process would help one of its consumers |
| readiness | each consumer has its share of its group's work | one consumer does not have its share |

Therefore a rebalance, a slow start, an unreachable broker or an open transaction never causes a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum

from consumer_membership.health.handlers import RunningHandler, UnfinishedRecord
from consumer_membership.health.progress import PartitionHealth, PartitionWaitsFor
from consumer_membership.health.verdict import Health
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.view import MembershipView
from consumer_membership.text import excerpt, speakable
from consumer_membership.types import Instant, TopicPartition


class ProbeQuestion(Enum):
    """The two kinds of probes."""

    IS_LIVE = "live"
    IS_READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReport:
    """The health of one consumer, with its identity."""

    client_id: str
    view: MembershipView
    health: Health

    def answer(self, question: ProbeQuestion) -> bool:
        """Return whether this consumer passes the probe."""
        match question:
            case ProbeQuestion.IS_LIVE:
                return not self.health.would_restart_help
            case ProbeQuestion.IS_READY:
                return self.health.is_ready

    @property
    def name(self) -> str:
        """The group and the member's name there, in one line with any content."""
        return _line(f"{excerpt(self.view.group_id)}/{excerpt(self.view.instance_id or self.client_id)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """The health of the consumers of one process at one moment.

    `at` is of the monotonic clock, as all times of a `Health`; `written_at` is the same moment in seconds since 1970.
    """

    process: int
    at: Instant
    written_at: float
    consumers: tuple[ConsumerReport, ...]

    def answer(self, question: ProbeQuestion) -> bool:
        """Return whether all consumers pass the probe; a process without a consumer is live, but not ready."""
        if not self.consumers:
            return question is ProbeQuestion.IS_LIVE
        return all(one.answer(question) for one in self.consumers)

    # ---- as text ----

    def text(self, question: ProbeQuestion, *, is_verbose: bool = False) -> str:
        """Return one line for the result and one for each consumer; `is_verbose`: also one for each partition."""
        lines = [f"{question.value}: {'yes' if self.answer(question) else 'no'}"]
        for one in self.consumers:
            lines.append(self._line_of(one, question))
            if is_verbose:
                lines += (self._line_of_partition(*item) for item in sorted(one.health.partitions.items()))
        return "\n".join(lines) + "\n"

    def _line_of(self, one: ConsumerReport, question: ProbeQuestion) -> str:
        health = one.health
        since = f" for {self.at - health.since:.0f} s" if health.since is not None else ""
        until = f"; until {health.until - self.at:.0f} s from now" if health.until is not None else ""
        helps = "; a restart would help" if health.would_restart_help else ""
        sign = "+" if one.answer(question) else "-"
        return f"[{sign}] {one.name} {health.verdict.value}{since}: {_line(health.why)}{until}{helps}"

    def _line_of_partition(self, partition: TopicPartition, health: PartitionHealth) -> str:
        waits = f", waits for {health.waits_for_text}" if health.waits_for is not None else ""
        moved = f", moved {self.at - health.progressed_at:.0f} s ago" if health.progressed_at is not None else ""
        oldest = ""
        if health.oldest_unfinished is not None and health.waits_for is not PartitionWaitsFor.HANDLER:
            since_s = self.at - health.oldest_unfinished.since
            oldest = f", unfinished for {since_s:.0f} s: {health.oldest_unfinished.text}"
        place = f"position {_known(health.position)}, end {_known(health.end)}, lag {_known(health.lag)}"
        return _line(f"    {partition.topic}-{partition.partition}: {place}{moved}{waits}{oldest}", indent="    ")

    # ---- as JSON ----

    def summary(self) -> str:
        """Return JSON without partitions: the verdicts and the result."""
        return json.dumps(self._record(has_partitions=False), indent=2) + "\n"

    def details(self) -> str:
        """Return JSON with each consumer's partitions, in one line."""
        return json.dumps(self._record(has_partitions=True)) + "\n"

    def _record(self, *, has_partitions: bool) -> Mapping[str, object]:
        return {
            "process": self.process,
            "written_at": _iso(self.written_at),
            "live": self.answer(ProbeQuestion.IS_LIVE),
            "ready": self.answer(ProbeQuestion.IS_READY),
            "consumers": [dict(self._items(one, has_partitions=has_partitions)) for one in self.consumers],
        }

    def _items(self, one: ConsumerReport, *, has_partitions: bool) -> Iterator[tuple[str, object]]:
        view, health = one.view, one.health
        yield "group_id", speakable(view.group_id)
        yield "client_id", speakable(one.client_id)
        yield "instance_id", None if view.instance_id is None else speakable(view.instance_id)
        yield "member_id", view.member_id
        yield "member_epoch", view.member_epoch
        yield "protocol", view.protocol.value
        yield "state", view.state.value
        yield "verdict", health.verdict.value
        yield "why", speakable(health.why)
        yield "since", self._moment(health.since)
        yield "until", self._moment(health.until)
        yield "would_restart_help", health.would_restart_help
        yield "is_ready", health.is_ready
        if health.handlers is not None:
            yield "stuck_handlers", [self._handler(one) for one in health.handlers.stuck]
        if has_partitions:
            yield "sampled_at", self._moment(health.sampled_at)
            yield "partitions", [self._partition(*item) for item in sorted(health.partitions.items())]

    def _partition(self, partition: TopicPartition, health: PartitionHealth) -> Mapping[str, object]:
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "position": health.position,
            "end": health.end,
            "lag": health.lag,
            "progressed_at": self._moment(health.progressed_at),
            "is_paused": health.is_paused,
            "is_stuck": health.is_stuck,
            "is_held_back": health.is_held_back,
            "is_readable": health.is_readable,
            "is_behind": health.is_behind,
            "waits_for": health.waits_for,
            "waits_for_detail": health.waits_for_detail or None,
            "since": self._moment(health.since),
            "oldest_unfinished": self._unfinished(health.oldest_unfinished),
        }

    def _unfinished(self, record: UnfinishedRecord | None) -> Mapping[str, object] | None:
        if record is None:
            return None
        return {
            "offset": record.offset,
            "since": self._moment(record.since),
            "attempt": record.attempt,
            "last_error": speakable(record.last_error) or None,
        }

    def _handler(self, handler: RunningHandler) -> Mapping[str, object]:
        return {
            "topic": handler.partition.topic,
            "partition": handler.partition.partition,
            "offset": handler.offset,
            "key": None if handler.key is None else handler.key_text,
            "attempt": handler.attempt,
            "began_at": self._moment(handler.began_at),
            "deadline": self._moment(handler.deadline),
            "can_be_cancelled": handler.can_be_cancelled,
            "is_disowned": handler.is_disowned,
            "stack": speakable(handler.stack).splitlines(),
        }

    def _moment(self, at: Instant | None) -> str | None:
        """Return a moment of the monotonic clock as wall-clock time."""
        return None if at is None else _iso(self.written_at + (at - self.at))


def _iso(seconds: float) -> str:
    """Return the time in RFC 3339, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)


def _line(text: str, indent: str = "") -> str:
    """Return the text in one line that is safe for terminals: broker messages and group names may contain line ends."""
    line = " ".join(text.split())
    return indent + "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in speakable(line)
    )
