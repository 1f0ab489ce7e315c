"""The member with which a query owns its group; the query ends if another member reads in the group."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Iterable
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_membership.admin import GroupAdmin, MemberDescription
from consumer_membership.errors import FatalGroupError, FencedError, MembershipError
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.spark.context import Partition
from consumer_membership.spark.reader_member import ReaderMember
from consumer_membership.spark.source.offsets import OffsetsByPartition
from consumer_membership.spark.source.options import SourceOptions

_log = logging.getLogger("consumer_membership.spark.source")

#: How long to wait for partitions that other members must release.
_JOIN_S = 60.0
#: The interval of the checks for other members, while partitions are missing.
_CHECK_INTERVAL_S = 1.0


class GroupHold:
    """The member of a query in its group; after `join`, it owns every partition of the topics."""

    def __init__(self, options: SourceOptions, group: str) -> None:
        self._group = group
        self._config = options.config
        self._instance_id = options.instance_id
        # The driver's JVM starts the process of each source, so all sources of an application have its process id.
        self._client_id = f"spark-{options.instance_id}-{socket.gethostname()}-{os.getppid()}"
        self._committed: OffsetsByPartition = {}
        self._requested_at = 0.0
        self._topics: tuple[str, ...] = ()
        self._member = ReaderMember(
            {"client.id": self._client_id, **options.config, "on_commit": self._committed_or_failed},
            group,
            options.instance_id,
            policy=options.policy,
        )
        self.consumer = self._member.consumer

    def join(self, topics: Collection[str], partitions: Iterable[Partition]) -> None:
        """Join, and wait for every partition of these topics.

        Raises:
            FencedError: the group has other members; the text names one of them.
            GroupError, TransportError: as `ReaderMember.join`.
        """
        self._topics = tuple(topics)
        self._member.join(list(topics), _JOIN_S)
        missing = set(partitions) - self._view().owned.keys()
        if missing:
            self._refuse_others()

    def follow(self, topics: Collection[str]) -> None:
        """Change the subscription to these topics."""
        if tuple(topics) != self._topics:
            self._topics = tuple(topics)
            self._member.subscribe(list(topics))

    def is_held(self, partitions: Collection[Partition]) -> bool:
        """Return whether the query may continue to read; False while the member rejoins its group.

        Raises:
            FencedError: another member of the group reads these partitions.
            GroupError: the coordinator refused the member, for example because it was replaced.
        """
        view = self._view()
        if view.owned.keys() >= set(partitions):
            return True
        if monotonic() - self._requested_at > _CHECK_INTERVAL_S:
            self._requested_at = monotonic()
            self._refuse_others()
        # A new partition is read before the coordinator has assigned it; no other member can own it.
        return view.state in (MemberState.STABLE, MemberState.ACK, MemberState.RECONCILE)

    def committed(self, partitions: Iterable[Partition]) -> OffsetsByPartition:
        """Return the committed offsets of these partitions."""
        return self._member.committed(partitions)

    def commit(self, offsets: OffsetsByPartition) -> None:
        """Commit the query's offsets without waiting; failures are logged, and the offsets are committed next time."""
        moved = [
            TopicPartition(*partition, at) for partition, at in offsets.items() if self._committed.get(partition) != at
        ]
        if not moved:
            return
        try:
            self.consumer.commit(offsets=moved, asynchronous=True)
            self._committed = {**self._committed, **offsets}
        except (KafkaException, MembershipError) as refused:
            _log.warning("Group %s: the progress of its query could not be committed: %s", self._group, refused)

    def close(self) -> None:
        """Leave the group permanently."""
        self._member.close()

    def _view(self) -> MembershipView:
        """Return `ReaderMember.view()`; if another member took the place, the error names it."""
        try:
            return self._member.view()
        except FatalGroupError as refused:
            raise FatalGroupError(f"{refused}{self._who_replaced()}", refused.code) from refused

    def _who_replaced(self) -> str:
        holder = next((each for each in self._members() if each.instance_id == self._instance_id), None)
        if holder is None:
            return ""
        if holder.client_id == self._client_id:
            return (
                f"; two sources of this Spark application read in group {self._group!r}, as in a union or a join: use "
                "one source with several topics (subscribe=a,b), or give each source a group.id of its own"
            )
        return f"; {self._instance_id} is held by client {holder.client_id!r} on {holder.host}"

    def _members(self) -> tuple[MemberDescription, ...]:
        try:
            return tuple(GroupAdmin(self._config).describe(self._group, with_offsets=False).group.members)
        except MembershipError as refused:
            _log.info("The members of group %s could not be described: %s", self._group, refused)
            return ()

    def _committed_or_failed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Receive the result of a commit; failed offsets are committed again."""
        failed = [each for each in partitions if error is not None or each.error is not None]
        if failed:
            cause = error.str() if error is not None else failed[0].error.str()  # type: ignore[union-attr]  # it failed
            _log.warning("Group %s: the progress of its query could not be committed: %s", self._group, cause)
            refused = {(each.topic, each.partition) for each in failed}
            self._committed = {p: at for p, at in self._committed.items() if p not in refused}

    def _refuse_others(self) -> None:
        others = [each for each in self._members() if each.instance_id != self._instance_id]
        if others:
            other = others[0]
            name = other.instance_id or other.member_id
            raise FencedError(
                f"a query must be the only member of its group, but {name!r} (client {other.client_id!r} on "
                f"{other.host}) is also a member of group {self._group!r} and reads the same records; stop it, or give "
                "this query its own group.id"
            )
