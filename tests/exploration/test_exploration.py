"""Small worlds explored to their end, members that break a rule, and the parts that the exploration stands on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from consumer_membership.membership.effects import ProtocolChosen
from consumer_membership.membership.events import Polled
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.states import MemberState
from tests.exploration.__main__ import main
from tests.exploration.catalogue import WORLDS
from tests.exploration.fork import fork, key_of
from tests.exploration.model import Model
from tests.exploration.process import Process
from tests.exploration.search import Outcome, Search
from tests.simulation import test_mutants as simulated
from tests.support.members import Member

#: A mutant that takes longer to find is no use as a check of the checks.
MOST_SECONDS = 60.0


class _CommitsInPassing(Reconciler):
    """Does not wait for the end of the commit before a revocation."""

    def _move_on(self, offsets, identity, now):  # noqa: ANN001, ANN202 - the base's
        effects = super()._move_on(offsets, identity, now)
        if self.phase is Phase.COMMIT:
            effects += super()._move_on({}, identity, now)
        return effects


class RevokesBeforeTheCommitIsOver(Member):
    """Orders on_revoke while the commit is under way."""

    replaced: ClassVar = {"reconciler": _CommitsInPassing}


class _NeverPauses(Reconciler):
    """Leaves the pause out."""

    def _following(self) -> Phase:
        following = super()._following()
        return Phase.REVOKE if following is Phase.PAUSE and self._revokes else following


class RevokesWithoutPause(Member):
    """Orders on_revoke while records are still delivered."""

    replaced: ClassVar = {"reconciler": _NeverPauses}


class ComesBackFromTheDead(Member):
    """Joins again at the next poll after it ended for good."""

    def _take(self, event: GroupEvent) -> ProtocolChosen | None:
        chosen = super()._take(event)
        if isinstance(event, Polled) and self.state is MemberState.FATAL and self.reconciler.is_idle:
            self._join("another try")
        return chosen


class KeepsWhatItLost(Member):
    """Forgets to tell the application that everything is lost."""

    class _Loses(Reconciler):
        def lose(self, now):  # noqa: ANN001, ANN202 - the base's
            super().lose(now)
            self._enter(Phase.IDLE, now)
            return []

    replaced: ClassVar = {"reconciler": _Loses}


#: The member, its world with budgets that suffice, what is found, and in how many steps at most.
MUTANTS: tuple[tuple[type[Member], str, Mapping[str, int], str, int], ...] = (
    (simulated.AcknowledgesTooEarly, "three partitions", {"start": 1}, "it owns|fetchable by|leaves before", 16),
    (simulated.KeepsDeliveringAfterFence, "dynamic", {"session": 1}, "joins anew while", 10),
    (simulated.TakesNullForNothing, "dynamic", {}, "not everything once", 1),
    (simulated.AdoptsAnyEpoch, "static", {"poll": 1, "loss": 1}, "sends a leave in state", 8),
    (simulated.LeavesOutWhatIsBeingAssigned, "dynamic", {"loss": 1}, "it owns|fetchable by", 16),
    (simulated.RepeatsBare, "rebalance", {"start": 1, "loss": 1}, "the coordinator is not done", 8),
    (simulated.TakesBack, "shared", {"start": 1, "poll": 1}, "although it was in the group before", 24),
    (simulated.TakesOverAgainAndAgain, "shared", {"start": 2}, "takes over 6 times in one join", 68),
    (RevokesBeforeTheCommitIsOver, "rebalance", {"start": 1}, "before the commit was over", 12),
    (RevokesWithoutPause, "rebalance", {"start": 1}, "without a pause", 12),
    (ComesBackFromTheDead, "shared", {"start": 1}, "does not stay FATAL", 20),
    (KeepsWhatItLost, "dynamic", {"session": 1}, "joins anew while|fetchable by", 12),
)

#: Worlds with budgets that a few seconds suffice to explore to their end.
SMALL: tuple[tuple[str, str, Mapping[str, int]], ...] = (
    ("dynamic", "4.0", {"loss": 1}),
    ("dynamic", "4.3", {}),
    ("dynamic", "4.2", {"leave": 1}),
    ("rebalance", "4.2", {"start": 1, "duplicate": 1}),
    ("static", "4.2", {"crash": 1, "start": 1}),
    ("shared", "4.2", {"start": 1, "poll": 1}),
    ("waiting", "4.2", {"start": 1, "crash": 1}),
    ("late requests", "4.2", {"start": 1, "break": 1}),
)


def explored(
    world: str, rules: str, budgets: Mapping[str, int], member_class: type[Member] = Member, *, seconds: float
) -> Outcome:
    """A world with other budgets, explored."""
    small = replace(WORLDS[world], budgets={"all": sum(budgets.values()), **budgets})
    return Search(Model(small, rules, member_class)).run(seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "rules", "budgets"), SMALL, ids=[f"{one[0]}-{one[1]}-{'-'.join(one[2])}" for one in SMALL]
)
def test_no_rule_is_broken_in_a_small_world(world: str, rules: str, budgets: Mapping[str, int]) -> None:
    """Every interleaving, to the end: nothing breaks, and everybody settles from everywhere."""
    outcome = explored(world, rules, budgets, seconds=MOST_SECONDS)
    assert outcome.violation is None, f"{outcome.trace}\n{outcome.violation}"
    assert (outcome.is_complete, outcome.settled > 0) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "world", "budgets", "words", "steps"), MUTANTS, ids=[mutant.__name__ for mutant, *_ in MUTANTS]
)
def test_broken_member_is_caught(
    mutant: type[Member], world: str, budgets: Mapping[str, int], words: str, steps: int
) -> None:
    """A test that cannot fail is a defect: each broken rule is found, and the shortest way to it told."""
    outcome = explored(world, "4.2", budgets, mutant, seconds=MOST_SECONDS)
    assert outcome.violation is not None
    assert re.search(words, outcome.violation), outcome.violation
    assert outcome.depth <= steps
    assert outcome.trace != ""


def settled(world: str = "rebalance") -> Process:
    """The first process of a settled world."""
    model = Model(WORLDS[world], "4.2")
    search = Search(model)
    process = model.processes.values[search.fairness.settled_from(model.first())[0]]
    assert process is not None
    return process


def test_fork_shares_nothing_that_changes() -> None:
    """What a copy does leaves the original as it is, and parts that knew each other know each other's copies."""
    process = settled()
    before = key_of(process)
    copy = fork(process)
    assert key_of(copy) == before
    copy.miss_poll()
    assert (key_of(process) == before, key_of(copy) == before) == (True, False)
    assert copy.member.reconciler._ownership is copy.member.ownership
    assert copy.member.reconciler._commits is copy.member.commits


def test_canonical_process_stays_as_it_is() -> None:
    """Rewriting once is enough."""
    process = settled()
    process.beat()
    process.canonicalise()
    before = key_of(process)
    process.canonicalise()
    assert key_of(process) == before


def test_quiet_round_of_a_heartbeat_leads_back() -> None:
    """A heartbeat that changes nothing makes no new state, or nothing would ever be finished."""
    outcome = explored("rebalance", "4.2", {}, seconds=MOST_SECONDS)
    assert (outcome.is_complete, outcome.states) == (True, 3)


@pytest.mark.slow
def test_command_prints_a_table_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    """States, depth and time of each run; 0 if no rule was broken."""
    code = main(["--world", "static", "--rules", "4.2", "--depth", "3"])
    said = capsys.readouterr().out
    assert (code, "static" in said, "0 broke a rule" in said) == (0, True, True)
