"""The invariants can fail: a member that breaks a rule on purpose is caught within a bounded number of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.consumer.instance import InstanceClaim
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.effects import Effect, LosePartitions, RevokePartitions
from consumer_membership.membership.events import Event, HeartbeatAnswered, Step, StepFinished
from consumer_membership.membership.offsets import Commits
from consumer_membership.membership.protocol import Conclusion, GroupEvent
from consumer_membership.membership.reconciler import Reconciler
from consumer_membership.types import Assignment, Holder, Instant
from tests.simulation.chaos import SimulationFailure, simulate
from tests.simulation.profiles import PROFILES
from tests.support.members import Member

MOST_SEEDS = 200


class _Finishes(Member):
    """Takes a step as finished when it is ordered; `step` says which one."""

    step: ClassVar[Step]
    order: ClassVar[type[Effect]]

    def handle(self, event: Event, now: Instant) -> tuple[Effect, ...]:
        """Answer the order oneself."""
        effects: Sequence[Effect] = super().handle(event, now)
        for effect in effects:
            if isinstance(effect, self.order):
                finished = StepFinished(attempt=self.reconciler.attempt, step=self.step)
                return (*effects, *super().handle(finished, now))
        return tuple(effects)


class AcknowledgesTooEarly(_Finishes):
    """Acknowledges a revocation that the application has not finished."""

    step, order = Step.REVOKE, RevokePartitions


class KeepsDeliveringAfterFence(_Finishes):
    """Rejoins before the application has given up what it held."""

    step, order = Step.LOSE, LosePartitions

    def handle(self, event: Event, now: Instant) -> tuple[Effect, ...]:
        """Do not tell the application either."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, LosePartitions))


class _TakesNull(ConsumerProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        if isinstance(event, HeartbeatAnswered):
            event = replace(event, assignment=event.assignment or frozenset())
        return super().handle(event)


class TakesNullForNothing(Member):
    """Takes the assignment null, "unchanged", for "revoke all"."""

    replaced: ClassVar = {"protocol": _TakesNull}


class _AdoptsAny(ConsumerProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        conclusion = super().handle(event)
        if isinstance(event, HeartbeatAnswered) and event.member_epoch < 0:
            self.member_epoch = event.member_epoch
        return conclusion


class AdoptsAnyEpoch(Member):
    """Adopts the epoch of a leave's answer that comes late (KAFKA-19335)."""

    replaced: ClassVar = {"protocol": _AdoptsAny}


class _ClaimsOwnedOnly(Reconciler):
    def claims(self) -> Assignment:
        return frozenset(self._ownership.owned)


class LeavesOutWhatIsBeingAssigned(Member):
    """States only what is owned in a complete heartbeat, though on_assign runs for more."""

    replaced: ClassVar = {"reconciler": _ClaimsOwnedOnly}


class _NeverYields(Commits):
    def _yields(self, commit: object) -> bool:  # noqa: ARG002 - the signature is the base's
        return False

    def _overtaken(self, commit: object) -> dict:  # type: ignore[type-arg] # noqa: ARG002
        return {}


class RepeatsOldCommits(Member):
    """Sends a commit again although a younger one has been sent since."""

    replaced: ClassVar = {"commits": _NeverYields}


class _Impatient(Heartbeats):
    def failed(self, now: Instant, *, back_off: bool) -> None:  # noqa: ARG002
        super().failed(now, back_off=False)


class NeverBacksOff(Member):
    """Repeats a failed heartbeat at once, as Java's JOINING members do."""

    replaced: ClassVar = {"heartbeats": _Impatient}


class _Forgetful(Heartbeats):
    def failed(self, now: Instant, *, back_off: bool) -> None:
        sent = self._sent
        super().failed(now, back_off=back_off)
        self._sent = sent


class RepeatsBare(Member):
    """Repeats a failed heartbeat without its fields, so that an acknowledgement may be lost."""

    replaced: ClassVar = {"heartbeats": _Forgetful}


class _AlwaysNewest(ConsumerProtocol):
    def join(self, reason: str) -> None:
        super().join(reason)
        self.instance.begin(is_newest=True)


class TakesBack(Member):
    """Takes its instance id back from whoever took it over."""

    replaced: ClassVar = {"protocol": _AlwaysNewest}


class _NeverContent(InstanceClaim):
    def _take_over_from(self, holder: Holder) -> None:
        super()._take_over_from(holder)
        self._attempt.taken_from = None


class TakesOverAgainAndAgain(Member):
    """Takes over from every holder that it meets in one join."""

    replaced: ClassVar = {"instance": _NeverContent}


MUTANTS: tuple[tuple[type[Member], str, str], ...] = (
    (AcknowledgesTooEarly, "misuse", "fetchable by|it owns"),
    (KeepsDeliveringAfterFence, "misuse", "joins anew while"),
    (TakesNullForNothing, "no faults", "not settled|too few|twice|it owns|changed"),
    (AdoptsAnyEpoch, "lossy network", "releases|sends a leave"),
    (LeavesOutWhatIsBeingAssigned, "everything", "it owns|fetchable by"),
    (RepeatsOldCommits, "lossy network", "backwards"),
    (NeverBacksOff, "coordinator moves", "heartbeats within a second|busy loop"),
    (RepeatsBare, "lossy network", "."),
    (TakesBack, "takeovers", "takes over from"),
    (TakesOverAgainAndAgain, "takeovers", "again and again"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "profile", "words"), MUTANTS, ids=[mutant.__name__ for mutant, _, _ in MUTANTS])
def test_broken_member_is_caught(mutant: type[Member], profile: str, words: str) -> None:
    """A test that cannot fail is a defect: each broken rule is noticed."""
    with pytest.raises(SimulationFailure, match=rf"Violation: .*({words})"):
        _run_seeds(mutant, profile)


def _run_seeds(mutant: type[Member], profile: str) -> None:
    for seed in range(MOST_SEEDS):
        simulate(seed, PROFILES[profile], mutant)
