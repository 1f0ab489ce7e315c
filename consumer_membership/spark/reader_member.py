"""The driver's member of the group during a bounded read: it owns partitions, but fetches nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import (
    CommitError,
    FatalGroupError,
    FencedError,
    GroupError,
    MembershipError,
    TransportError,
    UseError,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.spark.brokers import EARLIEST, LATEST, log_offsets, partitions_of, quiet
from consumer_membership.spark.context import Partition
from consumer_membership.spark.handover import REPLACED
from consumer_membership.types import ConflictPolicy, GroupProtocol

_log = logging.getLogger("consumer_membership.spark")

_POLL_S = 0.2
_CHECK_EVERY_S = 0.02
#: How often the target assignment is requested from the coordinator.
_DESCRIBE_S = 0.5
_REQUEST_S = 30.0
_RIGHT_MISSING = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})


class LogBounds(NamedTuple):
    """The bounds of one partition's log: the first offset, and the end of a read.

    With `isolation.level=read_committed`, the end is the first open transaction; the committed offset of a group may be
    higher, up to the high watermark.
    """

    first: int
    end: int
    high_watermark: int


class ReaderMember:
    """A static member that owns partitions of its topics until it is closed.

    A thread polls it, so that it stays in the group whatever the driver does.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        group: str,
        instance_id: str,
        policy: ConflictPolicy = ConflictPolicy.TAKEOVER,
    ) -> None:
        self._config = {key: value for key, value in config.items() if key != "on_commit"}
        self._group = group
        self.consumer = Consumer(
            {
                **quiet(config),
                **config,
                # The read determines the start offsets; this member must not fail if an offset is missing.
                "auto.offset.reset": "earliest",
                "group.id": group,
                "group.instance.id": instance_id,
                "group.instance.id.conflict.policy": policy.value,
                "client.id": config.get("client.id") or f"spark-{instance_id}",
                "enable.auto.commit": False,
            }
        )
        self._is_over = threading.Event()
        #: The error that ended polling, and the last error event.
        self._refusal: Exception | None = None
        self._last_error: KafkaError | None = None
        self._thread = threading.Thread(target=self._poll, name=f"consumer_membership-{instance_id}", daemon=True)

    def join(self, topics: Sequence[str], timeout_s: float) -> dict[Partition, int]:
        """Join, and return the owned partitions of these topics, with the epochs at which they were assigned.

        Within `timeout_s`, it also waits for partitions that other members must release first.

        Raises:
            ConfigurationError: a topic does not exist.
            GroupError: the coordinator refused the member, or an ACL is missing.
            TransportError: the member owns no partition in time; the text has the state and the reason.
        """
        everything = set(partitions_of(self.consumer, topics, self._config))
        self.subscribe(topics)
        self._thread.start()
        deadline = monotonic() + timeout_s
        requested_at = 0.0
        while (now := monotonic()) < deadline:
            view = self.view()
            if view.state is MemberState.STABLE and view.owned:
                if view.owned.keys() >= everything:
                    break
                if now - requested_at > _DESCRIBE_S:
                    if not self._is_more_to_come(view):
                        break
                    requested_at = monotonic()
            self._is_over.wait(_CHECK_EVERY_S)
        view = self.view()
        if not view.owned:
            raise TransportError(
                f"the reader of group {self._group!r} has no partition of {', '.join(topics)} after "
                f"{timeout_s:g} s: it is {view.state} and waits for {view.waits_for_text or 'nothing'}"
                f"{f'; {self._last_error.str()}' if self._last_error else ''}"
            )
        return _owned(view)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to these topics, and pause all their partitions."""
        self.consumer.subscribe(list(topics), on_assign=lambda consumer, arriving: consumer.pause(arriving))

    def view(self) -> MembershipView:
        """Return the membership of the member.

        Raises:
            FatalGroupError: the coordinator refused the member, for example because another member took its place.
            GroupError: an ACL is missing.
        """
        view = self.consumer.membership()
        if view.state is MemberState.FATAL:
            cause = self._refusal or view.last_error
            code = view.last_error.code if view.last_error else -1
            raise FatalGroupError(f"the coordinator refused the reader of group {self._group!r}: {cause}", code)
        if self._last_error is not None and self._last_error.code() in _RIGHT_MISSING:
            # A member retries until the ACL is granted, but a caller that waits for the read needs an error.
            text = f"the reader of group {self._group!r} is not authorized: {self._last_error.str()}; grant it READ"
            raise GroupError(text, self._last_error.code())
        return view

    def _is_more_to_come(self, view: MembershipView) -> bool:
        """Return whether the target assignment of this member has partitions that other members must release first."""
        if view.protocol is GroupProtocol.CLASSIC:
            return False  # an assignment arrives as a whole
        try:
            members = GroupAdmin(self._config).describe(self._group, with_offsets=False).group.members
        except MembershipError as refused:
            _log.info("The reader of group %s does not wait for more partitions: %s", self._group, refused)
            return False
        mine = next((member for member in members if member.member_id == view.member_id), None)
        return mine is not None and mine.target is not None and not mine.target <= view.owned.keys()

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of these partitions; partitions without a committed offset are left out."""
        try:
            found = self.consumer.committed([TopicPartition(*p) for p in partitions], _REQUEST_S)
        except KafkaException as failed:
            raise TransportError(f"committed offsets could not be read: {failed.args[0].str()}") from failed
        for each in found:
            if each.error is not None:
                text = f"{each.topic}[{each.partition}]: the committed offset could not be read: {each.error.str()}"
                raise TransportError(text)
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def logs(self, partitions: Iterable[Partition], committed: Mapping[Partition, int]) -> dict[Partition, LogBounds]:
        """Return the bounds of these logs; high watermarks are requested only if `committed` exceeds an end."""
        requested = list(partitions)
        firsts, ends = (log_offsets(self.consumer, requested, which) for which in (EARLIEST, LATEST))
        highs: dict[Partition, int] = {}
        if any(committed.get(each, 0) > ends[each] for each in requested):
            try:
                known = GroupAdmin(self._config).describe(self._group).partitions
            except MembershipError as refused:
                raise TransportError(f"the ends of partitions could not be read: {refused}") from refused
            highs = {(each.topic, each.partition): each.end for each in known if each.end is not None}
        return {each: LogBounds(firsts[each], ends[each], highs.get(each, ends[each])) for each in requested}

    def commit(self, offsets: Mapping[Partition, int], taken_at: Mapping[Partition, int]) -> None:
        """Commit these offsets, if every partition of `taken_at` is still owned since its epoch there.

        Raises:
            FencedError: a partition was revoked or lost, or the member was replaced; nothing was committed.
            CommitError: the coordinator refused the commit, or did not respond; the text names the partitions.
        """
        if self._is_over.is_set():
            raise UseError("the read is closed; commit before close()")
        owned = _owned(self.consumer.membership())
        gone = [f"{topic}[{n}]" for (topic, n), at in sorted(taken_at.items()) if owned.get((topic, n)) != at]
        if gone:
            raise FencedError(
                f"the reader of group {self._group!r} lost {', '.join(gone)} during the read: nothing was committed, "
                f"and the new owner reads the same records; {self._refusal or 'another member joined the group'}"
            )
        if not offsets:
            return
        wanted = [TopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
        try:
            done = self.consumer.commit(offsets=wanted, asynchronous=False) or []
        except (FatalGroupError, CommitError) as refused:
            # A replacement may be reported by a heartbeat first, or by this commit.
            if isinstance(refused, CommitError) and refused.code not in REPLACED:
                raise
            raise FencedError(f"the reader of group {self._group!r} was replaced; nothing was committed") from refused
        failed = [each for each in done if each.error is not None]
        if failed:
            listed = ", ".join(f"{each.topic}[{each.partition}]: {each.error.str()}" for each in failed if each.error)
            raise CommitError(f"not committed: {listed}", failed[0].error.code() if failed[0].error else -1)

    def close(self) -> None:
        """Leave the group, so that other members receive the partitions at once. A second call has no effect."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        self.consumer.close(membership="leave")

    def _poll(self) -> None:
        while not self._is_over.is_set():
            try:
                event = self.consumer.poll(_POLL_S)
            except (MembershipError, KafkaException) as refused:
                self._refusal = refused
                _log.warning("The reader of group %s is no longer a member: %s", self._group, refused)
                return
            error = None if event is None else event.error()
            if error is not None:
                # The error that ended the membership arrives every second; it is logged once.
                if self._last_error is None or self._last_error.str() != error.str():
                    _log.info("The reader of group %s: %s", self._group, error.str())
                self._last_error = error


def _owned(view: MembershipView) -> dict[Partition, int]:
    return {(topic, number): epoch for (topic, number), epoch in view.owned.items()}
