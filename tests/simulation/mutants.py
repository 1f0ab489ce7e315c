"""Members that break a rule on purpose: the simulation and the exploration must catch each of them.

A mutant is a broken part of a member, and `made_with` creates members with this part. Some mutants are members
themselves, which change the effects that the core returns to the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import ClassVar

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.consumer.claim import InstanceClaim
from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.consumer.predecessor import Predecessor
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.consumer.successor import Successor
from consumer_membership.membership.effects import Effect, LosePartitions, RevokePartitions
from consumer_membership.membership.events import (
    AnnouncementsRead,
    HeartbeatAnswered,
    Polled,
    Step,
    StepFinished,
    Warmed,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.offsets import PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.protocol import GroupEffect, GroupEvent, MembershipEnd, ProtocolEvent
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.membership.states import MemberState, Trigger
from consumer_membership.runtime.network.outbox import Outbox, Turn
from consumer_membership.types import Assignment, Holder, Instant, Offsets, TopicPartition
from tests.simulation import internals

_S, _V = ClassicState, ex.ClassicVerdict
_NO_OFFSETS: Offsets = MappingProxyType({})
#: The name of the attribute that holds each kind of part.
_PLACES: Mapping[type, str] = {
    Reconciler: "reconciler",
    PendingCommits: "commits",
    Ownership: "ownership",
    Heartbeats: "heartbeats",
    InstanceClaim: "claim",
    Successor: "successor",
    Predecessor: "predecessor",
    ClassicSettings: "classic",
    ConsumerProtocol: "protocol",
    ClassicProtocol: "protocol",
}


def made_with(mutant: type) -> Callable[..., MemberCore]:
    """Return a factory of members in which this mutant replaces a part, or a mutant that is itself a member."""
    if issubclass(mutant, MemberCore):
        return mutant
    place = next(name for kind, name in _PLACES.items() if issubclass(mutant, kind))

    def make(*args: object, **arguments: object) -> MemberCore:
        member = MemberCore(*args, **arguments)  # type: ignore[arg-type]  # arguments are passed through
        internals.replace_part(member, place, mutant)
        return member

    return make


# ---- the order of requests ----


class WritesAtOnce(Outbox):
    """Writes each request as soon as possible, without waiting for earlier requests."""

    def enter(
        self, broker: object, begin: Callable[[], None], *, is_join: bool = False, is_leave: bool = False
    ) -> Turn:
        """Wait for no other request."""
        return Outbox().enter(broker, begin, is_join=is_join, is_leave=is_leave)


# ---- steps and commits, in both protocols ----


class _Finishes(MemberCore):
    """Treats the step `step` as finished as soon as the core orders it."""

    step: ClassVar[Step]
    order: ClassVar[type[Effect]]

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Report the step as finished immediately."""
        effects = super().handle(event, now)
        if not any(isinstance(effect, self.order) for effect in effects):
            return effects
        finished = StepFinished(attempt=self.newest_attempt, step=self.step)
        return (*effects, *super().handle(finished, now))


class TakesRevocationsForFinished(_Finishes):
    """Acknowledges, or joins, before the application has finished the revocation."""

    step, order = Step.REVOKE, RevokePartitions


class NeverOrdersOnLost(MemberCore):
    """Does not notify the application that its partitions are lost."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Leave out the order of on_lost."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, LosePartitions))


class KeepsDeliveringAfterFence(_Finishes):
    """Rejoins without on_lost, while the application still holds its partitions."""

    step, order = Step.LOSE, LosePartitions

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Leave out the order that was reported as finished."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, LosePartitions))


class RevokesBeforeTheCommitIsOver(Reconciler):
    """Orders on_revoke while the commit is in flight."""

    def _move_on(self, offsets: Offsets = _NO_OFFSETS) -> None:
        super()._move_on(offsets)
        if self.phase is Phase.COMMIT:
            super()._move_on()


class RevokesWithoutPause(Reconciler):
    """Orders on_revoke while records are still delivered."""

    def _following(self) -> Phase:
        following = super()._following()
        return Phase.REVOKE if following is Phase.PAUSE and self._revokes else following


class KeepsWhatItLost(Reconciler):
    """Keeps its partitions after it was fenced."""

    def lose(self) -> None:
        """Drop the partitions without an order of on_lost."""
        self._forget()
        self._enter(Phase.IDLE)


class LeavesAtOnce(Reconciler):
    """Sends its leave before the application has released its partitions."""

    def begin_leaving(self) -> None:
        """Revoke no partition."""
        self.attempt += 1
        self._end_attempt()
        self._enter(Phase.IDLE)


class RepeatsOldCommits(PendingCommits):
    """Sends a commit again although a newer commit has been sent since."""

    def _yields(self, commit: object) -> bool:  # noqa: ARG002 - the base class defines the signature
        return False

    def _overtaken(self, commit: object) -> dict:  # type: ignore[type-arg] # noqa: ARG002
        return {}


# ---- KIP-848 ----


class TakesNullForNothing(ConsumerProtocol):
    """Treats a null assignment, which means "unchanged", as an empty assignment."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Replace a missing assignment by an empty assignment."""
        if isinstance(event, HeartbeatAnswered):
            event = replace(event, assignment=event.assignment or frozenset())
        return super().handle(event)


class AdoptsAnyEpoch(ConsumerProtocol):
    """Adopts the epoch from a late answer to a leave (KAFKA-19335)."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Adopt the epoch of any answer to a leave, even if it is late."""
        conclusion = super().handle(event)
        if isinstance(event, HeartbeatAnswered) and event.member_epoch < 0:
            self.member_epoch = event.member_epoch
        return conclusion


class LeavesOutWhatIsBeingAssigned(Reconciler):
    """Omits partitions whose on_assign still runs from the owned partitions of a full heartbeat."""

    def claims(self) -> Assignment:
        """Return only the owned partitions."""
        return frozenset(self._ownership.owned)


class NeverBacksOff(Heartbeats):
    """Repeats a failed heartbeat immediately, as JOINING members of the Java client do."""

    def retry(self, now: Instant, *, after_backoff: bool) -> None:  # noqa: ARG002
        """Retry without backoff."""
        super().retry(now, after_backoff=False)


class RepeatsBare(Heartbeats):
    """Repeats a failed heartbeat without its fields, so that an acknowledgement may be lost."""

    def retry(self, now: Instant, *, after_backoff: bool) -> None:
        """Treat the fields of the failed heartbeat as received."""
        sent = self._sent
        super().retry(now, after_backoff=after_backoff)
        self._sent = sent


class TakesBack(InstanceClaim):
    """Takes its instance id back from the member that had taken it over."""

    def begin(self, *, subscribed_at: Instant | None) -> None:  # noqa: ARG002
        """Act as if the application had subscribed just now."""
        super().begin(subscribed_at=inf)


class IsNewestForEver(InstanceClaim):
    """Takes over if it has not joined yet, even if the application subscribed long ago."""

    def begin(self, *, subscribed_at: Instant | None) -> None:
        """Replace the time of the subscription by the latest possible time."""
        super().begin(subscribed_at=None if subscribed_at is None else inf)


class NeedsNoProof(InstanceClaim):
    """Takes over from a holder whose process may be alive."""

    def _checked(self, *, is_dead: bool) -> None:  # noqa: ARG002
        super()._checked(is_dead=True)


class TakesOverAgainAndAgain(InstanceClaim):
    """Takes over from every holder that it meets in one join."""

    def _take_over_from(self, holder: Holder) -> None:
        super()._take_over_from(holder)
        self._attempt.taken_from = None


class DescribesWithoutPause(InstanceClaim):
    """Describes the group again without a pause while it waits for an instance id."""

    def _look_up(self, at: Instant) -> None:  # noqa: ARG002
        """Describe the group now."""
        super()._look_up(self._event.now)


class AnnouncesItselfTooEarly(Successor):
    """Announces itself to the holder before on_warm has returned."""

    def _warm(self, holder: Holder) -> None:
        super()._warm(holder)
        self.warmed(Warmed(attempt=self._attempt))


class RequestsFromEachHolder(Successor):
    """Requests a hand-over from every holder of its fixed id that it meets in one join."""

    def _only_first(self, holders: Mapping[str, Holder]) -> Mapping[str, Holder]:
        return holders


class ReplacesAnyHolder(Successor):
    """Replaces a process of any age, even a process of the same deployment."""

    def _oldest(self, created: Mapping[str, int]) -> list[str]:
        return list(created)


class RequestsItsIdAgain(InstanceClaim):
    """Requests a hand-over although it was in the group before."""

    def _may_request_hand_over(self, holder: Holder | None, own: str) -> bool:  # noqa: ARG002
        return True


class TrustsItsLeave(InstanceClaim):
    """Treats its id as released although no answer to the leave arrived."""

    def _release_again(self, holders: Mapping[str, Holder], own: str) -> bool:  # noqa: ARG002
        """Send no second release."""
        return False


class KeepsItsMemberId(Predecessor):
    """Takes another id of the pool but keeps its member id, with which the coordinator still stores the released id."""

    def drops_released_id(self, instance_id: str | None) -> bool:  # noqa: ARG002
        """Keep the member id."""
        return False


class ServesAbsentSuccessors(Predecessor):
    """Releases its id again for an announcement whose successor did not join after the first release."""

    def announcements_read(
        self, event: AnnouncementsRead, own: str, instance_id: str | None, *, may_release: bool
    ) -> bool:
        """Forget the successors."""
        self._served.clear()
        return super().announcements_read(event, own, instance_id, may_release=may_release)


class TakesTheReleasedIdBack(Predecessor):
    """Joins again as soon as it has released its id."""

    @property
    def waits_until(self) -> Instant:
        """The time of the release, which reserves no time for the successor."""
        return self._released_at


class RejoinsAfterFatal(MemberCore):
    """Joins again at the next poll after its membership ended permanently."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Join after any fatal error."""
        effects = super().handle(event, now)
        is_dead = internals.shown(self) is MemberState.FATAL and internals.reconciler(self).is_idle
        if isinstance(event, Polled) and is_dead:
            internals.protocol(self).join(Trigger.RESUBSCRIBED, "another try")
        return (*effects, *self.context.event.effects()[len(effects) :])


# ---- classic ----


class KeepsWhatItHoldsEagerly(ClassicSettings):
    """Is eager, and revokes no partition before it joins."""

    @property
    def is_eager(self) -> bool:
        """Return False, as a cooperative member."""
        return False


class JoinsTooEarly(Ownership):
    """Joins the next generation of an eager group before the application has released its partitions."""

    __slots__ = ()

    def surplus(self) -> Assignment:
        """Return no partitions to revoke."""
        return frozenset()


class ClaimsWhatItGaveUp(MemberCore):
    """Names all partitions that it was ever assigned as owned partitions in its JoinGroup."""

    _once: frozenset[TopicPartition] = frozenset()

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Add the former partitions for every assignor."""
        if isinstance(event, ex.SyncAnswered):
            self._once |= event.assignment
        return tuple(self._with_former_partitions(effect) for effect in super().handle(event, now))

    def _with_former_partitions(self, effect: GroupEffect) -> GroupEffect:
        if not isinstance(effect, ex.SendJoin):
            return effect
        protocols = tuple((name, replace(one, owned=one.owned | self._once)) for name, one in effect.protocols)
        return replace(effect, protocols=protocols)


class TakesMoreThanItsShare(ClassicProtocol):
    """Takes all partitions, regardless of its assignment."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Add two partitions of each topic to the assignment."""
        if isinstance(event, ex.SyncAnswered):
            more = {TopicPartition(topic, number) for topic in self.topics for number in range(2)}
            event = replace(event, assignment=event.assignment | more)
        return super().handle(event)


class NeverJoinsAgain(ClassicProtocol):
    """Revokes the partitions that move, but does not join again. The leader starts no rebalance either."""

    def advance(self) -> MembershipEnd | None:
        """Drop the reason for the next join."""
        self.assignment.revokes, self.leader._repair_at = False, None
        return super().advance()


class IgnoresTheRebalance(ClassicProtocol):
    """Does not join when its heartbeat reports a rebalance."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Treat the rejection as a successful heartbeat."""
        if isinstance(event, ex.ClassicHeartbeatRejected) and event.verdict is _V.REJOIN_NOW:
            event = ex.ClassicHeartbeatAnswered(request_id=event.request_id)
        return super().handle(event)


class TakesNoMemberId(ClassicProtocol):
    """Joins again without the member id that the coordinator created (KIP-394)."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Drop the member id of the rejection."""
        return super().handle(replace(event, member_id="") if isinstance(event, ex.JoinRejected) else event)


_REJECTIONS = ex.JoinRejected | ex.SyncRejected | ex.ClassicHeartbeatRejected


class KeepsTheUnknownId(ClassicProtocol):
    """Repeats its join with a member id that is unknown to the coordinator."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Treat the end of the membership as the end of the generation."""
        if isinstance(event, _REJECTIONS) and event.verdict is _V.REJOIN:
            event = replace(event, verdict=_V.REJOIN_KEEP_ID)
        return super().handle(event)


class TakesAnySync(ClassicProtocol):
    """Treats the answer to an older SyncGroup as the answer to the current SyncGroup."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Give the answer the id of the request in flight."""
        if isinstance(event, ex.SyncAnswered) and self.requests.in_flight is not None:
            event = replace(event, request_id=self.requests.in_flight)
        return super().handle(event)


class StaysInItsGeneration(ClassicProtocol):
    """Keeps its partitions and its generation when the coordinator ends the generation."""

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Treat the end of the generation as a normal rebalance."""
        is_end = isinstance(event, _REJECTIONS) and event.verdict is _V.REJOIN_KEEP_ID
        if is_end and self.state in (_S.STABLE, _S.RECONCILE):
            event = replace(event, verdict=_V.REJOIN_NOW)  # type: ignore[arg-type]  # a rejection has a verdict
        return super().handle(event)
