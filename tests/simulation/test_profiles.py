"""Seeded runs of every profile: whatever goes wrong, the invariants hold, and afterwards everything is in its place."""

from __future__ import annotations

import shlex

import pytest

from tests.simulation.__main__ import _parser, repeating
from tests.simulation.chaos import simulate
from tests.simulation.profiles import PROFILES
from tests.support.seeds import seed_for

SEEDS_PER_BLOCK = 50
BLOCKS = 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("name", PROFILES)
def test_invariants_hold_whatever_goes_wrong(name: str, block: int) -> None:
    """A failure prints its seed and the end of its trace."""
    first = seed_for("profiles") + block * SEEDS_PER_BLOCK
    outcomes = [simulate(first + number, PROFILES[name]) for number in range(SEEDS_PER_BLOCK)]
    assert sum(outcome.handovers for outcome in outcomes) > SEEDS_PER_BLOCK, "these runs hand too little over"


def test_run_follows_from_its_seed() -> None:
    """The same seed gives the same run."""
    profile = PROFILES["everything"]
    assert simulate(7, profile) == simulate(7, profile)


@pytest.mark.parametrize("name", PROFILES)
def test_repeating_runs_one_seed_of_one_profile(name: str) -> None:
    """The command reads its own words, also where the name of a profile has blanks."""
    options = _parser().parse_args(shlex.split(repeating(name, 7))[3:])
    assert (options.profile, options.start, options.seeds) == (name, 7, 1)
