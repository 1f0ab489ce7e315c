"""One member of the demo's group, in its own process and written like a user's application.

    python -m consumer_membership.demo.application '{"bootstrap_servers": ..., "group": ..., ...}'

The member counts the processed records and commits once a second and before partitions are revoked. Reports go to
stdout, one JSON object per line. SIGTERM makes it leave, as does the end of stdin, which means that the parent ended.

Commits are manual because a record must be reported before its offset is committed: a record that is committed but not
reported when the process is killed would count as lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership import Consumer
from consumer_membership.demo.records import GatheredRuns, Run, partition_of

#: The timeout of a poll, and the intervals of reports and commits. If the process is killed, records since the last
#: commit are consumed twice, as in any application that commits periodically.
_POLL_S = 0.05
_REPORT_S = 0.1
_COMMIT_S = 1.0
#: The time for a clean leave without a parent, whose broker may also be gone.
_ORPHAN_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberArguments:
    """The parameters that the parent passes to a member on its command line."""

    name: str
    bootstrap_servers: str
    group: str
    topic: str
    partitions: int

    def to_argument(self) -> str:
        """Return the parameters as one command-line argument."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A report of processed records, sent before their offsets are committed; `foreign` counts other records."""

    runs: tuple[Run, ...]
    foreign: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A report of `membership()`, sent whenever it changes."""

    state: str
    epoch: int | None
    owned: tuple[int, ...]
    waits_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvent:
    """A report of an event, with the time of the machine's monotonic clock."""

    at: float
    text: str


Report: TypeAlias = Handled | MemberStatus | MemberEvent

_KINDS: Mapping[str, type[Report]] = {kind.__name__: kind for kind in (Handled, MemberStatus, MemberEvent)}


def encode(report: Report) -> str:
    """Return the report as one line with a line end."""
    return json.dumps({"kind": type(report).__name__, **asdict(report)}, separators=(",", ":")) + "\n"


def decode(line: str) -> Report:
    """Return the report in a line.

    Raises:
        ValueError: The line is not a report.
    """
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        if "owned" in fields:
            fields["owned"] = tuple(fields["owned"])
        if "runs" in fields:
            fields["runs"] = tuple(Run(*run) for run in fields["runs"])
        return kind(**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a member's report: {line!r}") from error


class Application:
    """Subscribes, processes records and sends reports until `leave` is called."""

    def __init__(self, arguments: MemberArguments, send: Callable[[Report], None]) -> None:
        self._arguments = arguments
        self._send = send
        self._leaving = threading.Event()
        self._runs = GatheredRuns(arguments.partitions)
        self._next_offsets: dict[int, int] = {}
        self._handled = 0
        self._foreign = 0
        self._status: MemberStatus | None = None
        self._last_change = 0.0
        self._consumer = Consumer(
            {
                "bootstrap.servers": arguments.bootstrap_servers,
                "group.id": arguments.group,
                "client.id": arguments.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # The demo shows which partitions move; the others continue.
                "rebalance.callbacks": "incremental",
                "on_commit": self._on_commit,
                "error_cb": lambda error: self._send_event(f"{error.name()}: {error.str()}"),
            }
        )

    def leave(self) -> None:
        """Make `run` return; may be called from a signal handler or another thread."""
        self._leaving.set()

    def run(self) -> None:
        """Consume until `leave`; a fatal error of the group raises KafkaException."""
        self._consumer.subscribe(
            [self._arguments.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        report_at = commit_at = time.monotonic()
        while not self._leaving.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is not None:
                self._handle(message)
            now = time.monotonic()
            if now >= report_at:
                report_at = now + _REPORT_S
                self._report()
            if now >= commit_at:
                commit_at = now + _COMMIT_S
                self._report()
                self._commit(is_last_chance=False)
        self._report()
        self._commit(is_last_chance=True)
        self._consumer.close()
        self._report_membership()
        self._send_event(f"closed; processed {self._handled} records")

    def _handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._send_event(f"{error.name()}: {error.str()}")
            if error.fatal():
                raise KafkaException(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        if partition is None or offset is None:
            return
        self._handled += 1
        self._next_offsets[partition] = offset + 1
        number = int(value) if value is not None and value.isdigit() else None
        if number is not None and partition_of(number, self._arguments.partitions) == partition:
            self._runs.add(number)
        else:
            self._foreign += 1

    def _report(self) -> None:
        """Report processed records and changes of the membership."""
        runs = self._runs.take()
        if runs or self._foreign:
            self._send(Handled(runs=runs, foreign=self._foreign))
            self._foreign = 0
        self._report_membership()

    def _commit(self, *, is_last_chance: bool) -> None:
        """Commit the processed and reported records; wait for the response if it is the last commit."""
        offsets = [TopicPartition(self._arguments.topic, *place) for place in sorted(self._next_offsets.items())]
        self._next_offsets.clear()
        if not offsets:
            return
        try:
            if is_last_chance:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as refused:
            self._send_event(f"commit failed: {refused}")

    def _report_membership(self) -> None:
        """Report changes of the membership."""
        view = self._consumer.membership()
        fresh = [change for change in view.transitions if change.at > self._last_change]
        if fresh:
            states = " -> ".join((str(fresh[0].old), *(str(change.new) for change in fresh)))
            self._last_change = fresh[-1].at
            self._send(MemberEvent(at=fresh[-1].at, text=f"{states}: {fresh[-1].reason}"))
        status = MemberStatus(
            state=str(view.state),
            epoch=view.member_epoch,
            owned=tuple(sorted(partition for _, partition in view.owned)),
            waits_for=view.waits_for_text,
        )
        if status != self._status:
            self._status = status
            self._send(status)

    # ---- callbacks ----

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_assign", partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_revoke", partitions)
        self._report()
        self._commit(is_last_chance=True)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_lost", partitions)
        # Another member may own the partitions already: report the records, but do not commit.
        self._report()
        self._next_offsets.clear()

    def _called(self, callback: str, partitions: list[TopicPartition]) -> None:
        # Report the transitions that led to the callback first.
        self._report_membership()
        numbers = " ".join(map(str, sorted(partition.partition for partition in partitions)))
        self._send_event(f"{callback}: {numbers or 'none'}")

    def _on_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            self._send_event(f"commit failed: {error.name()}: {error.str()}")

    def _send_event(self, text: str) -> None:
        self._send(MemberEvent(at=time.monotonic(), text=text))


def _send(report: Report) -> None:
    try:
        sys.stdout.write(encode(report))
        sys.stdout.flush()
    except BrokenPipeError:
        # The parent has ended.
        os._exit(1)


def _leave_with_parent(application: Application) -> None:
    """Wait for the end of stdin, which means that the parent has ended, and leave."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    application.leave()
    threading.Event().wait(_ORPHAN_S)
    os._exit(1)


def main(argument: str) -> None:
    """Run one member."""
    application = Application(MemberArguments(**json.loads(argument)), _send)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.leave())
    threading.Thread(target=_leave_with_parent, args=(application,), daemon=True).start()
    application.run()


if __name__ == "__main__":
    main(sys.argv[1])
