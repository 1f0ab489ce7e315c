"""The history that a member keeps for its view: its transitions and its last error."""

from __future__ import annotations

from collections import deque

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.effects import Problem, RaiseToApplication, StateChanged
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import LastError, Transition
from consumer_membership.types import INVALID_PATTERN_CODE, BrokerError, Instant

#: Fatal errors whose cause is the subscription, so that another subscription ends them: INVALID_REGULAR_EXPRESSION.
SUBSCRIPTION_ERRORS = frozenset({INVALID_PATTERN_CODE})
#: Transitions kept for the view.
REMEMBERED_TRANSITIONS = 32


class History:
    """The transitions and the last error of one member; the observer or the application also receives them."""

    def __init__(self, event: EventContext) -> None:
        self._event = event
        #: When the present state began.
        self.since: Instant | None = None
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.last_error: LastError | None = None

    def note_transition(self, old: MemberState, new: MemberState, reason: str) -> None:
        """Note a change of the protocol's state, which the view shows only if the public states differ."""
        now = self._event.now
        self.since = now
        if old is not new:
            self._event.emit(StateChanged(old=old, new=new, reason=reason))
            self.transitions.append(Transition(at=now, old=old, new=new, reason=reason))

    def note_error(self, error: BrokerError) -> None:
        """Note an error that the view shows and the application does not receive."""
        self.last_error = LastError(error=error, at=self._event.now)

    def end_error(self) -> None:
        """Note that the member has recovered from its last error."""
        if self.last_error is not None and self.last_error.over_at is None:
            self.last_error = replace(self.last_error, over_at=self._event.now)

    def raise_to_application(self, problem: Problem, error: BrokerError, topic: str | None = None) -> None:
        """Note an error that the application receives."""
        self.last_error = LastError(error=error, at=self._event.now, topic=topic)
        notice = RaiseToApplication(
            problem=problem,
            error=error,
            topic=topic,
            ends_with_subscription=problem is Problem.FATAL and error.code in SUBSCRIPTION_ERRORS,
        )
        self._event.emit(notice)
