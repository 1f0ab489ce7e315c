"""Complete explorations of small configurations and of members that break a rule; tests of an exploration's parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from consumer_membership.membership.member import MemberCore
from tests.exploration.__main__ import main
from tests.exploration.catalogue import CONFIGURATIONS
from tests.exploration.cluster import GROUP
from tests.exploration.fork import fork, key_of
from tests.exploration.model import Model
from tests.exploration.process import Process
from tests.exploration.search import Outcome, Search
from tests.simulation import internals
from tests.simulation import mutants as broken

Budgets = Mapping[str, int]
#: No test checks its duration: on a free core, the largest of these configurations takes a quarter of a minute.
pytestmark = pytest.mark.timeout(900)

#: The broken member, its configuration, sufficient budgets, the expected violation, and the maximum number of steps.
MUTANTS: tuple[tuple[type, str, Budgets, str, int], ...] = (
    (broken.TakesRevocationsForFinished, "three partitions", {"start": 1}, "it owns|fetchable by|leaves before", 16),
    (broken.KeepsDeliveringAfterFence, "dynamic", {"session": 1}, "joins again while", 10),
    (broken.TakesNullForNothing, "dynamic", {}, "not each partition once", 1),
    (broken.AdoptsAnyEpoch, "static", {"poll": 1, "loss": 1}, "sends a leave in state", 8),
    (broken.LeavesOutWhatIsBeingAssigned, "dynamic", {"loss": 1}, "it owns|fetchable by", 16),
    (broken.RepeatsBare, "rebalance", {"start": 1, "loss": 1}, "the coordinator is not done", 8),
    (broken.TakesBack, "shared", {"start": 1, "poll": 1}, "although it was in the group before", 24),
    (broken.TakesOverAgainAndAgain, "shared", {"start": 2}, "takes over 6 times in one join", 68),
    (broken.RevokesBeforeTheCommitIsOver, "rebalance", {"start": 1}, "before the commit was over", 12),
    (broken.RevokesWithoutPause, "rebalance", {"start": 1}, "without a pause", 12),
    (broken.RejoinsAfterFatal, "shared", {"start": 1}, "does not stay FATAL", 20),
    (broken.KeepsWhatItLost, "dynamic", {"session": 1}, "joins again while|fetchable by", 12),
    (broken.AnnouncesItselfTooEarly, "hand-over", {"start": 1}, "before on_warm has returned", 12),
    (broken.TakesTheReleasedIdBack, "hand-over", {"start": 1}, "back before its successor came", 24),
    (broken.ServesAbsentSuccessors, "hand-over", {"start": 1}, "once more", 36),
    (broken.RequestsItsIdAgain, "hand-over", {"start": 1, "timeout": 1}, "may be the newer process", 16),
    (broken.RequestsFromEachHolder, "hand-over twins", {"start": 2}, "for one id in one join", 24),
    (broken.RevokesBeforeTheCommitIsOver, "hand-over", {"start": 1}, "before the commit was over", 16),
    (broken.TrustsItsLeave, "hand-over in a pool", {"start": 1, "loss": 1}, "is JOINING", 16),
    (
        broken.KeepsItsMemberId,
        "hand-over in a pool",
        {"start": 1, "leave": 1},
        "is JOINING|not each partition once",
        16,
    ),
    (broken.RevokesBeforeTheCommitIsOver, "classic slow", {"start": 1}, "before the commit was over", 4),
    (broken.KeepsWhatItLost, "classic", {"start": 1, "session": 1}, "joins again while|fetchable by|it owns", 8),
    (broken.KeepsWhatItHoldsEagerly, "classic eager", {"start": 1}, "joins again while", 4),
    (broken.ClaimsWhatItGaveUp, "classic", {"start": 1}, "states that it owns", 4),
    (broken.TakesRevocationsForFinished, "classic", {"start": 1}, "states that it owns|while step", 4),
    (broken.TakesMoreThanItsShare, "classic late", {"start": 1}, "fetchable by", 4),
    (broken.NeverJoinsAgain, "classic", {"start": 1}, "not each partition once", 4),
    (broken.IgnoresTheRebalance, "classic", {"start": 1}, "is JOINING|is SYNCING|not done", 4),
    (broken.TakesNoMemberId, "classic", {"start": 1}, "is JOINING", 4),
    (broken.KeepsTheUnknownId, "classic", {"start": 1, "session": 1}, "is JOINING|not done", 8),
    (broken.LeavesAtOnce, "classic three", {"start": 1, "leave": 1}, "leaves before", 4),
    (broken.TakesAnySync, "classic", {"start": 1, "duplicate": 1}, "not each partition once", 16),
    (
        broken.StaysInItsGeneration,
        "classic static",
        {"crash": 1, "start": 1, "rebalance": 1},
        "keeps its generation",
        16,
    ),
)

#: Configurations and budgets whose complete exploration takes only a few seconds.
SMALL: tuple[tuple[str, str, Budgets], ...] = (
    ("dynamic", "4.0", {"loss": 1}),
    ("dynamic", "4.4", {}),
    ("dynamic", "4.2", {"leave": 1}),
    ("rebalance", "4.2", {"start": 1, "duplicate": 1}),
    ("static", "4.2", {"crash": 1, "start": 1}),
    ("shared", "4.2", {"start": 1, "poll": 1}),
    ("waiting", "4.2", {"start": 1, "crash": 1}),
    ("hand-over", "4.2", {"start": 1, "crash": 1}),
    ("late requests", "4.2", {"start": 1, "break": 1}),
    ("classic", "classic", {"start": 1}),
    ("classic", "classic", {"leave": 1}),
    ("classic static", "classic", {"crash": 1, "start": 1}),
    ("classic shared", "classic", {"start": 1}),
)


def rules_of(config: str) -> str:
    """Return the name of the rules of this configuration: 4.2 or classic."""
    return "4.2" if CONFIGURATIONS[config].assignor is None else "classic"


def explored(
    config: str,
    budgets: Budgets,
    *,
    rules: str | None = None,
    make_member: Callable[..., MemberCore] = MemberCore,
) -> Outcome:
    """Explore a configuration with these budgets; its opening keeps only the moves that the budgets allow."""
    known = CONFIGURATIONS[config]
    opening = tuple(name for name in known.opening if budgets.get(name))
    small = replace(known, budgets={"all": sum(budgets.values()), **budgets}, opening=opening)
    return Search(Model(small, rules or rules_of(config), make_member)).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rules", "budgets"), SMALL, ids=[f"{one[0]}-{one[1]}-{'-'.join(one[2])}" for one in SMALL]
)
def test_exploration_of_a_small_configuration_finds_no_violation(config: str, rules: str, budgets: Budgets) -> None:
    """No interleaving of the complete search breaks a rule, and each state leads to a settled group."""
    outcome = explored(config, budgets, rules=rules)
    assert outcome.violation is None, f"{outcome.trace}\n{outcome.violation}"
    assert (outcome.is_complete, outcome.settled > 0) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "config", "budgets", "message", "steps"),
    MUTANTS,
    ids=[f"{mutant.__name__}-{config}" for mutant, config, *_ in MUTANTS],
)
def test_exploration_finds_each_broken_member(
    mutant: type, config: str, budgets: Budgets, message: str, steps: int
) -> None:
    """The exploration finds each broken rule with the shortest trace to it: a test that cannot fail is a defect."""
    outcome = explored(config, budgets, make_member=broken.made_with(mutant))
    assert outcome.violation is not None
    assert re.search(message, outcome.violation), outcome.violation
    assert outcome.depth <= steps
    assert outcome.trace != ""


@pytest.mark.slow
def test_hand_over_without_faults_keeps_the_epoch_of_the_group() -> None:
    """No interleaving of a hand-over changes the group epoch, so no partition of another member moves."""
    model = Model(replace(CONFIGURATIONS["hand-over"], budgets={"start": 1}), "4.2")
    search = Search(model)
    assert search.run().is_complete
    clusters = {state[len(model.slots)] for state in search._states}
    assert len({model.clusters.values[number].coordinator.groups[GROUP].epoch for number in clusters}) == 1


def settled(config: str) -> Process:
    """Return the first process of a settled configuration."""
    model = Model(CONFIGURATIONS[config], rules_of(config))
    process = model.processes.values[Search(model).fairness.settled_from(model.first())[0]]
    assert process is not None
    return process


EACH_PROTOCOL = pytest.mark.parametrize("config", ["rebalance", "classic"])


@EACH_PROTOCOL
def test_fork_shares_no_mutable_state(config: str) -> None:
    """The copy's actions leave the original unchanged, and its parts refer to each other's copies."""
    process = settled(config)
    before = key_of(process)
    copy = fork(process)
    assert key_of(copy) == before
    copy.miss_poll()
    assert (key_of(process) == before, key_of(copy) == before) == (True, False)
    reconciler = internals.reconciler(copy.member)
    assert reconciler._ownership is internals.ownership(copy.member)
    assert reconciler._commits is internals.commits(copy.member)


@EACH_PROTOCOL
def test_canonical_process_does_not_change_by_another_rewrite(config: str) -> None:
    """A second canonical rewrite changes nothing, and a copy's heartbeat leads to another state."""
    process = settled(config)
    before = key_of(process)
    copy = fork(process)
    copy.heartbeat()
    copy.canonicalise()
    sent = key_of(copy)
    copy.canonicalise()
    assert (key_of(process) == before, key_of(copy) == sent, sent == before) == (True, True, False)


@EACH_PROTOCOL
def test_heartbeat_without_a_change_leads_back_to_the_same_state(config: str) -> None:
    """A heartbeat without a change leads back to the same state, or the search would never end."""
    outcome = explored(config, {})
    assert (outcome.is_complete, outcome.states) == (True, 3)


def test_search_starts_from_each_state_of_the_opening() -> None:
    """A classic rebalance is long, so the search begins at each of its states, and a trace has the whole path."""
    outcome = Search(Model(CONFIGURATIONS["classic"], "classic")).run(depth=0)
    assert (outcome.depth, outcome.states > 20, outcome.steps) == (0, True, 0)


@pytest.mark.slow
def test_exploration_command_prints_a_table_and_returns_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the states, depth and time of each run, and the exit code is 0 if no rule was broken."""
    code = main(["--config", "static", "--rules", "4.2", "--depth", "3"])
    output = capsys.readouterr().out
    assert (code, "static" in output, "0 broke a rule" in output) == (0, True, True)
