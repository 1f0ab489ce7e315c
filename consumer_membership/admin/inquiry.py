"""Send the requests of one call with retries and within its timeout; errors name the group and the fix."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from consumer_membership.admin import removal
from consumer_membership.admin.access import AdminAccess, GroupRequests
from consumer_membership.admin.progress import (
    TOPIC_FORBIDDEN,
    Committed,
    GroupReport,
    end_offsets,
    partitions_of,
    progress,
)
from consumer_membership.admin.removal import Removal
from consumer_membership.errors import GroupError, MembershipError, TransportError, UnsupportedProtocolError
from consumer_membership.runtime.network.group_client import (
    BrokerRefusal,
    GroupDescription,
    MemberIdentity,
)
from consumer_membership.types import UNKNOWN_MEMBER_CODE, BrokerAddress, BrokerError, OffsetAndMetadata

AnswerT = TypeVar("AnswerT")

NOT_FOUND = "GROUP_ID_NOT_FOUND"
NOT_OFFERED = "UNSUPPORTED_VERSION"
GROUP_FORBIDDEN = "GROUP_AUTHORIZATION_FAILED"
#: A part of the broker's message for an existing group of another type.
OTHER_KIND = "is not a"

_DESCRIBING, _REMOVING = "describing a group", "removing members"
_NEEDED_ACL = {_DESCRIBING: "DESCRIBE", _REMOVING: "READ"}


class Inquiry:
    """Sends the requests of one call about one group, within `timeout_s` in total.

    An error from the coordinator becomes a GroupError or UnsupportedProtocolError. Without a response in time, a
    TransportError is raised; in that case, a removal may have removed some members.
    """

    def __init__(self, access: AdminAccess, group_id: str, timeout_s: float) -> None:
        self._cluster, self._groups = access.cluster, access.groups
        self._group_id = group_id
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s

    async def report(self, *, with_offsets: bool) -> GroupReport:
        """Return the group with its members and, if requested, its offsets."""
        with self._refusals_of(_DESCRIBING):
            coordinator, group = await self._describe()
            if not with_offsets:
                return GroupReport(group=group, coordinator=coordinator, partitions=())
            # Read the committed offsets before the ends, so that progress in between cannot make the lag negative.
            committed = await self._committed()
            partitions = partitions_of(group, committed)
            try:
                async with asyncio.timeout(self._left_s()):
                    ends = await end_offsets(self._cluster, partitions)
            except TimeoutError as late:
                raise TransportError("No broker returned the end offsets within the timeout") from late
            return GroupReport(group=group, coordinator=coordinator, partitions=progress(group, committed, ends))

    async def committed(self) -> Committed:
        """Return all committed offsets of the group."""
        with self._refusals_of(_DESCRIBING):
            committed = await self._committed()
        return {partition: _as_written(found) for partition, found in committed.items()}

    async def _committed(self) -> Committed:
        return await self._persist(
            "committed offsets", lambda at, left_s: self._groups.all_committed(at, self._group_id, left_s)
        )

    async def remove(
        self, requested: Sequence[MemberIdentity], *, all_members: bool, reason: str | None, dry_run: bool
    ) -> tuple[Removal, ...]:
        """Remove these or all members and return the result of each; if it raises GroupError, none was removed."""
        before = await self._described(is_needed=all_members or dry_run)
        if all_members and before is not None:
            requested = [removal.identity_of(member) for member in before.members]
        if dry_run and before is not None:
            return tuple(removal.foreseen(one, before) for one in requested)
        sent = removal.without_doubles(requested, before)
        members = tuple(dict.fromkeys(sent.values()))
        if not members:
            return ()
        logged = removal.full_reason(reason)
        with self._refusals_of(_REMOVING):
            answers = await self._persist(
                "the removal of members",
                lambda at, left_s: self._groups.remove_members(at, self._group_id, members, logged, left_s),
            )
        errors = dict(zip(members, answers, strict=True))
        # An unknown member left, or was removed by an attempt whose response was lost, or uses a protocol whose
        # members this coordinator cannot remove. The current members show which.
        is_doubtful = any(error is not None and error.code == UNKNOWN_MEMBER_CODE for error in answers)
        after = await self._described(is_needed=False) if is_doubtful else None
        return tuple(removal.concluded(one, errors[sent[one]], before, after) for one in requested)

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _described(self, *, is_needed: bool) -> GroupDescription | None:
        """Return the group, or None if its topics may not be described and the description is optional."""
        try:
            with self._refusals_of(_DESCRIBING, allowed=() if is_needed else (TOPIC_FORBIDDEN,)):
                return (await self._describe())[1]
        except BrokerRefusal:
            return None

    async def _describe(self) -> tuple[BrokerAddress, GroupDescription]:
        async def request(coordinator: BrokerAddress, _: float) -> tuple[BrokerAddress, GroupDescription]:
            return coordinator, await described(self._groups, coordinator, self._group_id, self._left_s)

        return await self._persist("the group", request)

    async def _persist(self, what: str, request: Callable[[BrokerAddress, float], Awaitable[AnswerT]]) -> AnswerT:
        return await self._cluster.with_coordinator(self._group_id, what, self._left_s(), request)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - self._clock())

    @contextmanager
    def _refusals_of(self, act: str, allowed: Sequence[str] = ()) -> Iterator[None]:
        try:
            yield
        except BrokerRefusal as refusal:
            if refusal.error.name in allowed:
                raise
            raise _translated(refusal, self._group_id, act) from refusal


async def described(
    groups: GroupRequests, coordinator: BrokerAddress, group_id: str, left_s: Callable[[], float]
) -> GroupDescription:
    """Return the coordinator's description of a group of either protocol; `left_s` returns the remaining seconds."""
    try:
        return await groups.describe_consumer_group(coordinator, group_id, left_s())
    except BrokerRefusal as refusal:
        # The group does not exist or is classic, or the broker does not support the consumer protocol.
        if refusal.error.name not in (NOT_FOUND, NOT_OFFERED):
            raise
        return await groups.describe_classic_group(coordinator, group_id, left_s())


def _as_written(found: OffsetAndMetadata | BrokerError) -> OffsetAndMetadata | BrokerError:
    """Remove the NUL character that librdkafka, and therefore this package, appends to the metadata of commits."""
    if isinstance(found, BrokerError):
        return found
    return replace(found, metadata=found.metadata.removesuffix("\0"))


def _translated(refusal: BrokerRefusal, group_id: str, act: str) -> MembershipError:
    """Return the error of `_DESCRIBING` or `_REMOVING` with a message for the operator."""
    error = refusal.error
    if error.name == NOT_OFFERED:
        return UnsupportedProtocolError(error.message)
    return GroupError(f"group.id={group_id!r}: {_remedy(refusal, act)}", error.code)


def _remedy(refusal: BrokerRefusal, act: str) -> str:
    error = refusal.error
    if error.name == NOT_FOUND and OTHER_KIND in error.message:
        return (
            "the group uses neither the consumer protocol nor the classic protocol; use kafka-share-groups.sh or "
            "kafka-streams-groups.sh for share groups and streams groups"
        )
    if error.name == NOT_FOUND:
        return (
            "the cluster has no group with this id; check group.id and bootstrap.servers. A group exists while it has "
            "members or committed offsets"
        )
    if error.name == GROUP_FORBIDDEN:
        needed = f"the ACL operation {_NEEDED_ACL[act]} on the group"
        return f"{act} is not allowed for this client ({error.name}); allow {needed}"
    if error.name == TOPIC_FORBIDDEN:
        return (
            f"{act} is not allowed for this client ({error.name}); allow the ACL operation DESCRIBE on every topic "
            "that the group's members subscribe to"
        )
    if refusal.retriable:
        return f"the group coordinator was not ready within the timeout ({error}); retry, or increase the timeout"
    return f"{act} failed: {error}"
