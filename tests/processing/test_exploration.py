"""Complete exploration of small configurations of a processor; parts that break a rule on purpose must be found."""

from __future__ import annotations

import re

import pytest

from consumer_membership.processing.scheduler import ProcessingOrder
from tests.processing.exploration import Configuration, explore
from tests.simulation import processor_mutants as broken
from tests.simulation.processor import Parts

#: The tests have no performance limit: the largest configuration takes half a minute on a free core.
pytestmark = pytest.mark.timeout(900)

TURNS = Configuration(name="turns", ends=(3, 1), faults=0)
HANDOVERS = Configuration(name="handovers", ends=(3, 0), failures=0)
REVOCATIONS = Configuration(name="revocations", ends=(2, 0), faults=2)
TWO_PARTITIONS = Configuration(name="two partitions", ends=(1, 1))
SLOW_COMMITS = Configuration(name="slow commits", ends=(2, 0), has_slow_commits=True)
DISOWNED = Configuration(name="disowned", ends=(2, 0), keeps_disowned=True)
FULL = Configuration(name="full", ends=(3, 0), max_queued=2)
NO_METADATA = Configuration(name="no metadata", ends=(3, 0), metadata_limit=0)
BATCHES = Configuration(name="batches", ends=(3, 0), max_batch=2)
WAITING = Configuration(name="waiting batches", ends=(3, 0), faults=0, max_batch=2, max_wait_s=1.0)
NO_ORDER = Configuration(name="no order", ends=(3, 0), max_batch=2, order=ProcessingOrder.NONE)
RESTARTS = Configuration(name="restarts", ends=(3, 0), failures=0, restarts=True)
CONFIGURATIONS = (
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
    Configuration(name="large: turns", ends=(3, 2), faults=0),
    Configuration(name="large: two failures", ends=(3, 1), failures=2, faults=0),
    Configuration(name="large: revocations", ends=(3, 0), faults=2),
    Configuration(name="large: two partitions", ends=(1, 1), faults=2),
    Configuration(name="large: slow commits", ends=(2, 1), failures=0, has_slow_commits=True),
    Configuration(name="large: disowned", ends=(2, 0), faults=2, keeps_disowned=True),
    Configuration(name="large: by partition", ends=(3, 1), order=ProcessingOrder.PARTITION),
    Configuration(name="large: restarts", ends=(3, 0), max_batch=2, restarts=True),
    Configuration(
        name="large: restarts, no order", ends=(3, 0), max_batch=2, order=ProcessingOrder.NONE, restarts=True
    ),
    Configuration(name="large: no order", ends=(6, 0), max_batch=2, order=ProcessingOrder.NONE),
)

#: The broken part, the configuration in which it breaks a rule, the rule, and the largest number of steps to the
#: violation.
MUTANTS: tuple[tuple[Parts, Configuration, str, int], ...] = (
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
@pytest.mark.parametrize("config", [*CONFIGURATIONS, *LARGE], ids=lambda config: config.name)
def test_exploration_of_a_processor_finds_no_violation(config: Configuration) -> None:
    """No interleaving breaks a rule, and each path without further faults ends with all records committed."""
    outcome = explore(config)
    assert outcome.violation is None, f"{outcome.trace}\n{outcome.violation}"
    assert outcome.ends > 0


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "config", "message", "steps"), MUTANTS, ids=[parts.name for parts, *_ in MUTANTS])
def test_exploration_finds_each_broken_part_of_a_processor(
    parts: Parts, config: Configuration, message: str, steps: int
) -> None:
    """Each broken part is found, with the shortest path to the violation; so the exploration can fail."""
    outcome = explore(config, parts)
    assert outcome.violation is not None
    assert re.search(message, outcome.violation), outcome.violation
    assert len(outcome.trace) <= steps
