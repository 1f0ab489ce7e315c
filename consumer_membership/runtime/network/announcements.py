"""Reads and writes the announcements for hand-overs, which are offset metadata of a helper group without members.

The helper group may have another coordinator than the member's group. It is looked up before the first request, and
again after each failure. Each request is sent once: the core decides when to repeat it.
"""

from __future__ import annotations

from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.membership.effects import CommitOffsets, ReadAnnouncements, WriteAnnouncement
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    AnnouncementsRead,
    AnnouncementWritten,
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
)
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.exchanges import REQUEST_TIMEOUT_S, exchange, unreached
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.translation.announcements import announcement_text, helper_group, parse_announcement
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, BrokerAddress, OffsetAndMetadata

#: The number of the commit; only one commit is in flight.
_COMMIT_ID = 1


class Announcements:
    """The announcements of one group, over the connections of a cluster."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group = GroupClient(cluster)
        self._group_id = helper_group(group_id)
        self._coordinator: BrokerAddress | None = None

    async def read(self, order: ReadAnnouncements) -> AnnouncementsRead | AnnouncementsNotRead:
        """Return the announcements at these partitions."""
        try:
            found = await self._group.fetch_committed(
                await self._find(),
                self._group_id,
                order.partitions,
                member_id=NO_MEMBER_ID,
                member_epoch=NO_EPOCH,
                require_stable=False,
                timeout_s=REQUEST_TIMEOUT_S,
            )
        except BrokerRefusal as refusal:
            self._coordinator = None
            is_refused = not (refusal.retriable or refusal.rediscover)
            return AnnouncementsNotRead(request_id=order.request_id, error=refusal.error, is_refused=is_refused)
        except (TransportError, UnsupportedProtocolError) as failure:
            self._coordinator = None
            return AnnouncementsNotRead(request_id=order.request_id, error=unreached(failure))
        announcements = {
            partition: announcement
            for partition, committed in found.items()
            if committed is not None and (announcement := parse_announcement(committed.metadata)) is not None
        }
        return AnnouncementsRead(request_id=order.request_id, announcements=announcements)

    async def write(self, order: WriteAnnouncement) -> AnnouncementWritten | AnnouncementNotWritten:
        """Write the announcement at its partition, or withdraw the one that is there."""
        commit = CommitOffsets(
            commit_id=_COMMIT_ID,
            offsets={order.partition: OffsetAndMetadata(offset=0, metadata=announcement_text(order.announcement))},
            member_id=NO_MEMBER_ID,
            member_epoch=NO_EPOCH,
            instance_id=None,
        )
        try:
            outcome = await exchange(
                self._cluster, await self._find(), self._group_id, commit, REQUEST_TIMEOUT_S, is_classic=False
            )
        except BrokerRefusal as refusal:
            is_refused = not (refusal.retriable or refusal.rediscover)
            return AnnouncementNotWritten(request_id=order.request_id, error=refusal.error, is_refused=is_refused)
        except (TransportError, UnsupportedProtocolError) as failure:
            return AnnouncementNotWritten(request_id=order.request_id, error=unreached(failure))
        if isinstance(outcome, CommitAnswered) and (error := outcome.errors[order.partition]) is None:
            return AnnouncementWritten(request_id=order.request_id)
        self._coordinator = None
        if isinstance(outcome, CommitAnswered) and error is not None:
            is_refused = outcome.verdict is CommitVerdict.FINAL
            return AnnouncementNotWritten(request_id=order.request_id, error=error, is_refused=is_refused)
        reason = outcome.reason if isinstance(outcome, CommitFailed) else "no response"
        return AnnouncementNotWritten(request_id=order.request_id, error=unreached(reason))

    async def _find(self) -> BrokerAddress:
        """Return the coordinator of the helper group.

        Raises:
            BrokerRefusal, TransportError, UnsupportedProtocolError: it could not be looked up.
        """
        if self._coordinator is None:
            self._coordinator = await self._cluster.find_coordinator(self._group_id, REQUEST_TIMEOUT_S)
        return self._coordinator
