"""A partner that uses confluent_kafka or this package, with the same application."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Message, TopicPartition

from tests.support.partners.life import Client, Lifetime
from tests.support.partners.reporting import report, report_committed, report_partitions, report_records
from tests.support.partners.stop import on_sigterm, on_sigusr1

if TYPE_CHECKING:
    from consumer_membership import MembershipView

_POLL_S = 0.05
#: The largest number of records in a batch; the application commits after each batch.
_BATCH = 500
#: Only librdkafka's debug log has the generation, and whether the member is the leader.
_JOINED = re.compile(r"JoinGroup response: GenerationId (\d+).*LeaderId \S+( \(me\))?, my MemberId")


class _LogReader(logging.Handler):
    """Reads the generation and the leader from librdkafka's log."""

    generation: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Parse one log line."""
        joined = _JOINED.search(record.getMessage())
        if joined is not None:
            self.generation = int(joined[1])
            if joined[2] is not None:
                report("leads", generation=self.generation)


class _Application:
    """Subscribes, polls, reports and commits."""

    def __init__(self, life: Lifetime) -> None:
        self._log_reader = _LogReader()
        self._is_ours = life.client is Client.OURS
        self._batch: dict[int, tuple[int, int]] = {}
        self._held: set[int] = set()
        self._withholding = on_sigusr1()
        self._withholds = False
        self._shown: tuple[object, ...] = ()
        self._topic = life.topic
        self._consumer = _our_consumer(life) if self._is_ours else _their_consumer(life, self._log_reader)
        self._consumer.subscribe(
            [life.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def run(self) -> None:
        """Run until SIGTERM."""
        stopping = on_sigterm()
        while not stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            for _ in range(_BATCH):
                if message is None:
                    break
                self._take(message)
                message = self._consumer.poll(0)
            if message is not None:
                self._take(message)
            self._withhold_if_ordered()
            self._flush()
            self._compare()
        self._consumer.close()
        report("closed")

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            report("error", text=str(error))
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        first, _ = self._batch.get(partition, (offset, offset))
        self._batch[partition] = (first, offset)

    def _flush(self, *, can_commit: bool = True) -> None:
        batch, self._batch = self._batch, {}
        for partition, (first, last) in batch.items():
            report_records(partition, first, last)
        if batch and can_commit and not self._withholds:
            try:
                done = self._consumer.commit(
                    offsets=[TopicPartition(self._topic, p, last + 1) for p, (_, last) in batch.items()],
                    asynchronous=False,
                )
            except KafkaException as refused:
                report("refused", text=str(refused))
            else:
                report_committed({p.partition: p.offset for p in done or [] if p.error is None})

    def _compare(self) -> None:
        """Compare the partitions of the callbacks with `assignment()`; with this package, also report its view."""
        has = {p.partition for p in self._consumer.assignment()}
        if has != self._held:
            report("error", text=f"the callbacks named {sorted(self._held)}, but assignment() has {sorted(has)}")

        if self._is_ours:
            self._report_view(self._consumer.membership())

    def _report_view(self, view: MembershipView) -> None:
        shown = (view.protocol, view.group_protocol, view.member_epoch, view.protocol_reason)
        if shown != self._shown:
            self._shown = shown
            group = "" if view.group_protocol is None else view.group_protocol.value
            epoch, reason = view.member_epoch, view.protocol_reason
            report("view", protocol=view.protocol.value, group=group, generation=epoch, text=reason)

    def _withhold_if_ordered(self) -> None:
        if self._withholding.is_set() and not self._withholds:
            self._withholds = True
            report("withholds")

    def _on_assign(self, _: object, partitions: list[TopicPartition]) -> None:
        self._held.update(p.partition for p in partitions)
        report_partitions("assigned", [p.partition for p in partitions], self._generation())

    def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        self._flush()
        self._held.difference_update(p.partition for p in partitions)
        report_partitions("revoked", [p.partition for p in partitions], self._generation())

    def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        self._flush(can_commit=False)
        self._held.difference_update(p.partition for p in partitions)
        report_partitions("lost", [p.partition for p in partitions], self._generation())

    def _generation(self) -> int | None:
        return self._consumer.generation() if self._is_ours else self._log_reader.generation


def _their_consumer(life: Lifetime, log_reader: _LogReader) -> Any:
    from confluent_kafka import Consumer  # noqa: PLC0415 - this package has a class of the same name

    log = logging.getLogger("librdkafka")
    log.setLevel(logging.DEBUG)
    log.addHandler(log_reader)
    return Consumer(_config(life) | {"debug": "cgrp"}, logger=log)


def _our_consumer(life: Lifetime) -> Any:
    from consumer_membership import Consumer  # noqa: PLC0415 - a confluent partner must not import it

    _report_leadership()
    return Consumer(_config(life))


def _report_leadership() -> None:
    """Report when this package's member computes the assignment, because its view does not show the leader."""
    from consumer_membership.membership.classic.exchanges import ComputeAssignment  # noqa: PLC0415 - as above
    from consumer_membership.membership.member import MemberCore  # noqa: PLC0415 - as above
    from consumer_membership.membership.protocol import GroupEffect, GroupEvent  # noqa: PLC0415 - as above

    handle = MemberCore.handle

    def watched(member: MemberCore, event: GroupEvent, now: float) -> tuple[GroupEffect, ...]:
        effects = handle(member, event, now)
        for effect in effects:
            if isinstance(effect, ComputeAssignment):
                report("leads", generation=effect.generation)
        return effects

    MemberCore.handle = watched  # type: ignore[method-assign, assignment]  # replaced on purpose


def _config(life: Lifetime) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": life.bootstrap_servers,
        "group.id": life.group,
        "client.id": life.client_id,
        "group.protocol": life.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if life.instance_id is not None:
        config["group.instance.id"] = life.instance_id
    if life.client is Client.OURS:
        # With this package, the key also replaces the broker's interval under the consumer protocol.
        config["heartbeat.interval.ms"] = life.heartbeat_interval_ms
    if life.strategies and life.protocol != "consumer":
        config["partition.assignment.strategy"] = ",".join(life.strategies)
    if life.protocol == "classic":
        config |= {
            "session.timeout.ms": life.session_timeout_ms,
            "heartbeat.interval.ms": life.heartbeat_interval_ms,
        }
    return config


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    _Application(life).run()
