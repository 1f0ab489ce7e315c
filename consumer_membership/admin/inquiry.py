"""The questions of one call, asked with backoff and within its time; a broker's refusals name group and remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from consumer_membership.admin import removal
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
    GroupClient,
    GroupDescription,
    MemberIdentity,
)
from consumer_membership.types import UNKNOWN_MEMBER_CODE, BrokerAddress, BrokerError, OffsetAndMetadata

AnswerT = TypeVar("AnswerT")

NOT_FOUND = "GROUP_ID_NOT_FOUND"
NOT_OFFERED = "UNSUPPORTED_VERSION"
GROUP_FORBIDDEN = "GROUP_AUTHORIZATION_FAILED"
#: What a broker says of a group that is there, and of another kind than it was asked for.
OTHER_KIND = "is not a"

_DESCRIBING, _REMOVING = "describing a group", "removing members"
_NEEDED_ACL = {_DESCRIBING: "DESCRIBE", _REMOVING: "READ"}


class Inquiry:
    """What one call asks about one group, within `timeout_s` in all.

    A coordinator's refusal comes out as GroupError or UnsupportedProtocolError, and TransportError where there is no
    answer in time: of a removal, any of the members may have been removed then.
    """

    def __init__(self, client: GroupClient, group_id: str, timeout_s: float) -> None:
        self._client = client
        self._group_id = group_id
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s

    async def report(self, *, with_offsets: bool) -> GroupReport:
        """The group, and how far it is."""
        with self._refusals_of(_DESCRIBING):
            coordinator, group = await self._describe()
            if not with_offsets:
                return GroupReport(group=group, coordinator=coordinator, partitions=())
            # First what is committed, then the ends: nothing read in between makes a lag negative.
            committed = await self._committed()
            partitions = partitions_of(group, committed)
            try:
                async with asyncio.timeout(self._left_s()):
                    ends = await end_offsets(self._client.cluster, partitions)
            except TimeoutError as late:
                raise TransportError("No broker answered in time when asked for the ends of partitions") from late
            return GroupReport(group=group, coordinator=coordinator, partitions=progress(group, committed, ends))

    async def committed(self) -> Committed:
        """All that the group has committed."""
        with self._refusals_of(_DESCRIBING):
            committed = await self._committed()
        return {partition: _as_written(found) for partition, found in committed.items()}

    async def _committed(self) -> Committed:
        return await self._persist(
            "committed offsets", lambda at, left_s: self._client.all_committed(at, self._group_id, left_s)
        )

    async def remove(
        self, asked: Sequence[MemberIdentity], *, everyone: bool, reason: str | None, dry_run: bool
    ) -> tuple[Removal, ...]:
        """Remove these members, or everyone; what became of each. A refusal means that nobody was removed."""
        before = await self._described(is_needed=everyone or dry_run)
        if everyone and before is not None:
            asked = [removal.identity_of(member) for member in before.members]
        if dry_run and before is not None:
            return tuple(removal.foreseen(one, before) for one in asked)
        sent = removal.without_doubles(asked, before)
        members = tuple(dict.fromkeys(sent.values()))
        if not members:
            return ()
        said = removal.full_reason(reason)
        with self._refusals_of(_REMOVING):
            answers = await self._persist(
                "the removal of members",
                lambda at, left_s: self._client.remove_members(at, self._group_id, members, said, left_s),
            )
        errors = dict(zip(members, answers, strict=True))
        # One that is not known to the coordinator left by itself, or was removed by an attempt whose answer was lost,
        # or is of a kind that this coordinator does not remove: who is there now tells.
        is_doubtful = any(error is not None and error.code == UNKNOWN_MEMBER_CODE for error in answers)
        after = await self._described(is_needed=False) if is_doubtful else None
        return tuple(removal.concluded(one, errors[sent[one]], before, after) for one in asked)

    # ---- asking ------------------------------------------------------------------------------------------------------

    async def _described(self, *, is_needed: bool) -> GroupDescription | None:
        """The group; None where its topics may not be described, unless the description is needed."""
        try:
            with self._refusals_of(_DESCRIBING, let_through=() if is_needed else (TOPIC_FORBIDDEN,)):
                return (await self._describe())[1]
        except BrokerRefusal:
            return None

    async def _describe(self) -> tuple[BrokerAddress, GroupDescription]:
        async def ask(coordinator: BrokerAddress, _: float) -> tuple[BrokerAddress, GroupDescription]:
            return coordinator, await described(self._client, coordinator, self._group_id, self._left_s)

        return await self._persist("the group", ask)

    async def _persist(self, what: str, ask: Callable[[BrokerAddress, float], Awaitable[AnswerT]]) -> AnswerT:
        return await self._client.cluster.with_coordinator(self._group_id, what, self._left_s(), ask)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - self._clock())

    @contextmanager
    def _refusals_of(self, act: str, let_through: Sequence[str] = ()) -> Iterator[None]:
        try:
            yield
        except BrokerRefusal as refusal:
            if refusal.error.name in let_through:
                raise
            raise _translated(refusal, self._group_id, act) from refusal


async def described(
    client: GroupClient, coordinator: BrokerAddress, group_id: str, left_s: Callable[[], float]
) -> GroupDescription:
    """The group as its coordinator has it, of whichever protocol it is; `left_s` says how long there is for it."""
    try:
        return await client.describe_consumer_group(coordinator, group_id, left_s())
    except BrokerRefusal as refusal:
        # Not there, or a classic group; or a broker without the consumer protocol.
        if refusal.error.name not in (NOT_FOUND, NOT_OFFERED):
            raise
        return await client.describe_classic_group(coordinator, group_id, left_s())


def _as_written(found: OffsetAndMetadata | BrokerError) -> OffsetAndMetadata | BrokerError:
    """Without the zero of C behind the text, which librdkafka's clients commit, and the drop-in as they do."""
    if isinstance(found, BrokerError):
        return found
    return replace(found, metadata=found.metadata.removesuffix("\0"))


def _translated(refusal: BrokerRefusal, group_id: str, act: str) -> MembershipError:
    """The refusal of `_DESCRIBING` or `_REMOVING` in words for whoever runs the script."""
    error = refusal.error
    if error.name == NOT_OFFERED:
        return UnsupportedProtocolError(error.message)
    return GroupError(f"group.id={group_id!r}: {_remedy(refusal, act)}", error.code)


def _remedy(refusal: BrokerRefusal, act: str) -> str:
    error = refusal.error
    if error.name == NOT_FOUND and OTHER_KIND in error.message:
        return (
            "the group is neither of the consumer protocol nor a classic one; share groups and streams groups have "
            "tools of their own (kafka-share-groups.sh, kafka-streams-groups.sh)"
        )
    if error.name == NOT_FOUND:
        return (
            "the cluster has no such group; check the spelling and bootstrap.servers. A group is there as long as it "
            "has members or committed offsets"
        )
    if error.name == GROUP_FORBIDDEN:
        needed = f"the ACL operation {_NEEDED_ACL[act]} on the group"
        return f"{act} is not allowed to this client ({error.name}); it needs {needed}"
    if error.name == TOPIC_FORBIDDEN:
        return (
            f"{act} is not allowed to this client ({error.name}); it needs the ACL operation DESCRIBE on every topic "
            "that the group's members subscribe to"
        )
    if refusal.retriable:
        return f"the group's coordinator was not ready in time ({error}); try again, or allow more time"
    return f"{act} was refused: {error}"
