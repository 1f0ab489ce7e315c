"""The ids of `group.instance.id.pool`, of which a member claims a free one."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.backoff import Jitter
from consumer_membership.types import LEAVE_STATIC_EPOCH, Holder

#: How many of the pool's holders a warning names.
NAMED_HOLDERS = 3


class Pool:
    """The ids of one member's pool, and which of them were refused in this join; empty: there is no pool."""

    def __init__(self, ids: tuple[str, ...], jitter: Jitter) -> None:
        self._ids = ids
        self._jitter = jitter
        self._refused: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is a pool at all."""
        return bool(self._ids)

    def refuse(self, instance_id: str) -> None:
        """Another member has this id."""
        self._refused.add(instance_id)

    def forget_refusals(self) -> None:
        """Forget the refusals: the ids may be free by now."""
        self._refused.clear()

    def choose(self, holders: Mapping[str, Holder]) -> str | None:
        """Return an id to try; None: each is held, or was refused: the description may not show its holder yet."""
        free = [i for i in self._ids if i not in holders or holders[i].member_epoch == LEAVE_STATIC_EPOCH]
        fresh = [i for i in free if i not in self._refused]
        released = [i for i in fresh if i in holders]
        candidates = released or fresh
        return candidates[int(self._jitter() * len(candidates))] if candidates else None

    def describe_holders(self, holders: Mapping[str, Holder]) -> str:
        """Describe the holders of the ids."""
        known = [f"{i} is held by {holders[i]}" for i in self._ids if i in holders]
        shown = "; ".join(known[:NAMED_HOLDERS]) or "all of them were refused"
        return shown + (f"; and {len(known) - NAMED_HOLDERS} more" if len(known) > NAMED_HOLDERS else "")

    @property
    def exhaustion(self) -> str:
        """The error with its fix if no id is free."""
        return (
            f"all {len(self._ids)} ids of group.instance.id.pool are held ({self._ids[0]} ... "
            f"{self._ids[-1]}); add ids to the pool, close a member, or set group.instance.id.conflict.policy=wait"
        )
