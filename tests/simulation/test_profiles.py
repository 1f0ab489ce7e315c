"""Seeded runs of each profile: the invariants hold under all faults, and each group settles afterwards."""

from __future__ import annotations

import shlex

import pytest

from tests.simulation.__main__ import _parser, repeating
from tests.simulation.profiles import PROFILES
from tests.simulation.run import simulate
from tests.support.seeds import seed_for

#: The number of seeds; the stage `simulation` of the full run has 2,500.
SEEDS = 15


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_invariants_hold_under_all_faults_of_each_profile(name: str) -> None:
    """Each seed of each profile runs without a violation; a failure prints its seed and the end of its trace."""
    first = seed_for("profiles")
    outcomes = [simulate(first + number, PROFILES[name]) for number in range(SEEDS)]
    assert sum(outcome.handovers for outcome in outcomes) > SEEDS, "these runs hand too little over"


def test_simulation_with_the_same_seed_gives_the_same_run() -> None:
    """The same seed and profile give the same outcome."""
    profile = PROFILES["everything"]
    assert simulate(7, profile) == simulate(7, profile)


@pytest.mark.parametrize("name", PROFILES)
def test_repeat_command_runs_one_seed_of_one_profile(name: str) -> None:
    """The printed command runs one seed of one profile, also if the profile name contains blanks."""
    options = _parser().parse_args(shlex.split(repeating(name, 7))[3:])
    assert (options.profile, options.start, options.seeds) == (name, 7, 1)
