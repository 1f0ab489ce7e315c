"""The member of a static member's former process, which a full classic group still counts.

A coordinator checks the size of the group before the instance id (KIP-389), so a full group refuses a returning
process, in every version, because it counts the member of its former process. The newest process with an instance id
owns it in a classic group anyway, so it has the former member removed (LeaveGroup with the instance id alone, KIP-345)
and joins again. The group rebalances for that, as it would at the end of the former member's session.

| response to the removal | action |
|---|---|
| success | join at once; if another member was faster, the member ends |
| UNKNOWN_MEMBER_ID | no member has this instance id: the group is full of other members, and the member ends |
| a temporary error, or no response | join again after a pause; if the group is still full, repeat the removal |
| another refusal | join again and again, until the former member's session is over |

Only a process that the application just started is the newest. A process that was in the group, and is out of it now,
may be the older of two: if the group is full, its member ends.

A new member id is written to the log with its generation's assignment, not before: a coordinator that takes over in
between knows only the stale member, and fences this one. If the newest member was never written to the log, it joins
once more, without its member id. That happens only once, so that one of two live processes with the same instance id
ends.
"""

from __future__ import annotations

from consumer_membership.membership.classic.exchanges import ClassicVerdict, SendClassicLeave
from consumer_membership.membership.effects import Warned
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.protocol import GRACE_S, Fatal
from consumer_membership.types import FENCED_INSTANCE_CODE, NO_MEMBER_ID, BrokerError, Instant

#: The reason in the broker's log.
REMOVAL_REASON = "the process with this instance id restarted, and the group is full"


class FormerMember:
    """The removal of the former member, if the group is full; a dynamic member has none.

    `request` is the number of the removal in flight, `refused` the error of the join that was refused.
    """

    def __init__(self, event: EventContext, instance_id: str | None, session_timeout_s: float) -> None:
        self._event = event
        self._instance_id = instance_id
        self._max_wait_s = session_timeout_s + GRACE_S
        self._is_newest = False
        self._is_unwritten = False
        self._has_removed = False
        self._must_not_remove = False
        self.request: int | None = None
        self.refused: BrokerError | None = None
        #: Since when this member waits for the end of the former member's session.
        self.waits_since: Instant | None = None

    # ---- the way into the group ----

    def begin(self, *, is_newest: bool) -> None:
        """Begin a join; `is_newest`: because the application subscribed, not because of a fence or a missed poll.

        A member that was never accepted stays the newest, whatever interrupted it.
        """
        self._is_newest |= is_newest
        self._has_removed = self._must_not_remove = False
        self.forget()

    def unanswered(self) -> None:
        """Continue after a join without a member id got no response: the coordinator may have created a member."""
        self._is_newest = True

    def joined(self, *, has_new_id: bool) -> None:
        """Continue as a member that the coordinator accepted: from now on a newer one may replace it."""
        self._is_unwritten |= self._is_newest and has_new_id
        self._is_newest = False
        self.forget()

    def written(self) -> None:
        """Note that the generation has its assignment: from now on every coordinator knows the member."""
        self._is_unwritten = False

    def may_rejoin_without_id(self, error: BrokerError) -> bool:
        """Return whether the member, which the coordinator fences, may join once more without its member id."""
        comes_back = self._instance_id is not None and self._is_unwritten and error.code == FENCED_INSTANCE_CODE
        if comes_back:
            self._is_unwritten = False
        return comes_back

    def forget(self) -> None:
        """Stop all requests and waiting."""
        self.request = self.refused = self.waits_since = None

    # ---- a full group ----

    def may_be_counted(self, error: BrokerError) -> bool:
        """Return whether the full group may count the former member, so that this refusal is not the end."""
        if self._instance_id is None or not self._is_newest or self._has_removed:
            return False
        self.refused = error
        return self.waits_since is None or self._event.now < self.waits_since + self._max_wait_s

    @property
    def removal_is_due(self) -> bool:
        """Whether the former member's removal is to be requested now."""
        return self.refused is not None and self.request is None and not self._must_not_remove

    def waits_until(self) -> Instant | None:
        """Return the latest moment at which the former member's session ends."""
        return None if self.waits_since is None else self.waits_since + self._max_wait_s

    def describe(self) -> str | None:
        """Describe what this member waits for; None: nothing."""
        held = f"the group is full, and the coordinator still counts the former member of '{self._instance_id}'"
        if self.request is not None:
            return f"{held}; waiting for its removal"
        if self.waits_since is not None:
            return f"{held}; waiting until its session ends"
        return None

    def remove(self) -> None:
        """Request the removal of the former member."""
        self.request = request_id = self._event.next_request_id()
        order = SendClassicLeave(
            request_id=request_id, member_id=NO_MEMBER_ID, instance_id=self._instance_id, reason=REMOVAL_REASON
        )
        self._event.emit(order)

    # ---- the answer ----

    def answered(self, verdict: ClassicVerdict, error: BrokerError | None) -> Fatal | None:
        """Process the response to the removal."""
        refused, self.request, self.refused = self.refused, None, None
        if error is None:
            self._has_removed, self.waits_since = True, None
            self._warn("it was removed, and the group rebalances")
        elif verdict is ClassicVerdict.REJOIN:
            return None if refused is None else Fatal(refused)
        elif verdict is ClassicVerdict.FATAL:
            self._must_not_remove, self.waits_since = True, self._event.now
            self._warn(f"it cannot be removed ({error}); its session ends within {self._max_wait_s:.0f} s")
        return None

    def _warn(self, then: str) -> None:
        message = (
            f"The group is full, and the coordinator still counts the former member of '{self._instance_id}': {then}"
        )
        self._event.emit(Warned(message=message))
