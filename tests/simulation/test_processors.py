"""Processors in the simulation: situations that must occur in their runs, and parts that break a rule on purpose."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import processor_mutants as broken
from tests.simulation.handler_invariants import Situation
from tests.simulation.processor import Parts
from tests.simulation.profiles import PROFILES
from tests.simulation.run import SimulationFailure, simulate

MOST_SEEDS = 60
SEEDS = 20
CLEAN, FAULTS, FULL = "processing, no faults", "processing", "processing, full metadata"

#: The broken part, the profile in whose runs it breaks a rule, and the message of the violation.
MUTANTS: tuple[tuple[Parts, str, str], ...] = (
    (Parts(decode=broken.takes_one_too_many_for_finished), CLEAN, "of the same lane|beyond the unfinished"),
    (Parts(decode=broken.decodes_one_higher), CLEAN, "beyond the unfinished"),
    (Parts(decode=broken.decodes_nothing), CLEAN, "runs again although it is finished"),
    (Parts(offsets=broken.CommitsTheHighestFinished), CLEAN, "beyond the unfinished"),
    (Parts(offsets=broken.CommitsWithoutMetadata), CLEAN, "without the finished"),
    (Parts(offsets=broken.AdmitsFinishedRecords), FAULTS, "runs again although it is finished"),
    (Parts(offsets=broken.StartsWithoutSpace), FULL, "without the finished"),
    (Parts(offsets=broken.TakesAllForCommitted), FAULTS, "no commit covers the finished"),
    (Parts(offsets=broken.CommitsOneTooMuch), CLEAN, "beyond the unfinished|and received records up to"),
    (Parts(scheduler=broken.UnlocksTheLaneDuringRetries), CLEAN, "of the same lane has not ended"),
    (Parts(scheduler=broken.RunsRetriesAtOnce), CLEAN, "too early"),
    (Parts(scheduler=broken.NeverLocksTheLane), CLEAN, "of the same lane has not ended"),
    (Parts(scheduler=broken.RunsTheNewestFirst), CLEAN, "of the same lane"),
    (Parts(scheduler=broken.ForgetsWhatRuns), FAULTS, "were reported"),
    (Parts(scheduler=broken.KeepsRunningAfterTheDrain), FAULTS, "were reported"),
    (Parts(scheduler=broken.StartsDuringRevocations), FAULTS, "although the partition is being revoked|does not own"),
    (Parts(scheduler=broken.RetriesAfterRevocations), FAULTS, "although the partition is being revoked|does not own"),
    (Parts(scheduler=broken.NeverWakesHeldLanes), FULL, "do not run with a free worker"),
    (Parts(scheduler=broken.IsNeverFull), CLEAN, "records in hand: too many"),
    (Parts(scheduler=broken.NeverHasSpaceAgain), FAULTS, "were received and never finished|not committed"),
    (Parts(scheduler=broken.TakesCommitsForDone), FAULTS, "no commit covers the finished"),
    (Parts(scheduler=broken.PrefersTheBusyLane), CLEAN, "had two turns"),
    (Parts(scheduler=broken.PrefersTheBusyPartition), CLEAN, "had two turns"),
    (Parts(scheduler=broken.SplitsInDisorder), CLEAN, "of the same lane"),
    (Parts(scheduler=broken.CountsNoAttempts), CLEAN, "counts as 1"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "profile", "message"), MUTANTS, ids=[parts.name for parts, *_ in MUTANTS])
def test_simulation_finds_each_broken_part_of_a_processor(parts: Parts, profile: str, message: str) -> None:
    """The invariants of handlers report each broken part: a test that cannot fail is a defect."""
    with pytest.raises(SimulationFailure, match=f"Violation: .*({message})"):
        _run_seeds(parts, profile)


def _run_seeds(parts: Parts, profile: str) -> None:
    for seed in range(MOST_SEEDS):
        simulate(seed, PROFILES[profile], parts=parts)


@pytest.mark.parametrize(
    ("profile", "never"),
    [
        (CLEAN, {Situation.DISOWNED, Situation.HELD, Situation.LIMITED, Situation.REPEATED}),
        (FAULTS, {Situation.LIMITED}),
        (FULL, set()),
        ("processing classic", {Situation.LIMITED}),
    ],
)
def test_processors_of_each_profile_meet_every_situation_that_can_break_a_rule(
    profile: str, never: set[Situation]
) -> None:
    """Every situation that can break a rule occurs in runs of each profile, except for the excluded situations."""
    situations: Counter[Situation] = Counter()
    for seed in range(SEEDS):
        situations += simulate(seed, PROFILES[profile]).situations
    assert {situation for situation in Situation if not situations[situation]} == never
