"""A member of a small round (`small`): one thread polls, one thread samples, and both write events to the history.

Run it with `python -m tests.chaos.small_member FOLDER NAME SETUP`, where SETUP is the JSON of `MemberSetup`. After
SIGTERM it closes its consumer and ends; after SIGUSR1 it does not poll for a while. A planted bug (`planted`) is
applied before the package is imported.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos import history as h
from tests.chaos import planted

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import TopicPartition as PartitionOffset

    from consumer_membership import Consumer

#: The suffix of the recording that a member writes at its end.
RECORDING = ".recording.gz"
_POLL_S = 0.05
#: The intervals of commits, and of samples of `membership()` and `health()`.
_COMMIT_S = 0.2
_SAMPLE_S = 0.1
#: After SIGUSR1 the application does not poll for this long, so that fetched records stay buffered.
_BUSY_S = 1.5
#: With `commits="late"`, a worker commits a record this long after its reception.
_LATE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSetup:
    """The configuration and the behavior of the member.

    `commits` is `sync` (every 0.2 s and in `on_revoke`), `auto` (the consumer commits automatically), or `late` (a
    worker commits each record 0.3 s later, as thread pools do). `slow_revoke_s` is the duration of `on_revoke`.
    `session_s` is the session timeout of the group.
    """

    group: str
    topic: str
    config: dict[str, object]
    commits: str = "sync"
    slow_revoke_s: float = 0.0
    session_s: float | None = None

    @property
    def has_leases(self) -> bool:
        """Whether the member uses leases."""
        return bool(self.config.get("ownership.lease.enable"))


class Member:
    """The consumer, and its uncommitted records."""

    def __init__(self, writer: h.HistoryWriter, setup: MemberSetup) -> None:
        from consumer_membership import Consumer  # noqa: PLC0415 - after a planted bug was applied

        self._writer = writer
        self._setup = setup
        self._ends = threading.Event()
        self._is_busy = threading.Event()
        self._positions: dict[h.Partition, int] = {}
        self._late: queue.Queue[tuple[int, Message]] = queue.Queue()
        self._number = 0
        config = setup.config | {"enable.auto.commit": setup.commits == "auto"}
        if setup.commits == "auto":
            config |= {"auto.commit.interval.ms": 200, "on_commit": self._on_commit}
        self.consumer: Consumer = Consumer(config)

    def end(self) -> None:
        """Make the member close its consumer after the current call."""
        self._ends.set()

    def be_busy(self) -> None:
        """Do not poll for a while."""
        self._is_busy.set()

    def run(self) -> None:
        """Consume until `end` is called, and close."""
        self.consumer.subscribe(
            [self._setup.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        threads = [threading.Thread(target=self._sample)]
        if self._setup.commits == "late":
            threads.append(threading.Thread(target=self._commit_late))
        for thread in threads:
            thread.start()
        commits_at = 0.0
        while not self._ends.is_set():
            if self._is_busy.is_set():
                self._ends.wait(_BUSY_S)
                self._is_busy.clear()
            begun = h.now_ns()
            message = self.consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._receive(begun, message)
            if self._setup.commits == "sync" and h.now_ns() / 1e9 >= commits_at:
                self._commit(self._positions)
                commits_at = h.now_ns() / 1e9 + _COMMIT_S
        for thread in threads:
            thread.join()
        self.consumer.dump(self._writer.path.with_suffix(RECORDING))
        self.consumer.close()
        self._writer.write(h.Closed())

    # ---- records and commits ----

    def _receive(self, begun: int, message: Message) -> None:
        partition = h.Partition(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        until = self._lease_until()
        self._writer.write(
            h.Received(
                partition=partition,
                offset=offset,
                number=int(message.value() or b"0"),
                begun_ns=begun,
                lease_until_ns=until,
            )
        )
        self._positions[partition] = offset + 1
        if self._setup.commits == "late":
            self._late.put((h.now_ns(), message))

    def _lease_until(self) -> int | None:
        view = self.consumer.membership()
        if view.lease_until is None or view.is_session_assumed:
            return None
        return round(view.lease_until * 1e9)

    def _commit(self, positions: dict[h.Partition, int]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before the package
        from confluent_kafka import TopicPartition as PartitionOffset  # noqa: PLC0415

        offsets = [h.Offset(*partition, offset) for partition, offset in positions.items()]
        if not offsets:
            return
        number = self._writer.begin_commit(offsets)
        try:
            self.consumer.commit(offsets=[PartitionOffset(*offset) for offset in offsets], asynchronous=False)
        except KafkaException as error:
            self._writer.write(h.CommitEnded(commit=number, error=str(error.args[0]), is_unknown=True))
        else:
            self._writer.write(h.CommitEnded(commit=number))

    def _commit_late(self) -> None:
        while not self._ends.is_set():
            try:
                at, message = self._late.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            self._ends.wait(max(0.0, at / 1e9 + _LATE_S - h.now_ns() / 1e9))
            self._commit({h.Partition(message.topic() or "", message.partition() or 0): (message.offset() or 0) + 1})

    def _on_commit(self, error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
        for one in partitions:
            failure = error or one.error
            if one.offset >= 0:
                number = self._writer.begin_commit([h.Offset(one.topic, one.partition, one.offset)])
                self._writer.write(h.CommitEnded(commit=number, error=None if failure is None else failure.name()))

    # ---- callbacks ----

    def _on_assign(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        view = consumer.membership()
        epochs = tuple(h.Epoch(one.topic, one.partition, view.member_epoch) for one in partitions)
        self._writer.write(h.Assigned(member_id=view.member_id, epochs=epochs, instance_id=view.instance_id))

    def _on_revoke(self, _: Consumer, partitions: list[PartitionOffset]) -> None:
        given_up = [h.Partition(one.topic, one.partition) for one in partitions]
        self._ends.wait(self._setup.slow_revoke_s)
        if self._setup.commits == "sync":
            self._commit({one: self._positions[one] for one in given_up if one in self._positions})
        self._forget(given_up)
        self._writer.write(h.Revoked(partitions=tuple(given_up)))

    def _on_lost(self, _: Consumer, partitions: list[PartitionOffset]) -> None:
        lost = [h.Partition(one.topic, one.partition) for one in partitions]
        self._forget(lost)
        self._writer.write(h.Lost(partitions=tuple(lost)))

    def _forget(self, partitions: list[h.Partition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)

    # ---- statements ----

    def _sample(self) -> None:
        while not self._ends.wait(_SAMPLE_S):
            begun = h.now_ns()
            view, health = self.consumer.membership(), self.consumer.health()
            until = view.lease_until
            self._writer.write(
                h.Statement(
                    begun_ns=begun,
                    state=view.state.name,
                    member_id=view.member_id,
                    member_epoch=view.member_epoch,
                    owned=tuple(h.Epoch(*partition, epoch) for partition, epoch in sorted(view.owned.items())),
                    lease_until_ns=None if until is None or view.is_session_assumed else round(until * 1e9),
                    verdict=health.verdict.value,
                    would_restart_help=health.would_restart_help,
                )
            )


def main(arguments: list[str]) -> None:
    """Run one member."""
    planted.apply_from_environment()
    folder, name, setup = Path(arguments[0]), arguments[1], MemberSetup(**json.loads(arguments[2]))
    with h.HistoryWriter(folder, name) as writer:
        writer.write(
            h.Started(
                group=setup.group,
                kind=f"poll, {setup.commits}",
                pid=os.getpid(),
                instance_id=setup.config.get("group.instance.id"),  # type: ignore[arg-type]  # text of JSON
                has_leases=setup.has_leases,
                commits_automatically=setup.commits == "auto",
                session_s=setup.session_s,
            )
        )
        member = Member(writer, setup)
        signal.signal(signal.SIGTERM, lambda *_: member.end())
        signal.signal(signal.SIGUSR1, lambda *_: member.be_busy())
        member.run()


if __name__ == "__main__":
    main(sys.argv[1:])
