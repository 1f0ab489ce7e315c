"""The member by which a query holds its group: seen by everybody, and ended when somebody else reads in the group."""

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

#: For the partitions of a group that others are still to leave.
_JOIN_S = 60.0
#: Between two questions who else is in the group, while partitions are missing.
_ASK_S = 1.0


class GroupHold:
    """A group, held by one member for a query. Made, it has joined, and owns every partition of the topics."""

    def __init__(self, options: SourceOptions, group: str) -> None:
        self._group = group
        self._config = options.config
        self._instance_id = options.instance_id
        # The driver's JVM starts the process of each source, so all sources of an application share its process id.
        self._client_id = f"spark-{options.instance_id}-{socket.gethostname()}-{os.getppid()}"
        self._committed: OffsetsByPartition = {}
        self._asked_at = 0.0
        self._topics: tuple[str, ...] = ()
        self._member = ReaderMember(
            {"client.id": self._client_id, **options.config, "on_commit": self._heard},
            group,
            options.instance_id,
            policy=options.policy,
        )
        self.consumer = self._member.consumer

    def join(self, topics: Collection[str], partitions: Iterable[Partition]) -> None:
        """Join, and wait for every partition of these topics.

        Raises:
            FencedError: others are members of the group; the text names one.
            GroupError, TransportError: as `ReaderMember.join`.
        """
        self._topics = tuple(topics)
        self._member.join(list(topics), _JOIN_S)
        missing = set(partitions) - self._view().owned.keys()
        if missing:
            self._refuse_others()

    def follow(self, topics: Collection[str]) -> None:
        """Hold these topics from now on."""
        if tuple(topics) != self._topics:
            self._topics = tuple(topics)
            self._member.subscribe(list(topics))

    def is_held(self, partitions: Collection[Partition]) -> bool:
        """Whether the query may read on; not while the member is on its way back into its group.

        Raises:
            FencedError: the member was replaced, or somebody else in the group reads these partitions.
            GroupError: the coordinator refused the member.
        """
        view = self._view()
        if view.owned.keys() >= set(partitions):
            return True
        if monotonic() - self._asked_at > _ASK_S:
            self._asked_at = monotonic()
            self._refuse_others()
        # A partition that is new is read before the coordinator has heard of it; nobody else can have it.
        return view.state in (MemberState.STABLE, MemberState.ACK, MemberState.RECONCILE)

    def committed(self, partitions: Iterable[Partition]) -> OffsetsByPartition:
        """What the group has committed of these."""
        return self._member.committed(partitions)

    def commit(self, offsets: OffsetsByPartition) -> None:
        """Show where the query stands; without waiting, and what is refused is only logged and committed next time."""
        moved = [TopicPartition(*place, at) for place, at in offsets.items() if self._committed.get(place) != at]
        if not moved:
            return
        try:
            self.consumer.commit(offsets=moved, asynchronous=True)
            self._committed = {**self._committed, **offsets}
        except (KafkaException, MembershipError) as refused:
            _log.warning("Group %s does not show where its query stands: %s", self._group, refused)

    def close(self) -> None:
        """Leave the group for good."""
        self._member.close()

    def _view(self) -> MembershipView:
        """As `ReaderMember.view`; if another member took the place, the error names it."""
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
            _log.info("The members of group %s cannot be described: %s", self._group, refused)
            return ()

    def _heard(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Of a commit; what failed is committed again."""
        failed = [each for each in partitions if error is not None or each.error is not None]
        if failed:
            words = error.str() if error is not None else failed[0].error.str()  # type: ignore[union-attr]  # it failed
            _log.warning("Group %s does not show where its query stands: %s", self._group, words)
            places = {(each.topic, each.partition) for each in failed}
            self._committed = {place: at for place, at in self._committed.items() if place not in places}

    def _refuse_others(self) -> None:
        others = [each for each in self._members() if each.instance_id != self._instance_id]
        if others:
            other = others[0]
            name = other.instance_id or other.member_id
            raise FencedError(
                f"a query holds its group alone, and {name!r} (client {other.client_id!r} on {other.host}) is a member "
                f"of group {self._group!r}, too: it reads the same records; stop it, or give this query a group.id of "
                "its own"
            )
