"""The LeaveGroup requests of a classic member (KIP-800, KIP-1092): when it leaves, and what ends the leave (rules 4.8).

A static member stays in its group by default: its session continues, and its next process has its partitions.
"""

from __future__ import annotations

from consumer_membership.membership.classic.exchanges import ClassicLeft, SendClassicLeave
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import Left
from consumer_membership.types import NO_MEMBER_ID, Instant, LeaveOption

#: Java's reasons, which brokers log.
CLOSES = "the consumer is being closed"
EXPIRES = "consumer poll timeout has expired."


class ClassicLeave:
    """The leave of one member, whose id the caller knows."""

    def __init__(self, context: MemberContext) -> None:
        self._event = context.event
        self._settings = context.settings
        self._coordinator = context.coordinator
        self._leave = context.leave

    def send_and_forget(self, member_id: str, reason: str) -> None:
        """Leave permanently without waiting for a response, also as a static member."""
        if self._coordinator.is_known and member_id != NO_MEMBER_ID:
            self._send(self._event.next_request_id(), member_id, reason)

    def send(self, member_id: str, gives_up_at: Instant, *, is_joining: bool) -> Left | None:
        """Send the leave, once, after everything was released; None: its response has to come.

        `is_joining`: a JoinGroup is in flight. It may create a member, whose id comes with its response.
        """
        option = self._leave.option
        stays = option is LeaveOption.REMAIN or (self._settings.is_static and option is LeaveOption.DEFAULT)
        if member_id == NO_MEMBER_ID:
            has_to_wait = is_joining and not stays and self._event.now < self._leave.by
            return None if has_to_wait else Left("the member never joined")
        if stays:
            return Left("the member stays in the group until its session ends")
        if self._coordinator.is_known:
            request_id = self._event.next_request_id()
            self._send(request_id, member_id, CLOSES)
            self._leave.send(request_id, self._event.now)
        elif self._event.now >= gives_up_at:
            return Left("no coordinator was found to leave; the broker removes the member when its session ends")
        return None

    def _send(self, request_id: int, member_id: str, reason: str) -> None:
        order = SendClassicLeave(
            request_id=request_id, member_id=member_id, instance_id=self._settings.instance_id, reason=reason
        )
        self._event.emit(order)

    def answered(self, event: ClassicLeft) -> Left | None:
        """Return the end of the membership if this is the response to the leave; None: it is to another request."""
        if event.request_id != self._leave.request:
            return None
        outcome = "confirmed the leave" if event.error is None else f"answered the leave with {event.error.name}"
        return Left(f"the coordinator {outcome}")

    def unanswered(self, request_id: int, reason: str) -> Left | None:
        """Return the end of the membership if the leave got no response; None: it was another request."""
        if request_id != self._leave.request:
            return None
        return Left(
            f"the leave request was not answered ({reason}); the coordinator removes the member when its session ends"
        )
