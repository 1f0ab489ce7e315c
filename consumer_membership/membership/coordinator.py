"""Where the group's coordinator is, as far as the member knows."""

from __future__ import annotations

from consumer_membership.membership.effects import FindCoordinator
from consumer_membership.types import BrokerAddress, Instant


class Coordinator:
    """The coordinator's address, or the search for it; at most one search runs at a time.

    The shell searches with backoff until it finds one, so that the core never repeats `FindCoordinator`.
    """

    __slots__ = ("address", "searching_since")

    def __init__(self) -> None:
        self.address: BrokerAddress | None = None
        self.searching_since: Instant | None = None

    @property
    def is_known(self) -> bool:
        """Whether requests can be sent."""
        return self.address is not None

    def found(self, address: BrokerAddress) -> None:
        """Take the address that a search found."""
        self.address = address
        self.searching_since = None

    def forget(self) -> None:
        """The connection broke while nobody needs the coordinator: look it up when somebody does."""
        self.address = None

    def search(self, reason: str, now: Instant) -> list[FindCoordinator]:
        """Forget the address and search, unless a search runs already."""
        self.address = None
        if self.searching_since is not None:
            return []
        self.searching_since = now
        return [FindCoordinator(reason=reason)]
