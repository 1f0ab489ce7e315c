"""The seed of a test run, which determines every random choice of its tests.

The gate and direct calls of pytest use the fixed seed. `python -m tests --full` draws a random seed and prints it. To
repeat a run with its seed, use `--seed N` or the environment variable `TESTS_SEED`.
"""

from __future__ import annotations

import os
import random

VARIABLE = "TESTS_SEED"
FIXED = 0
#: The limit of `PYTHONHASHSEED`; seeds are smaller.
LIMIT = 2**32


def run_seed() -> int:
    """Return the seed of this run."""
    return int(os.environ.get(VARIABLE, FIXED))


def fresh_seed() -> int:
    """Return a random seed, which is never the fixed seed."""
    return random.SystemRandom().randrange(FIXED + 1, LIMIT)


def seed_for(name: str) -> int:
    """Return the seed of one test or search, below 2**32; with the fixed seed it is `FIXED` for every name."""
    run = run_seed()
    return FIXED if run == FIXED else random.Random(f"{run} {name}").randrange(LIMIT)  # noqa: S311 - no secret


def environment(seed: int) -> dict[str, str]:
    """Return the environment variables that make processes use this seed, also for hashes and so the order of sets."""
    return {VARIABLE: str(seed), "PYTHONHASHSEED": str(seed)}


def seed_hypothesis() -> None:
    """Make Hypothesis use the run's seed; with the fixed seed, each test has the same examples on every machine.

    Tests have no deadline, because a machine may be busy.
    """
    from hypothesis import core, settings  # noqa: PLC0415 - most processes do not need it

    seed = run_seed()
    settings.register_profile("seeded", deadline=None, database=None, derandomize=seed == FIXED)
    settings.load_profile("seeded")
    # The option --hypothesis-seed sets this variable.
    core.global_force_seed = None if seed == FIXED else seed  # type: ignore[assignment]  # it has no annotation
