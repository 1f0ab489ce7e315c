"""Members that break a rule on purpose: the simulation and the exploration must catch each of them.

A mutant is sound but for one thing: a part of it is another one, or it hears or says something else than was said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.consumer.instance import InstanceClaim
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.effects import Effect, LosePartitions, RevokePartitions
from consumer_membership.membership.events import HeartbeatAnswered, Polled, Step, StepFinished
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.offsets import CommitIdentity, Commits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.protocol import Conclusion, GroupEffect, GroupEvent
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import Assignment, Holder, Instant, Offsets, TopicPartition
from tests.simulation import inside

_S, _V = ClassicState, ex.ClassicVerdict


class _Rebuilt(GroupMember):
    """A member with other parts."""

    broken: ClassVar[dict[str, type]]

    def __init__(self, *args: object, **words: object) -> None:
        super().__init__(*args, **words)  # type: ignore[arg-type] # passed on as they came
        for name, part in self.broken.items():
            inside.replace_part(self, name, part)


class _Mishearing(GroupMember):
    """A member that takes events for others."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """What it takes this event for."""
        raise NotImplementedError

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Handle what was heard."""
        return super().handle(self.hear(event), now)


class _Finishes(GroupMember):
    """Takes a step as finished when it is ordered; `step` says which one."""

    step: ClassVar[Step]
    order: ClassVar[type[Effect]]

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Answer the order oneself."""
        effects = super().handle(event, now)
        if not any(isinstance(effect, self.order) for effect in effects):
            return effects
        finished = StepFinished(attempt=self.newest_attempt, step=self.step)
        return (*effects, *super().handle(finished, now))


# ---- steps, whatever the protocol ----


class TakesRevocationsForFinished(_Finishes):
    """Acknowledges, or joins, before the application has finished the revocation."""

    step, order = Step.REVOKE, RevokePartitions


class NeverSaysLost(GroupMember):
    """Does not tell the application that everything is lost."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Leave the order out."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, LosePartitions))


class KeepsDeliveringAfterFence(_Finishes):
    """Rejoins before the application has given up what it held."""

    step, order = Step.LOSE, LosePartitions

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Do not tell the application either."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, LosePartitions))


class _CommitsInPassing(Reconciler):
    def _move_on(self, offsets: Offsets, identity: CommitIdentity, now: Instant) -> list[Effect]:
        effects = super()._move_on(offsets, identity, now)
        if self.phase is Phase.COMMIT:
            effects += super()._move_on({}, identity, now)
        return effects


class RevokesBeforeTheCommitIsOver(_Rebuilt):
    """Orders on_revoke while the commit is under way."""

    broken: ClassVar = {"reconciler": _CommitsInPassing}


class _NeverPauses(Reconciler):
    def _following(self) -> Phase:
        following = super()._following()
        return Phase.REVOKE if following is Phase.PAUSE and self._revokes else following


class RevokesWithoutPause(_Rebuilt):
    """Orders on_revoke while records are still delivered."""

    broken: ClassVar = {"reconciler": _NeverPauses}


class _LosesNothing(Reconciler):
    def lose(self, now: Instant) -> list[Effect]:
        super().lose(now)
        self._enter(Phase.IDLE, now)
        return []


class KeepsWhatItLost(_Rebuilt):
    """Goes on with what it held after it was fenced."""

    broken: ClassVar = {"reconciler": _LosesNothing}


class _LeavesWithAll(Reconciler):
    def begin_leaving(self, identity: CommitIdentity, now: Instant) -> list[Effect]:
        super().begin_leaving(identity, now)
        self.revoking = frozenset()
        self._enter(Phase.IDLE, now)
        return []


class LeavesAtOnce(_Rebuilt):
    """Says that it leaves before its application gave up anything."""

    broken: ClassVar = {"reconciler": _LeavesWithAll}


class _NeverYields(Commits):
    def _yields(self, commit: object) -> bool:  # noqa: ARG002 - the signature is the base's
        return False

    def _overtaken(self, commit: object) -> dict:  # type: ignore[type-arg] # noqa: ARG002
        return {}


class RepeatsOldCommits(_Rebuilt):
    """Sends a commit again although a younger one has been sent since."""

    broken: ClassVar = {"commits": _NeverYields}


# ---- KIP-848 ----


class TakesNullForNothing(_Mishearing):
    """Takes the assignment null, "unchanged", for "revoke all"."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """Nothing is assigned where nothing is said."""
        is_answer = isinstance(event, HeartbeatAnswered)
        return replace(event, assignment=event.assignment or frozenset()) if is_answer else event


class _AdoptsAny(ConsumerProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        conclusion = super().handle(event)
        if isinstance(event, HeartbeatAnswered) and event.member_epoch < 0:
            self.member_epoch = event.member_epoch
        return conclusion


class AdoptsAnyEpoch(_Rebuilt):
    """Adopts the epoch of a leave's answer that comes late (KAFKA-19335)."""

    broken: ClassVar = {"protocol": _AdoptsAny}


class _ClaimsOwnedOnly(Reconciler):
    def claims(self) -> Assignment:
        return frozenset(self._ownership.owned)


class LeavesOutWhatIsBeingAssigned(_Rebuilt):
    """States only what is owned in a complete heartbeat, though on_assign runs for more."""

    broken: ClassVar = {"reconciler": _ClaimsOwnedOnly}


class _Impatient(Heartbeats):
    def failed(self, now: Instant, *, back_off: bool) -> None:  # noqa: ARG002
        super().failed(now, back_off=False)


class NeverBacksOff(_Rebuilt):
    """Repeats a failed heartbeat at once, as Java's JOINING members do."""

    broken: ClassVar = {"heartbeats": _Impatient}


class _Forgetful(Heartbeats):
    def failed(self, now: Instant, *, back_off: bool) -> None:
        sent = self._sent
        super().failed(now, back_off=back_off)
        self._sent = sent


class RepeatsBare(_Rebuilt):
    """Repeats a failed heartbeat without its fields, so that an acknowledgement may be lost."""

    broken: ClassVar = {"heartbeats": _Forgetful}


class _AlwaysNewest(InstanceClaim):
    def begin(self, *, is_newest: bool) -> None:  # noqa: ARG002
        super().begin(is_newest=True)


class TakesBack(_Rebuilt):
    """Takes its instance id back from whoever took it over."""

    broken: ClassVar = {"instance": _AlwaysNewest}


class _NeverContent(InstanceClaim):
    def _take_over_from(self, holder: Holder) -> None:
        super()._take_over_from(holder)
        self._attempt.taken_from = None


class TakesOverAgainAndAgain(_Rebuilt):
    """Takes over from every holder that it meets in one join."""

    broken: ClassVar = {"instance": _NeverContent}


class ComesBackFromTheDead(GroupMember):
    """Joins again at the next poll after it ended for good."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Join, whatever ended it."""
        effects = super().handle(event, now)
        is_dead = inside.shown(self) is MemberState.FATAL and inside.reconciler(self).is_idle
        return (*effects, *inside.join_anew(self)) if isinstance(event, Polled) and is_dead else effects


# ---- classic ----


class _Grudging(ClassicSettings):
    @property
    def is_eager(self) -> bool:
        return False


class KeepsWhatItHoldsEagerly(GroupMember):
    """Is eager, and gives up nothing before it joins."""

    def __init__(self, *args: object, **words: object) -> None:
        super().__init__(*args, **words)  # type: ignore[arg-type] # passed on as they came
        inside.replace_classic_settings(self, _Grudging)


class _NothingToGiveUp(Ownership):
    __slots__ = ()

    def surplus(self) -> Assignment:
        return frozenset()


class JoinsTooEarly(_Rebuilt):
    """Joins an eager group's next generation before the application has given anything up."""

    broken: ClassVar = {"ownership": _NothingToGiveUp}


class ClaimsWhatItGaveUp(GroupMember):
    """Says in its JoinGroup that it owns what the leader gave it, whatever became of that."""

    _once: frozenset[TopicPartition] = frozenset()

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Say it in the name of every assignor."""
        if isinstance(event, ex.SyncAnswered):
            self._once |= event.assignment
        return tuple(self._said(effect) for effect in super().handle(event, now))

    def _said(self, effect: GroupEffect) -> GroupEffect:
        if not isinstance(effect, ex.SendJoin):
            return effect
        protocols = tuple((name, replace(one, owned=one.owned | self._once)) for name, one in effect.protocols)
        return replace(effect, protocols=protocols)


class TakesMoreThanItsShare(_Mishearing):
    """Takes all partitions, whatever the leader gave."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """Two partitions of a topic of which something is given."""
        if not isinstance(event, ex.SyncAnswered):
            return event
        topics = inside.subscribed_topics(self)
        more = {TopicPartition(topic, number) for topic in topics for number in range(2)}
        return replace(event, assignment=event.assignment | more)


class _NeverRejoins(ClassicProtocol):
    def advance(self) -> Conclusion | None:
        self._gives_up, self.leader._repair_at = False, None
        return super().advance()


class NeverJoinsAgain(_Rebuilt):
    """Gives up what moves, and leaves it at that; nor does the leader look after it."""

    broken: ClassVar = {"protocol": _NeverRejoins}


class IgnoresTheRebalance(_Mishearing):
    """Does not join when its heartbeat says that the group rebalances."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """All is well."""
        is_news = isinstance(event, ex.ClassicHeartbeatRejected) and event.verdict is _V.REJOIN_NOW
        return ex.ClassicHeartbeatAnswered(request_id=event.request_id) if is_news else event


class TakesNoMemberId(_Mishearing):
    """Joins again without the id that the coordinator made (KIP-394)."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """There is no id."""
        return replace(event, member_id="") if isinstance(event, ex.JoinRejected) else event


_REJECTIONS = ex.JoinRejected | ex.SyncRejected | ex.ClassicHeartbeatRejected


class KeepsTheUnknownId(_Mishearing):
    """Goes on joining with an id that the coordinator does not know."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """It is the generation that is over."""
        is_end = isinstance(event, _REJECTIONS) and event.verdict is _V.REJOIN
        return replace(event, verdict=_V.REJOIN_KEEP_ID) if is_end else event


class TakesAnySync(_Mishearing):
    """Takes the answer to an older SyncGroup for that of the present one."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """It is what is awaited."""
        awaited = inside.exchange(self) if isinstance(event, ex.SyncAnswered) else None
        return event if awaited is None else replace(event, request_id=awaited)


class StaysInItsGeneration(_Mishearing):
    """Keeps what it held, its generation too, when the coordinator says that the generation is over."""

    def hear(self, event: GroupEvent) -> GroupEvent:
        """The group rebalances."""
        is_end = isinstance(event, _REJECTIONS) and event.verdict is _V.REJOIN_KEEP_ID
        has_share = inside.state(self) in (_S.STABLE, _S.RECONCILE)
        return replace(event, verdict=_V.REJOIN_NOW) if is_end and has_share else event
