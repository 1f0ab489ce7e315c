"""The seed of a test run, from which every random choice of its tests follows.

The gate and pytest by hand use the fixed seed. `python -m tests --full` draws another one and prints it; `--seed N`, or
the environment variable `TESTS_SEED`, repeats the run with it.
"""

from __future__ import annotations

import os
import random

VARIABLE = "TESTS_SEED"
FIXED = 0
#: `PYTHONHASHSEED` takes no larger seed.
LIMIT = 2**32


def run_seed() -> int:
    """Return the seed of this run."""
    return int(os.environ.get(VARIABLE, FIXED))


def fresh_seed() -> int:
    """Return a seed for a run that shall not repeat an earlier one; it is never the fixed seed."""
    return random.SystemRandom().randrange(FIXED + 1, LIMIT)


def seed_for(name: str) -> int:
    """Return the seed of one test or search, below 2**32; with the fixed seed it is `FIXED` for every name."""
    run = run_seed()
    return FIXED if run == FIXED else random.Random(f"{run} {name}").randrange(LIMIT)  # noqa: S311 - no secret


def environment(seed: int) -> dict[str, str]:
    """Return the environment variables with which processes use this seed, also for the order of their sets."""
    return {VARIABLE: str(seed), "PYTHONHASHSEED": str(seed)}


def seed_hypothesis() -> None:
    """Have Hypothesis draw its examples by the run's seed; with the fixed seed each test has the same ones everywhere.

    No test is judged by its time, because a machine may be busy.
    """
    from hypothesis import core, settings  # noqa: PLC0415 - most processes do without

    seed = run_seed()
    settings.register_profile("seeded", deadline=None, database=None, derandomize=seed == FIXED)
    settings.load_profile("seeded")
    # What the option --hypothesis-seed sets.
    core.global_force_seed = None if seed == FIXED else seed  # type: ignore[assignment]  # it has no annotation
