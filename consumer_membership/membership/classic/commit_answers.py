"""The responses to commits of a classic member, which also show whether the group still knows it (rules 4.7).

A heartbeat response has the same information, so the member sends a heartbeat at once and acts on the response. A
commit that a rebalance overtook is repeated in the next generation for the partitions that the member kept; Java's
client leaves that to the application (RebalanceInProgressException).
"""

from __future__ import annotations

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.classic.exchanges import ClassicCommitAnswered, ClassicVerdict
from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.states import CLASSIC_IN_GROUP, ClassicState
from consumer_membership.membership.events import CommitVerdict
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import Fatal

_S, _V = ClassicState, ClassicVerdict


class CommitAnswers:
    """Passes the responses on to the pending commits, and returns the end of the membership if one shows it."""

    def __init__(self, context: MemberContext, heartbeats: ClassicHeartbeats) -> None:
        self._commits = context.commits
        self._coordinator = context.coordinator
        self._ownership = context.ownership
        self._heartbeats = heartbeats

    def handle(self, event: ClassicCommitAnswered, state: ClassicState, generation: int) -> Fatal | None:
        """Handle a response in this state; `generation` is the member's present one."""
        answer = event.answer
        if not self._commits.is_pending(answer.commit_id):
            return None
        is_of_this_generation = self._commits.epoch_of(answer.commit_id) == generation
        is_joining = state in (_S.JOINING, _S.SYNCING)
        if self._was_overtaken(event, may_be=is_joining or not is_of_this_generation):
            self._commits.answered(replace(answer, verdict=CommitVerdict.STALE_EPOCH))
            return None
        if answer.verdict is CommitVerdict.REDISCOVER:
            self._coordinator.search("a commit was rejected with NOT_COORDINATOR")
        self._commits.answered(answer)
        errors = [error for error in answer.errors.values() if error is not None]
        is_counted = state in CLASSIC_IN_GROUP or state is _S.UNSUBSCRIBING
        if event.membership is _V.FATAL and is_of_this_generation and is_counted and errors:
            return Fatal(errors[0])
        if event.membership is not None:
            self._heartbeats.send_now()
        return None

    def _was_overtaken(self, event: ClassicCommitAnswered, *, may_be: bool) -> bool:
        """Return whether a rebalance overtook the commit, so that the next generation commits retained partitions."""
        if not may_be or event.membership not in (_V.REJOIN_KEEP_ID, _V.REJOIN_NOW):
            return False
        refused = {partition for partition, error in event.answer.errors.items() if error is not None}
        return not refused.isdisjoint(self._ownership.named_owned)
