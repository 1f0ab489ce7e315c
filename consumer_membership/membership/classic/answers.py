"""What the coordinator's answers mean for a classic member: joins, syncs, heartbeats, leaves, and silence."""

from __future__ import annotations

from typing import assert_never

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignor import Assigned, AssignmentObserver, Assignor
from consumer_membership.membership.classic.leadership import AssignorNotified, NotifyAssignor
from consumer_membership.membership.classic.leading import Leading
from consumer_membership.membership.classic.lifecycle import key_of, topic_key
from consumer_membership.membership.classic.states import IN_GROUP, ClassicState
from consumer_membership.membership.classic.subscription import NO_GENERATION
from consumer_membership.membership.instance import removed_for_good
from consumer_membership.types import (
    FATAL_CODE,
    GROUP_FULL_CODE,
    NO_MEMBER_ID,
    UNKNOWN_MEMBER_CODE,
    BrokerError,
    GroupProtocol,
    TopicPartition,
)

_S = ClassicState
_V = ex.ClassicVerdict


class ClassicAnswers(Leading):
    """A classic member as far as its coordinator's answers move it."""

    # ---- joining ----

    def _on_join_answered(self, event: ex.JoinAnswered) -> None:
        if event.request_id != self._exchange:
            return
        self._exchange = None
        if self.state is not _S.JOINING:
            self.member_id = event.member_id
            return
        self._backoff.reset()
        self.last_heartbeat_at = self._now
        self.heartbeats.gathered(self._now)
        self.generation, self.member_id = event.generation, event.member_id
        self.place.joined()
        if event.protocol_name not in {assignor.name for assignor in self.classic.assignors}:
            words = f"the group chose the assignor {event.protocol_name!r}, which this member does not have"
            self._resign("the group chose an assignor that the member does not have")
            self._fail(BrokerError(code=FATAL_CODE, name="INCONSISTENT_GROUP_PROTOCOL", message=words))
            return
        self.rejoins_because = None
        self._transition(_S.SYNCING, f"generation {event.generation} has gathered")
        self._begin_generation(event)

    def _on_join_rejected(self, event: ex.JoinRejected) -> None:
        if event.request_id != self._exchange:
            return
        self._exchange = None
        if event.verdict is _V.MEMBER_ID_REQUIRED and self.member_id == NO_MEMBER_ID and event.member_id:
            self.member_id = event.member_id
        elif event.verdict is _V.MEMBER_ID_REQUIRED and self.state is _S.JOINING:
            # It has one, or is given none: no coordinator does that, and to obey at once would be a storm.
            self._obey(_V.RETRY, event.error)
        elif self.state is _S.JOINING and self._may_have_a_place(event.error):
            delay_s = 0.0 if self.place.asks_for_room else self._backoff.next_delay()
            self._join(f"rebalance failed due to {event.error.name}", delay_s=delay_s)
        elif self.state is _S.JOINING:
            self._obey(event.verdict, event.error)

    def _may_have_a_place(self, error: BrokerError) -> bool:
        """Whether a full group that refuses this static member may count it already, under an older member id."""
        if error.code != GROUP_FULL_CODE or not self.place.may_have_one(error, self._now):
            return False
        self.last_error = error
        return True

    def _on_room_answered(self, event: ex.ClassicLeft) -> None:
        """The removal of this instance's ghost was answered: join anew, or end."""
        ends = self.place.answered(event.verdict, event.error, self._now)
        self._out += self.place.notes
        self.place.notes.clear()
        if ends is not None:
            self._fail(ends)
            return
        self._join("room was made", delay_s=0.0 if event.error is None else self._backoff.next_delay())
        if event.error is not None and event.verdict is _V.REDISCOVER:
            self._lose_coordinator(event.error.name)

    def _on_sync_answered(self, event: ex.SyncAnswered) -> None:
        if event.request_id != self._exchange or self.state is not _S.SYNCING:
            return
        self._exchange = None
        self._backoff.reset()
        if self._is_outdated(event.assignment):
            return
        if not any(isinstance(one, AssignmentObserver) for one in self._chosen_assignors):
            self._take_share(event.assignment)
            return
        self._untold, self._notice = event.assignment, self._next_request_id()
        notice = NotifyAssignor(
            request_id=self._notice,
            generation=self.generation,
            assignor=self._protocol_name,
            assignment=Assigned(partitions=event.assignment, user_data=event.user_data),
        )
        self._out.append(notice)

    @property
    def _chosen_assignors(self) -> list[Assignor]:
        return [one for one in self.classic.assignors if one.name == self._protocol_name]

    def _on_assignor_notified(self, event: AssignorNotified) -> None:
        if event.request_id != self._notice or self._untold is None or self.state is not _S.SYNCING:
            return
        share, self._untold = self._untold, None
        if not self._is_outdated(share):
            self._take_share(share)

    def _is_outdated(self, assignment: frozenset[TopicPartition]) -> bool:
        """Whether the subscription changed meanwhile: nothing is applied then (rules 4.5)."""
        strange = sorted({p.topic for p in assignment} - self.topics)
        if strange:
            self._prepare(f"assigned topics that are not subscribed any more: {', '.join(strange)}")
        return bool(strange)

    def _take_share(self, assignment: frozenset[TopicPartition]) -> None:
        ownership = self.ownership
        self.last_share, self.share_generation = assignment, self.generation
        ownership.resolve({topic_key(p.topic): p.topic for p in assignment})
        ownership.take_target(frozenset(map(key_of, assignment)))
        # The application is told what each share brings, nothing too, as Java's and confluent-kafka's are.
        ownership.is_first = True
        self._gives_up = bool(ownership.surplus())
        self.heartbeats.stir()
        self._transition(_S.RECONCILE, f"the leader's assignment of generation {self.generation} is there")

    def _on_sync_rejected(self, event: ex.SyncRejected) -> None:
        if event.request_id == self._exchange and self.state is _S.SYNCING:
            self._exchange = None
            self._obey(event.verdict, event.error)

    def _on_exchange_failed(self, event: ex.ExchangeFailed) -> None:
        """No answer: the coordinator may have acted all the same; the member keeps its id (rules 4.7)."""
        if event.request_id == self._leave_request:
            self._left(f"the leave got no answer ({event.reason}); the session's end removes the member")
        elif event.request_id == self.heartbeats.in_flight:
            self.heartbeats.failed(self._now)
            self._lose_coordinator(event.reason)
        elif event.request_id == self._exchange and self.state is _S.UNSUBSCRIBING:
            self._exchange = None
        elif event.request_id == self.place.request:
            self.place.forget()
            self._join(f"no answer: {event.reason}", delay_s=self._backoff.next_delay())
            self._lose_coordinator(event.reason)
        elif event.request_id == self._exchange:
            if self.member_id == NO_MEMBER_ID:
                self.place.unanswered()
            self._join(f"no answer: {event.reason}", delay_s=self._backoff.next_delay())
            self._lose_coordinator(event.reason)

    def _on_left(self, event: ex.ClassicLeft) -> None:
        if event.request_id == self._leave_request:
            said = "confirmed the leave" if event.error is None else f"answered the leave with {event.error.name}"
            self._left(f"the coordinator {said}")
        elif event.request_id == self.place.request and self.state is _S.JOINING:
            self._on_room_answered(event)

    # ---- heartbeats and verdicts ----

    def _on_heartbeat(self, event: ex.ClassicHeartbeatAnswered | ex.ClassicHeartbeatRejected) -> None:
        if event.request_id != self.heartbeats.in_flight:
            return
        if isinstance(event, ex.ClassicHeartbeatAnswered) or event.verdict is _V.REJOIN_NOW:
            self.last_heartbeat_at = self._now
            self.heartbeats.confirmed(self._now)
        else:
            self.heartbeats.failed(self._now)
        if isinstance(event, ex.ClassicHeartbeatRejected):
            self._obey_heartbeat(event.verdict, event.error)

    def _obey_heartbeat(self, verdict: ex.ClassicVerdict, error: BrokerError) -> None:
        """What a heartbeat's error means: where it is no verdict on the membership, the heartbeat is repeated."""
        match verdict:
            case _V.RETRY | _V.REJOIN_LATER:
                self.last_error = error
            case _V.REDISCOVER:
                self.last_error = error
                self._lose_coordinator(error.name)
            case _V.REJOIN_NOW if self.state in (_S.STABLE, _S.RECONCILE):
                self.last_error = error
                self.rejoins_because = self.rejoins_because or "the group rebalances"
            case _V.REJOIN_NOW if self._exchange is not None or self.state is not _S.SYNCING:
                # A rebalance is being prepared for already, or the SyncGroup that is out will say so.
                self.last_error = error
            case _:
                self._obey(verdict, error)

    def _obey(self, verdict: ex.ClassicVerdict, error: BrokerError) -> None:
        """What an error of JoinGroup or SyncGroup means (rules 4.7): it leads back to JOINING, or ends."""
        self.last_error = error
        match verdict:
            case _V.RETRY | _V.REJOIN_LATER | _V.REDISCOVER:
                self._join(f"rebalance failed due to {error.name}", delay_s=self._backoff.next_delay())
                if verdict is _V.REDISCOVER:
                    self._lose_coordinator(error.name)
            case _V.REJOIN if self._was_removed_for_good(error):
                self._fail(removed_for_good(self.settings.instance_id, error))
            case _V.REJOIN:
                self._fence(error)
            case _V.REJOIN_KEEP_ID:
                self._fence(error, keeps_id=True)
            case _V.REJOIN_NOW:
                self._join(f"rebalance failed due to {error.name}")
            case _V.MEMBER_ID_REQUIRED | _V.FATAL:
                self._fail(error)
            case _:
                assert_never(verdict)

    def _was_removed_for_good(self, error: BrokerError) -> bool:
        """Whether a static member was taken out by an administrator (KIP-345's removal), not by its session's end.

        The session that it asked for began anew when the heartbeat that was answered last arrived. A member that has
        its share was written down, where a coordinator that moved may have forgotten it before, or have removed it for
        a SyncGroup that it was late with. In a group of the consumer protocol one that joins too late is removed.
        """
        confirmed_at = self.heartbeats.confirmed_at
        if not self.settings.is_static or self.state not in IN_GROUP or error.code != UNKNOWN_MEMBER_CODE:
            return False
        if confirmed_at is None or not NO_GENERATION != self.generation == self.share_generation:
            return False
        cannot_be_late = self.group_protocol is GroupProtocol.CLASSIC or self.state is _S.STABLE
        return cannot_be_late and self._now - confirmed_at < self.classic.session_timeout_s
