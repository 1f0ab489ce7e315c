"""The state that the parts of a member share while one event is handled: time, identity, and output.

There is one output. Each part emits its orders as effects, in the order in which the effects have to be performed; no
part returns effects or keeps them for later.
"""

from __future__ import annotations

from typing import Protocol

from consumer_membership.membership.effects import CommitIdentity
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.types import Instant


class Identified(Protocol):
    """The object that has the identity with which the member fetches and commits: its protocol."""

    @property
    def identity(self) -> CommitIdentity:
        """The member id, the epoch or generation, and the instance id."""


class EventContext:
    """The event that is being handled. `now` is its moment; a member has one context for life.

    Only `MemberCore.handle` begins an event and takes its effects.
    """

    def __init__(self) -> None:
        self.now: Instant = 0.0
        self._effects: list[GroupEffect] = []
        self._last_request_id = 0
        #: Set before the first event.
        self._protocol: Identified

    def begin(self, now: Instant) -> None:
        """Begin to handle an event."""
        self.now, self._effects = now, []

    def emit(self, *effects: GroupEffect) -> None:
        """Order these effects, after all that were emitted before."""
        self._effects += effects

    def effects(self) -> tuple[GroupEffect, ...]:
        """Return the effects emitted since the event began."""
        return tuple(self._effects)

    def next_request_id(self) -> int:
        """Return a number for a request, never used before by this member."""
        self._last_request_id += 1
        return self._last_request_id

    # ---- the identity ----

    def use_protocol(self, protocol: Identified) -> None:
        """Take the member's identity from this protocol from now on."""
        self._protocol = protocol

    @property
    def identity(self) -> CommitIdentity:
        """The identity with which the member fetches and commits now."""
        return self._protocol.identity
