"""The leave of one member: its option, its deadlines, and its request."""

from __future__ import annotations

from consumer_membership.types import Instant, LeaveOption

#: The time limit of the response to the leave, repetitions included.
LEAVE_ANSWER_S = 5.0


class Leave:
    """The leave of one member. `by` is the time limit: first for commits and callbacks, then for the response."""

    def __init__(self) -> None:
        self.option = LeaveOption.DEFAULT
        self.since: Instant = 0.0
        self.by: Instant = 0.0
        self.request: int | None = None
        #: When the request is sent once more; None: its response is awaited, or it is not sent yet.
        self.repeat_at: Instant | None = None
        self._is_first = True

    @property
    def is_sent(self) -> bool:
        """Whether the request was sent, and its response is awaited."""
        return self.request is not None

    def begin(self, option: LeaveOption, now: Instant, timeout_s: float) -> None:
        """Begin the leave of the application, with its time limit."""
        self.option, self.since, self.by = option, now, now + timeout_s
        self._is_first = True

    def send(self, request_id: int, now: Instant) -> None:
        """Note that the request is sent under this number; a repetition has only the remaining time."""
        if self._is_first:
            self.by = now + LEAVE_ANSWER_S
        self.request, self.repeat_at, self._is_first = request_id, None, False

    def repeat(self, at: Instant) -> None:
        """Send the request once more at this moment."""
        self.repeat_at = at

    def expire_now(self, now: Instant) -> None:
        """Stop waiting."""
        self.by = now

    def end(self) -> None:
        """End the leave."""
        self.request = self.repeat_at = None
