"""Complete exploration of small worlds of a processor, and of parts that break a rule on purpose."""

from __future__ import annotations

import re

import pytest

from consumer_membership.processing.scheduler import ProcessingOrder
from tests.processing.exploration import SmallWorld, explore
from tests.simulation import processor_mutants as broken
from tests.simulation.processor import Parts

#: None is judged by its time: the largest of these worlds takes half a minute where a core is free.
pytestmark = pytest.mark.timeout(900)

TURNS = SmallWorld(name="turns", ends=(3, 1), faults=0)
HANDOVERS = SmallWorld(name="handovers", ends=(3, 0), failures=0)
REVOCATIONS = SmallWorld(name="revocations", ends=(2, 0), faults=2)
TWO_PARTITIONS = SmallWorld(name="two partitions", ends=(1, 1))
SLOW_COMMITS = SmallWorld(name="slow commits", ends=(2, 0), has_slow_commits=True)
DISOWNED = SmallWorld(name="disowned", ends=(2, 0), keeps_disowned=True)
FULL = SmallWorld(name="full", ends=(3, 0), max_queued=2)
NO_METADATA = SmallWorld(name="no metadata", ends=(3, 0), metadata_limit=0)
BATCHES = SmallWorld(name="batches", ends=(3, 0), max_batch=2)
WAITING = SmallWorld(name="waiting batches", ends=(3, 0), faults=0, max_batch=2, max_wait_s=1.0)
NO_ORDER = SmallWorld(name="no order", ends=(3, 0), max_batch=2, order=ProcessingOrder.NONE)
RESTARTS = SmallWorld(name="restarts", ends=(3, 0), failures=0, restarts=True)
WORLDS = (
    TURNS,
    HANDOVERS,
    REVOCATIONS,
    TWO_PARTITIONS,
    SLOW_COMMITS,
    DISOWNED,
    FULL,
    NO_METADATA,
    BATCHES,
    NO_ORDER,
    RESTARTS,
)
#: For `python -m tests --full`.
LARGE = (
    SmallWorld(name="large: turns", ends=(3, 2), faults=0),
    SmallWorld(name="large: two failures", ends=(3, 1), failures=2, faults=0),
    SmallWorld(name="large: revocations", ends=(3, 0), faults=2),
    SmallWorld(name="large: two partitions", ends=(1, 1), faults=2),
    SmallWorld(name="large: slow commits", ends=(2, 1), failures=0, has_slow_commits=True),
    SmallWorld(name="large: disowned", ends=(2, 0), faults=2, keeps_disowned=True),
    SmallWorld(name="large: by partition", ends=(3, 1), order=ProcessingOrder.PARTITION),
    SmallWorld(name="large: restarts", ends=(3, 0), max_batch=2, restarts=True),
    SmallWorld(name="large: restarts, no order", ends=(3, 0), max_batch=2, order=ProcessingOrder.NONE, restarts=True),
    SmallWorld(name="large: no order", ends=(6, 0), max_batch=2, order=ProcessingOrder.NONE),
)

#: The part, the world in which it breaks a rule, the rule, and after how many steps at most.
MUTANTS: tuple[tuple[Parts, SmallWorld, str, int], ...] = (
    (Parts(decode=broken.takes_one_too_many_for_finished), HANDOVERS, "do not run|of the same lane", 14),
    (Parts(decode=broken.decodes_one_higher), HANDOVERS, "and received records up to", 16),
    (Parts(decode=broken.decodes_nothing), HANDOVERS, "runs again although it is finished", 14),
    (Parts(offsets=broken.CommitsTheHighestFinished), HANDOVERS, "beyond the unfinished", 7),
    (Parts(offsets=broken.CommitsWithoutMetadata), HANDOVERS, "without the finished", 7),
    (Parts(offsets=broken.AdmitsFinishedRecords), HANDOVERS, "forgets the finished|runs again", 14),
    (Parts(offsets=broken.StartsWithoutSpace), NO_METADATA, "without the finished", 7),
    (Parts(offsets=broken.TakesAllForCommitted), SLOW_COMMITS, "no commit covers the finished", 8),
    (Parts(offsets=broken.CommitsOneTooMuch), HANDOVERS, "beyond the unfinished", 2),
    (Parts(scheduler=broken.UnlocksTheLaneDuringRetries), TURNS, "of the same lane has not ended", 5),
    (Parts(scheduler=broken.RunsRetriesAtOnce), TURNS, "too early", 4),
    (Parts(scheduler=broken.NeverLocksTheLane), TURNS, "of the same lane has not ended", 4),
    (Parts(scheduler=broken.RunsTheNewestFirst), TURNS, "of the same lane", 3),
    (Parts(scheduler=broken.KeepsRunningAfterTheDrain), HANDOVERS, "were reported", 3),
    (Parts(scheduler=broken.ForgetsWhatRuns), HANDOVERS, "were reported", 3),
    (Parts(scheduler=broken.StartsDuringRevocations), HANDOVERS, "does not own|is being revoked", 3),
    (Parts(scheduler=broken.RetriesAfterRevocations), REVOCATIONS, "does not own|is being revoked", 5),
    (Parts(scheduler=broken.NeverWakesHeldLanes), NO_METADATA, "do not run with a free worker", 9),
    (Parts(scheduler=broken.IsNeverFull), FULL, "records in hand: too many", 4),
    (Parts(scheduler=broken.NeverHasSpaceAgain), FULL, "were received and never finished", 20),
    (Parts(scheduler=broken.TakesCommitsForDone), SLOW_COMMITS, "are finished and not committed", 20),
    (Parts(scheduler=broken.PrefersTheBusyLane), TURNS, "had two turns", 20),
    (Parts(scheduler=broken.PrefersTheBusyPartition), TURNS, "had two turns", 20),
    (Parts(scheduler=broken.SplitsInDisorder), BATCHES, "of the same lane", 6),
    (Parts(scheduler=broken.ForgetsSplitRecords), NO_ORDER, "do not run with a free worker", 20),
    (Parts(scheduler=broken.KeepsTruncatedRecords), RESTARTS, "do not run with a free worker|twice", 5),
    (Parts(scheduler=broken.CountsNoAttempts), TURNS, "counts as 1", 6),
)


@pytest.mark.slow
@pytest.mark.parametrize("world", [*WORLDS, *LARGE], ids=lambda world: world.name)
def test_exploration_of_a_processor_finds_no_violation(world: SmallWorld) -> None:
    """No interleaving breaks a rule, and each way without further faults ends with all records committed."""
    outcome = explore(world)
    assert outcome.violation is None, f"{outcome.trace}\n{outcome.violation}"
    assert outcome.ends > 0


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "world", "words", "steps"), MUTANTS, ids=[parts.name for parts, *_ in MUTANTS])
def test_exploration_finds_each_broken_part_of_a_processor(
    parts: Parts, world: SmallWorld, words: str, steps: int
) -> None:
    """A test that cannot fail is a defect: each broken rule is found, with the shortest way to it."""
    outcome = explore(world, parts)
    assert outcome.violation is not None
    assert re.search(words, outcome.violation), outcome.violation
    assert len(outcome.trace) <= steps
