"""When a member of a classic group sends its next heartbeat, and when its session is over.

A heartbeat is how a member learns of a rebalance (REBALANCE_IN_PROGRESS). While everything is quiet one goes out on
`heartbeat.interval.ms`. While records flow a rebalance would stop or move some of them, so that the member asks more
often; and after a change, since another one often follows it: the second round of a cooperative rebalance, the next
member of a group that starts. The figures are those of `pace`.
"""

from __future__ import annotations

from math import inf

from consumer_membership.membership.backoff import Backoff
from consumer_membership.membership.pace import Pace
from consumer_membership.types import Instant

#: The first heartbeats after a change: members that start together are seldom together in the first generation, and
#: whoever has it alone could hear of the others some 40 ms later; until it asks, all of them wait.
FIRST_S = (0.02, 0.02, 0.02, 0.02, 0.05, 0.1)


class ClassicHeartbeats:
    """The heartbeat schedule of one member; `interval_s` is the longest time between two.

    `active_interval_s` is the time between two while records flow; 0 switches that off.
    """

    def __init__(self, interval_s: float, active_interval_s: float, session_timeout_s: float, backoff: Backoff) -> None:
        self._interval_s = interval_s
        self._active_interval_s = active_interval_s
        self._session_timeout_s = session_timeout_s
        self._backoff = backoff
        self.in_flight: int | None = None
        #: Whether records reached the application since its last poll but one.
        self._is_active = False
        self.pace = Pace(FIRST_S)
        self._sent_at: Instant = 0.0
        self._not_before: Instant = 0.0
        self._is_urgent = False
        self._session_since: Instant = 0.0
        #: When the last heartbeat that was answered had been sent: the session goes on from then at least.
        self.confirmed_at: Instant | None = None
        #: When the last generation gathered, until a heartbeat is answered in it.
        self._gathered_at: Instant | None = None

    # ---- when ----

    def spacing_s(self, *, is_attentive: bool) -> float:
        """Seconds from one heartbeat's sending to the next one's; an attentive member wants to hear of a rebalance."""
        if not is_attentive:
            return self._interval_s
        most_s = self._active_interval_s if self._is_active and self._active_interval_s > 0 else inf
        return self.pace.spacing_s(self._interval_s, most_s=most_s)

    def due_at(self, *, is_attentive: bool) -> Instant:
        """When the next heartbeat may be sent; after a failure the backoff counts, and not the interval."""
        if self._is_urgent or self._backoff.failures:
            return self._not_before
        return max(self._not_before, self._sent_at + self.spacing_s(is_attentive=is_attentive))

    @property
    def session_ends_at(self) -> Instant:
        """When the coordinator will have been silent for a session."""
        return self._session_since + self._session_timeout_s

    @property
    def heard_at(self) -> Instant | None:
        """When the coordinator surely counted this member in for the last time; None: never."""
        return self.confirmed_at if self._gathered_at is None else self._gathered_at

    # ---- what happens ----

    def gathered(self, now: Instant) -> None:
        """A generation has gathered: the coordinator has just heard of this member, and changes are under way."""
        self._session_since = self._sent_at = self._gathered_at = now
        self._recover()
        self.stir()

    def stir(self) -> None:
        """Something changed: heartbeat quickly for a while."""
        self.pace.stir()

    def note_activity(self, *, is_active: bool) -> None:
        """Note whether records flow."""
        self._is_active = is_active

    def sending(self, request_id: int, now: Instant) -> None:
        """A heartbeat goes out under this number."""
        self.in_flight = request_id
        self._sent_at = now
        self._is_urgent = False
        self.pace.beat()

    def confirmed(self, now: Instant) -> None:
        """The session goes on: a success, or the news of a rebalance."""
        self.in_flight = None
        self.pace.answered(now - self._sent_at)
        self.confirmed_at, self._gathered_at = self._sent_at, None
        self._session_since = now
        self._recover()

    def failed(self, now: Instant) -> None:
        """The heartbeat in flight was refused for a while, or got no answer: repeat it after a backoff."""
        self.in_flight = None
        self._not_before = now + self._backoff.next_delay()

    def hurry(self) -> None:
        """Ask at once, for there is something to hear; a backoff counts all the same."""
        self._is_urgent = True

    def search_anew(self, now: Instant) -> None:
        """The coordinator was silent for a session: it is looked up, and has another session to answer."""
        self._session_since = now

    def forget(self) -> None:
        """No answer is waited for any more."""
        self.in_flight = None
        self._is_urgent = False

    def _recover(self) -> None:
        self._backoff.reset()
        self._not_before = 0.0
