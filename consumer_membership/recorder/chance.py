"""Random numbers and member ids for the core, with a record of each draw for the replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from consumer_membership.membership.backoff import Jitter

#: A random draw of the core: a number in [0, 1), or a member id.
Draw: TypeAlias = float | str


class Chance:
    """The source of the core's random numbers and member ids; it records each draw."""

    __slots__ = ("_jitter", "_new_member_id", "drawn")

    def __init__(self, jitter: Jitter, new_member_id: Callable[[], str]) -> None:
        self._jitter = jitter
        self._new_member_id = new_member_id
        self.drawn: list[Draw] = []

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        number = self._jitter()
        self.drawn.append(number)
        return number

    def new_member_id(self) -> str:
        """Return a new member id."""
        member_id = self._new_member_id()
        self.drawn.append(member_id)
        return member_id

    def take(self) -> tuple[Draw, ...]:
        """Return the draws since the last call."""
        if not self.drawn:
            return ()
        drawn = tuple(self.drawn)
        self.drawn.clear()
        return drawn
