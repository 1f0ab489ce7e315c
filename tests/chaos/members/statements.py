"""Samples of `membership()` and `health()`, which a thread writes to the history while the member runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from confluent_kafka import TopicPartition

from consumer_membership import Consumer, Health, MembershipView
from consumer_membership.aio import AIOConsumer
from consumer_membership.health.verdict import HealthVerdict
from tests.chaos import history as h
from tests.chaos.members.account import SAMPLE_S


def ns(seconds: float) -> int:
    """Convert a time of the monotonic clock from seconds to nanoseconds."""
    return int(seconds * 1_000_000_000)


def lease_ns(view: MembershipView) -> int | None:
    """Return the end of the lease; None: there is no lease, or its session is assumed."""
    return None if view.lease_until is None or view.is_session_assumed else ns(view.lease_until)


def epochs_of(
    has_leases: bool,  # noqa: FBT001 - from the member's plan
    consumer: Consumer | AIOConsumer,
    partitions: Iterable[TopicPartition],
) -> tuple[h.Epoch, ...]:
    """Return partitions that are being assigned, with the tokens of their leases; -1: the member has no tokens."""
    has_tokens = has_leases and consumer.membership().has_tokens
    return tuple(
        h.Epoch(one.topic, one.partition, consumer.lease(one).token if has_tokens else -1) for one in partitions
    )


class Statements:
    """A thread that writes a sample every `SAMPLE_S` seconds, until `stop` is called."""

    def __init__(
        self,
        writer: h.HistoryWriter,
        view: Callable[[], MembershipView],
        health: Callable[[], Health],
        *,
        has_leases: bool,
    ) -> None:
        self._writer, self._view, self._health, self._has_leases = writer, view, health, has_leases
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statements", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Call this before you close the consumer."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            begun_ns = h.now_ns()
            view, health = self._view(), self._health()
            stalled = health.partitions if health.verdict is HealthVerdict.STUCK else ()
            self._writer.write(
                h.Statement(
                    begun_ns=begun_ns,
                    state=view.state.name,
                    member_id=view.member_id,
                    member_epoch=view.member_epoch,
                    owned=tuple(h.Epoch(p.topic, p.partition, epoch) for p, epoch in view.owned.items()),
                    lease_until_ns=lease_ns(view) if self._has_leases else None,
                    verdict=health.verdict.value,
                    would_restart_help=health.would_restart_help,
                    stalled=tuple(h.Partition(p.topic, p.partition) for p in stalled),
                )
            )
