"""The member of the group that a driver is while it has a bounded read: it owns partitions, and fetches nothing."""

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
_LOOK_S = 0.02
#: How often the coordinator is asked whether more partitions are to come.
_DESCRIBE_S = 0.5
_REQUEST_S = 30.0
_RIGHT_MISSING = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})


class LogBounds(NamedTuple):
    """The offsets of one partition's log: the first one, and that before which a read ends.

    Under `isolation.level=read_committed` the end is the first open transaction; a group may have committed more, up to
    the high watermark.
    """

    first: int
    end: int
    high_watermark: int


class ReaderMember:
    """A static member that owns what it gets of these topics, until it is closed.

    A thread of its own polls it, so that it answers to the group whatever the driver does.
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
                # Where a partition starts is the read's affair, and this member must not fail for want of an offset.
                "auto.offset.reset": "earliest",
                "group.id": group,
                "group.instance.id": instance_id,
                "group.instance.id.conflict.policy": policy.value,
                "client.id": config.get("client.id") or f"spark-{instance_id}",
                "enable.auto.commit": False,
            }
        )
        self._is_over = threading.Event()
        #: Why polling ended, and the last error that it gave.
        self._refusal: Exception | None = None
        self._complaint: KafkaError | None = None
        self._thread = threading.Thread(target=self._poll, name=f"consumer_membership-{instance_id}", daemon=True)

    def join(self, topics: Sequence[str], timeout_s: float) -> dict[Partition, int]:
        """Join, and return the partitions of these topics that are owned, with the epochs at which they were taken.

        It waits for those as well that other members are still to give up for it, as long as there is time.

        Raises:
            ConfigurationError: a topic does not exist.
            GroupError: the coordinator refused the member, or a right is missing.
            TransportError: it owns nothing in time; the text says what it waits for.
        """
        everything = set(partitions_of(self.consumer, topics, self._config))
        self.subscribe(topics)
        self._thread.start()
        deadline = monotonic() + timeout_s
        asked_at = 0.0
        while (now := monotonic()) < deadline:
            view = self.view()
            if view.state is MemberState.STABLE and view.owned:
                if view.owned.keys() >= everything:
                    break
                if now - asked_at > _DESCRIBE_S:
                    if not self._is_more_to_come(view):
                        break
                    asked_at = monotonic()
            self._is_over.wait(_LOOK_S)
        view = self.view()
        if not view.owned:
            raise TransportError(
                f"the reader of group {self._group!r} has no partition of {', '.join(topics)} after "
                f"{timeout_s:g} s: it is {view.state} and waits for {view.waits_for_text or 'nothing'}"
                f"{f'; {self._complaint.str()}' if self._complaint else ''}"
            )
        return _owned(view)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Own these topics from now on, and read nothing of them."""
        self.consumer.subscribe(list(topics), on_assign=lambda consumer, arriving: consumer.pause(arriving))

    def view(self) -> MembershipView:
        """What the member is.

        Raises:
            FencedError: another member took its place.
            GroupError: the coordinator refused it, or a right is missing.
        """
        view = self.consumer.membership()
        if view.state is MemberState.FATAL:
            words = self._refusal or view.last_error
            code = view.last_error.code if view.last_error else -1
            raise FatalGroupError(f"the coordinator refused the reader of group {self._group!r}: {words}", code)
        if self._complaint is not None and self._complaint.code() in _RIGHT_MISSING:
            # A member goes on asking until somebody grants it; whoever waits for a read is told.
            lacks = f"the reader of group {self._group!r} lacks a right: {self._complaint.str()}; grant it READ"
            raise GroupError(lacks, self._complaint.code())
        return view

    def _is_more_to_come(self, view: MembershipView) -> bool:
        """Whether the coordinator wants this member to have more: partitions that others are still to give up."""
        if view.protocol is GroupProtocol.CLASSIC:
            return False  # all of an assignment comes at once
        try:
            members = GroupAdmin(self._config).describe(self._group, with_offsets=False).group.members
        except MembershipError as refused:
            _log.info("Whether more partitions are to come to group %s cannot be told: %s", self._group, refused)
            return False
        mine = next((member for member in members if member.member_id == view.member_id), None)
        return mine is not None and mine.target is not None and not mine.target <= view.owned.keys()

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the group has committed of these; nothing for those of which it has committed nothing."""
        try:
            found = self.consumer.committed([TopicPartition(*p) for p in partitions], _REQUEST_S)
        except KafkaException as failed:
            raise TransportError(f"committed offsets cannot be had: {failed.args[0].str()}") from failed
        for each in found:
            if each.error is not None:
                raise TransportError(f"{each.topic}[{each.partition}]: no committed offset: {each.error.str()}")
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def logs(self, partitions: Iterable[Partition], committed: Mapping[Partition, int]) -> dict[Partition, LogBounds]:
        """Which offsets these partitions have; `committed` says where it matters what an open transaction hides."""
        asked = list(partitions)
        firsts, ends = (log_offsets(self.consumer, asked, which) for which in (EARLIEST, LATEST))
        highs: dict[Partition, int] = {}
        if any(committed.get(each, 0) > ends[each] for each in asked):
            try:
                known = GroupAdmin(self._config).describe(self._group).partitions
            except MembershipError as refused:
                raise TransportError(f"the ends of partitions cannot be had: {refused}") from refused
            highs = {(each.topic, each.partition): each.end for each in known if each.end is not None}
        return {each: LogBounds(firsts[each], ends[each], highs.get(each, ends[each])) for each in asked}

    def commit(self, offsets: Mapping[Partition, int], taken_at: Mapping[Partition, int]) -> None:
        """Commit these, if every partition of `taken_at` is still owned since the epoch there.

        Raises:
            FencedError: one was revoked or lost since, or the member was replaced; nothing was committed.
            CommitError: the coordinator refused, or did not answer; the text names the partitions.
        """
        if self._is_over.is_set():
            raise UseError("the read is closed; commit before close()")
        owned = _owned(self.consumer.membership())
        gone = [f"{topic}[{n}]" for (topic, n), at in sorted(taken_at.items()) if owned.get((topic, n)) != at]
        if gone:
            raise FencedError(
                f"the reader of group {self._group!r} lost {', '.join(gone)} while it was read: nothing was committed, "
                f"and whoever owns them reads the same records; {self._refusal or 'another member joined the group'}"
            )
        if not offsets:
            return
        wanted = [TopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
        try:
            done = self.consumer.commit(offsets=wanted, asynchronous=False) or []
        except (FatalGroupError, CommitError) as refused:
            # Either may come first: the heartbeat that says so, or this very commit.
            if isinstance(refused, CommitError) and refused.code not in REPLACED:
                raise
            raise FencedError(f"the reader of group {self._group!r} was replaced; nothing was committed") from refused
        failed = [each for each in done if each.error is not None]
        if failed:
            words = ", ".join(f"{each.topic}[{each.partition}]: {each.error.str()}" for each in failed if each.error)
            raise CommitError(f"not committed: {words}", failed[0].error.code() if failed[0].error else -1)

    def close(self) -> None:
        """Leave the group for good, so that others have the partitions at once. A second close is nothing."""
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
                _log.warning("The reader of group %s is no member any more: %s", self._group, refused)
                return
            error = None if event is None else event.error()
            if error is not None:
                # One that ended the membership comes once a second; once is enough.
                if self._complaint is None or self._complaint.str() != error.str():
                    _log.info("The reader of group %s: %s", self._group, error.str())
                self._complaint = error


def _owned(view: MembershipView) -> dict[Partition, int]:
    return {(topic, number): epoch for (topic, number), epoch in view.owned.items()}
