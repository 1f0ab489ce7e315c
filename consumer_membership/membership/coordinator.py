"""Where the group's coordinator is, as far as the member knows."""

from __future__ import annotations

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import FindCoordinator
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.history import History
from consumer_membership.types import TRANSPORT_CODE, WAIT_COORDINATOR_CODE, BrokerAddress, BrokerError, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A search for the coordinator that fails: its start, its cause, and how long waiting actions are kept.

    Actions that begin during the outage are kept for `min_wait_s` at least, and until the outage has lasted
    `max_wait_s`.
    """

    since: Instant
    cause: BrokerError
    max_wait_s: float
    min_wait_s: float

    def ends_for(self, begun_at: Instant) -> Instant:
        """Return the moment when an action that began at `begun_at` is given up."""
        return max(begun_at + self.min_wait_s, self.since + self.max_wait_s)

    def error(self, now: Instant) -> BrokerError:
        """Return the error of such an action: librdkafka's code, and the cause."""
        message = f"the group coordinator was not found within {now - self.since:.0f} s: {self.cause.message}"
        return BrokerError(code=WAIT_COORDINATOR_CODE, name="_WAIT_COORD", message=message)


class Coordinator:
    """The coordinator's address, or the search for it; at most one search runs at a time.

    The shell searches with backoff until it finds one, so that the core never repeats `FindCoordinator`.
    """

    def __init__(self, event: EventContext, history: History) -> None:
        self._event = event
        self._history = history
        self.address: BrokerAddress | None = None
        self.searching_since: Instant | None = None
        #: The last error of the search under way; None: no search, or no error yet.
        self.last_error: BrokerError | None = None

    @property
    def is_known(self) -> bool:
        """Whether requests can be sent."""
        return self.address is not None

    def found(self, address: BrokerAddress) -> None:
        """Store the address that a search found."""
        self.address = address
        self.searching_since = self.last_error = None

    def not_found(self, error: BrokerError) -> None:
        """Note that an attempt of the search failed; the search continues."""
        if self.searching_since is not None:
            self.last_error = error

    def forget(self) -> None:
        """The connection broke while nothing is to be sent: look the coordinator up before the next request."""
        self.address = None

    def search(self, reason: str) -> None:
        """Forget the address and search, unless a search runs already."""
        self.address = None
        if self.searching_since is None:
            self.searching_since = self._event.now
            self.last_error = None
            self._event.emit(FindCoordinator(reason=reason))

    def miss_answer(self, reason: str) -> None:
        """A request of a member in its group got no response: search, and have the view show the cause.

        During a search, its own failures explain more than requests that were in flight when it began.
        """
        if self.searching_since is None:
            self._history.note_error(BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason))
        self.search(reason)
