"""What a member tells its leader in its JoinGroup: topics, and what it owns since which generation (KIP-792)."""

from __future__ import annotations

from dataclasses import dataclass

from consumer_membership.types import TopicPartition

#: The generation of a member that has none: new, reset, or of a client that does not tell it.
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """One member's subscription as its leader reads it (ConsumerProtocolSubscription v0-v3).

    `owned` are the partitions that the member says it owns, `generation` the one to which that belongs
    (`NO_GENERATION`: not told). `instance_id` comes with the JoinGroup answer, not with the bytes. `version` is the one
    in which the bytes were written.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack_id: str | None = None
    instance_id: str | None = None
    version: int = 3
