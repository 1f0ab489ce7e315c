"""One member of the demo's group: an application as a user would write it, in a process of its own.

    python -m consumer_membership.demo.application '{"bootstrap_servers": ..., "group": ..., ...}'

It counts what it handles, commits by hand once a second, and before it gives partitions away. Reports go to stdout, one
JSON object per line; SIGTERM makes it leave; the end of stdin, which only the parent's end brings about, does too.

It commits by hand because a record must be reported before its offset may be committed: what is committed and was
never reported would count as lost when the process is killed in between.
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

#: How long one poll waits, and how often records are reported and committed. What was handled since the last commit is
#: seen twice when the process is killed, as in any application that commits now and then.
_POLL_S = 0.05
_REPORT_S = 0.1
_COMMIT_S = 1.0
#: An orphan leaves in good order if that is quick; its broker may be gone with its parent.
_ORPHAN_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberArguments:
    """What the parent tells a member on its command line."""

    name: str
    bootstrap_servers: str
    group: str
    topic: str
    partitions: int

    def to_argument(self) -> str:
        """The command line's one argument."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """These records were handled, before their offsets are committed; `strange` ones are not the demo's own."""

    runs: tuple[Run, ...]
    strange: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The member as its `membership()` shows it; sent whenever it differs from the last one."""

    state: str
    epoch: int | None
    owned: tuple[int, ...]
    waits_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that a reader may want to know, at this time of the machine's monotonic clock."""

    at: float
    text: str


Report: TypeAlias = Handled | Standing | Happened

_KINDS: Mapping[str, type[Report]] = {kind.__name__: kind for kind in (Handled, Standing, Happened)}


def encode(report: Report) -> str:
    """The report as one line, with its end."""
    return json.dumps({"kind": type(report).__name__, **asdict(report)}, separators=(",", ":")) + "\n"


def decode(line: str) -> Report:
    """The report of one line.

    Raises:
        ValueError: it is none.
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
    """Subscribes, handles records and reports, until it is told to leave."""

    def __init__(self, arguments: MemberArguments, say: Callable[[Report], None]) -> None:
        self._arguments = arguments
        self._say = say
        self._told_to_leave = threading.Event()
        self._runs = GatheredRuns(arguments.partitions)
        self._next_offsets: dict[int, int] = {}
        self._handled = 0
        self._strange = 0
        self._standing: Standing | None = None
        self._last_change = 0.0
        self._consumer = Consumer(
            {
                "bootstrap.servers": arguments.bootstrap_servers,
                "group.id": arguments.group,
                "client.id": arguments.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # It is shown what moves, and what stays goes on.
                "rebalance.callbacks": "incremental",
                "on_commit": self._on_commit,
                "error_cb": lambda error: self._tell(f"{error.name()}: {error.str()}"),
            }
        )

    def leave(self) -> None:
        """Make `run` come to its end; may be called from a signal handler or another thread."""
        self._told_to_leave.set()

    def run(self) -> None:
        """Be a member until `leave`; a fatal refusal of the group comes out as an exception."""
        self._consumer.subscribe(
            [self._arguments.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        report_at = commit_at = time.monotonic()
        while not self._told_to_leave.is_set():
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
        self._look()
        self._tell(f"closed; it handled {self._handled} records")

    def _handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._tell(f"{error.name()}: {error.str()}")
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
            self._strange += 1

    def _report(self) -> None:
        """Tell what was handled and what is new about the membership."""
        runs = self._runs.take()
        if runs or self._strange:
            self._say(Handled(runs=runs, strange=self._strange))
            self._strange = 0
        self._look()

    def _commit(self, *, is_last_chance: bool) -> None:
        """Commit what was handled, all of which must have been reported; for the last chance, wait for the answer."""
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
            self._tell(f"commit: {refused}")

    def _look(self) -> None:
        """Report what is new about the membership."""
        view = self._consumer.membership()
        fresh = [change for change in view.transitions if change.at > self._last_change]
        if fresh:
            states = " -> ".join((str(fresh[0].old), *(str(change.new) for change in fresh)))
            self._last_change = fresh[-1].at
            self._say(Happened(at=fresh[-1].at, text=f"{states}: {fresh[-1].reason}"))
        standing = Standing(
            state=str(view.state),
            epoch=view.member_epoch,
            owned=tuple(sorted(partition for _, partition in view.owned)),
            waits_for=view.waits_for_text,
        )
        if standing != self._standing:
            self._standing = standing
            self._say(standing)

    # ---- callbacks ----

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_assign", partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_revoke", partitions)
        self._report()
        self._commit(is_last_chance=True)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._called("on_lost", partitions)
        # Somebody else may own them already: what was handled is reported, and its offsets are not ours to commit.
        self._report()
        self._next_offsets.clear()

    def _called(self, callback: str, partitions: list[TopicPartition]) -> None:
        # What led here comes first.
        self._look()
        numbers = " ".join(map(str, sorted(partition.partition for partition in partitions)))
        self._tell(f"{callback}: {numbers or 'none'}")

    def _on_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            self._tell(f"commit: {error.name()}: {error.str()}")

    def _tell(self, text: str) -> None:
        self._say(Happened(at=time.monotonic(), text=text))


def _say(report: Report) -> None:
    try:
        sys.stdout.write(encode(report))
        sys.stdout.flush()
    except BrokenPipeError:
        # The parent is gone, and nobody is left to work for.
        os._exit(1)


def _leave_with_parent(application: Application) -> None:
    """Wait for the end of stdin: the parent has died, however it did."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    application.leave()
    threading.Event().wait(_ORPHAN_S)
    os._exit(1)


def main(argument: str) -> None:
    """Be one member."""
    application = Application(MemberArguments(**json.loads(argument)), _say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.leave())
    threading.Thread(target=_leave_with_parent, args=(application,), daemon=True).start()
    application.run()


if __name__ == "__main__":
    main(sys.argv[1])
