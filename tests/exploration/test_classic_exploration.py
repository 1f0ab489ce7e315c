"""Small worlds of classic members explored to their end, and classic members that break a rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import RevokePartitions
from consumer_membership.membership.events import Step, StepFinished
from consumer_membership.membership.protocol import Conclusion, GroupEffect, GroupEvent
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.types import BrokerError, Instant, TopicPartition
from tests.exploration.classic.process import ClassicProcess
from tests.exploration.classic.worlds import CLASSIC, CLASSIC_WORLDS
from tests.exploration.fork import fork, key_of
from tests.exploration.model import Model
from tests.exploration.process import TOPIC
from tests.exploration.search import Outcome, Search
from tests.support.members import ClassicMember

#: A mutant that takes longer to find is no use as a check of the checks.
MOST_SECONDS = 90.0
_S = ClassicState
_V = ex.ClassicVerdict


class _CommitsInPassing(Reconciler):
    """Does not wait for the end of the commit before a revocation."""

    def _move_on(self, offsets, identity, now):  # noqa: ANN001, ANN202 - the base's
        effects = super()._move_on(offsets, identity, now)
        if self.phase is Phase.COMMIT:
            effects += super()._move_on({}, identity, now)
        return effects


class _LosesNothing(Reconciler):
    """Forgets to tell the application that everything is lost."""

    def lose(self, now):  # noqa: ANN001, ANN202 - the base's
        super().lose(now)
        self._enter(Phase.IDLE, now)
        return []


class RevokesBeforeTheCommitIsOver(ClassicMember):
    """Orders on_revoke while the commit is under way."""

    replaced: ClassVar = {"reconciler": _CommitsInPassing}


class KeepsWhatItLost(ClassicMember):
    """Goes on with what it held after it was fenced."""

    replaced: ClassVar = {"reconciler": _LosesNothing}


class _KeepsAll(ClassicProtocol):
    def _kept(self):  # noqa: ANN202 - the base's
        return frozenset(self._parts.ownership.owned)


class KeepsWhatItHoldsEagerly(ClassicMember):
    """Is eager, and gives up nothing before it joins."""

    replaced: ClassVar = {"protocol": _KeepsAll}


class _ClaimsAll(ClassicProtocol):
    _once: frozenset[TopicPartition] = frozenset()

    def _words_for(self, name):  # noqa: ANN001, ANN202 - the base's
        words = super()._words_for(name)
        return replace(words, owned=words.owned | self._once)

    def _take_share(self, share) -> None:  # noqa: ANN001 - the base's
        self._once |= share
        super()._take_share(share)


class ClaimsWhatItGaveUp(ClassicMember):
    """Says in its JoinGroup that it owns what the leader gave it, whatever became of that."""

    replaced: ClassVar = {"protocol": _ClaimsAll}


class JoinsBeforeItGaveUp(ClassicMember):
    """Takes on_revoke as finished when it is ordered."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Answer the order oneself."""
        effects = super().handle(event, now)
        if not any(isinstance(effect, RevokePartitions) for effect in effects):
            return effects
        finished = StepFinished(attempt=self.reconciler.attempt, step=Step.REVOKE)
        return (*effects, *super().handle(finished, now))


class _TakesAll(ClassicProtocol):
    def _take_share(self, share) -> None:  # noqa: ANN001 - the base's
        super()._take_share(share | {TopicPartition(TOPIC, number) for number in range(2)})


class TakesMoreThanItsShare(ClassicMember):
    """Takes all partitions, whatever the leader gave."""

    replaced: ClassVar = {"protocol": _TakesAll}


class _StaysAsItIs(ClassicProtocol):
    def _take_share(self, share) -> None:  # noqa: ANN001 - the base's
        super()._take_share(share)
        self._gives_up = False

    def _advance_stable(self) -> Conclusion | None:
        self.leader._repair_at = None
        return super()._advance_stable()


class NeverJoinsAgain(ClassicMember):
    """Gives up what moves, and leaves it at that; nor does the leader look after it."""

    replaced: ClassVar = {"protocol": _StaysAsItIs}


class _Deaf(ClassicProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        if isinstance(event, ex.ClassicHeartbeatRejected) and event.verdict is _V.REJOIN_NOW:
            event = ex.ClassicHeartbeatAnswered(request_id=event.request_id)
        return super().handle(event)


class IgnoresTheRebalance(ClassicMember):
    """Does not join when its heartbeat says that the group rebalances."""

    replaced: ClassVar = {"protocol": _Deaf}


class _Nameless(ClassicProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        return super().handle(replace(event, member_id="") if isinstance(event, ex.JoinRejected) else event)


class TakesNoMemberId(ClassicMember):
    """Joins again without the id that the coordinator made (KIP-394)."""

    replaced: ClassVar = {"protocol": _Nameless}


class _KeepsItsId(ClassicProtocol):
    def _fence(self, error: BrokerError, *, keeps_id: bool = False) -> Conclusion | None:  # noqa: ARG002 - the base's
        return super()._fence(error, keeps_id=True)


class KeepsTheUnknownId(ClassicMember):
    """Goes on joining with an id that the coordinator does not know."""

    replaced: ClassVar = {"protocol": _KeepsItsId}


class LeavesAtOnce(ClassicMember):
    """Says that it leaves before its application gave up anything."""

    def _advance_leave(self) -> None:
        if not self.parts.leave.is_sent and self.member_id:
            self._conclude(self._protocol.leave(self.parts.leave.by))
        else:
            super()._advance_leave()


class _TakesAnyShare(ClassicProtocol):
    def handle(self, event: GroupEvent) -> Conclusion | None:
        if isinstance(event, ex.SyncAnswered):
            event = replace(event, request_id=self._exchange or event.request_id)
        return super().handle(event)


class TakesAnySync(ClassicMember):
    """Takes the answer to an older SyncGroup for that of the present one."""

    replaced: ClassVar = {"protocol": _TakesAnyShare}


class _StaysOn(ClassicProtocol):
    def _fence(self, error: BrokerError, *, keeps_id: bool = False) -> Conclusion | None:
        if not keeps_id or self.state not in (_S.STABLE, _S.RECONCILE):
            return super()._fence(error, keeps_id=keeps_id)
        self.rejoins_because = "the generation is over"
        return None


class StaysInItsGeneration(ClassicMember):
    """Keeps what it held, its generation too, when the coordinator says that the generation is over."""

    replaced: ClassVar = {"protocol": _StaysOn}


#: The member, its world with budgets that suffice, what is found, and in how many steps at most.
MUTANTS: tuple[tuple[type[ClassicMember], str, Mapping[str, int], str, int], ...] = (
    (RevokesBeforeTheCommitIsOver, "classic slow", {"start": 1}, "before the commit was over", 4),
    (KeepsWhatItLost, "classic", {"start": 1, "session": 1}, "joins anew while|fetchable by|it owns", 8),
    (KeepsWhatItHoldsEagerly, "classic eager", {"start": 1}, "joins anew while", 4),
    (ClaimsWhatItGaveUp, "classic", {"start": 1}, "says that it owns", 4),
    (JoinsBeforeItGaveUp, "classic", {"start": 1}, "says that it owns|while step", 4),
    (TakesMoreThanItsShare, "classic late", {"start": 1}, "fetchable by", 4),
    (NeverJoinsAgain, "classic", {"start": 1}, "not everything once", 4),
    (IgnoresTheRebalance, "classic", {"start": 1}, "is JOINING|is SYNCING|not done", 4),
    (TakesNoMemberId, "classic", {"start": 1}, "is JOINING", 4),
    (KeepsTheUnknownId, "classic", {"start": 1, "session": 1}, "is JOINING|not done", 8),
    (LeavesAtOnce, "classic three", {"start": 1, "leave": 1}, "leaves before", 4),
    (TakesAnySync, "classic", {"start": 1, "duplicate": 1}, "not everything once", 16),
    (StaysInItsGeneration, "classic static", {"crash": 1, "start": 1, "rebalance": 1}, "keeps its generation", 16),
)

#: Worlds with budgets that a few seconds suffice to explore to their end.
SMALL: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("classic", {"start": 1}),
    ("classic", {"leave": 1}),
    ("classic static", {"crash": 1, "start": 1}),
    ("classic shared", {"start": 1}),
)


def explored(
    world: str, budgets: Mapping[str, int], member_class: type[ClassicMember] | None = None, *, seconds: float
) -> Outcome:
    """A world with other budgets, explored."""
    known = CLASSIC_WORLDS[world]
    opening = tuple(name for name in known.opening if budgets.get(name))
    small = replace(known, budgets={"all": sum(budgets.values()), **budgets}, opening=opening)
    return Search(Model(small, CLASSIC, member_class)).run(seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "budgets"), SMALL, ids=[f"{one[0]}-{'-'.join(one[1])}" for one in SMALL])
def test_no_rule_is_broken_in_a_small_classic_world(world: str, budgets: Mapping[str, int]) -> None:
    """Every interleaving, to the end: nothing breaks, and everybody settles from everywhere."""
    outcome = explored(world, budgets, seconds=MOST_SECONDS)
    assert outcome.violation is None, f"{outcome.trace}\n{outcome.violation}"
    assert (outcome.is_complete, outcome.settled > 0) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "world", "budgets", "words", "steps"), MUTANTS, ids=[mutant.__name__ for mutant, *_ in MUTANTS]
)
def test_broken_classic_member_is_caught(
    mutant: type[ClassicMember], world: str, budgets: Mapping[str, int], words: str, steps: int
) -> None:
    """A test that cannot fail is a defect: each broken rule is found, and the shortest way to it told."""
    outcome = explored(world, budgets, mutant, seconds=MOST_SECONDS)
    assert outcome.violation is not None
    assert re.search(words, outcome.violation), outcome.violation
    assert outcome.depth <= steps
    assert outcome.trace != ""


def settled() -> ClassicProcess:
    """The process of a classic world with one member, which leads."""
    model = Model(CLASSIC_WORLDS["classic"], CLASSIC)
    process = model.processes.values[Search(model).fairness.settled_from(model.first())[0]]
    assert isinstance(process, ClassicProcess)
    return process


def test_canonical_classic_process_stays_as_it_is() -> None:
    """Rewriting once is enough, and a copy shares nothing that changes."""
    process = settled()
    before = key_of(process)
    copy = fork(process)
    copy.beat()
    copy.canonicalise()
    sent = key_of(copy)
    copy.canonicalise()
    assert (key_of(process) == before, key_of(copy) == sent, sent == before) == (True, True, False)


def test_quiet_round_of_a_classic_heartbeat_leads_back() -> None:
    """A heartbeat that changes nothing makes no new state, or nothing would ever be finished."""
    outcome = explored("classic", {}, seconds=MOST_SECONDS)
    assert (outcome.is_complete, outcome.states) == (True, 3)


def test_opening_is_explored_from_everywhere_along_it() -> None:
    """A classic rebalance is long: every state of it is a beginning, with its whole way in the trace."""
    search = Search(Model(CLASSIC_WORLDS["classic"], CLASSIC))
    outcome = search.run(depth=0)
    assert (outcome.depth, outcome.states > 20, outcome.steps) == (0, True, 0)
