"""Run seeds: `python -m tests.simulation --seeds 200 --start 0 [--profile NAME]`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter

from tests.simulation.profiles import PROFILES
from tests.simulation.run import SimulationFailure, simulate


def _parser() -> argparse.ArgumentParser:
    """Return the parser of this command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds of each profile")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="this profile only")
    parser.add_argument("--keep-going", action="store_true", help="print the first failure, count the others")
    return parser


def repeating(profile: str, seed: int) -> str:
    """Return the command that runs one seed of one profile."""
    return shlex.join(["python", "-m", "tests.simulation", "--profile", profile, "--start", str(seed), "--seeds", "1"])


def main() -> int:
    """Run the seeds of every profile and print a summary; return 1 if a seed failed."""
    chosen = _parser().parse_args()
    failures: Counter[str] = Counter()
    for name, profile in PROFILES.items():
        if chosen.profile not in (None, name):
            continue
        began = time.perf_counter()
        slowest, handovers, handed_over, failed = 0.0, 0, 0, []
        for seed in range(chosen.start, chosen.start + chosen.seeds):
            try:
                outcome = simulate(seed, profile)
            except SimulationFailure as failure:
                if not failures:
                    print(f"{failure}\nto repeat it: {repeating(name, seed)}")
                failures[str(failure).rsplit("\nseed ", 1)[-1].split(": ", 1)[-1].split("\n")[0][:110]] += 1
                failed.append(seed)
                if not chosen.keep_going:
                    return 1
                continue
            slowest, handovers = max(slowest, outcome.settled_after_s), handovers + outcome.handovers
            handed_over += outcome.handed_over
        took = time.perf_counter() - began
        print(
            f"{name:20} {chosen.seeds} seeds in {took:.1f} s ({chosen.seeds / took:.0f} a second), "
            f"{len(failed)} failed {failed[:12]}, slowest to settle {slowest:.1f} s, {handovers} partitions and "
            f"{handed_over} instance ids handed over"
        )
    for message, times in failures.most_common(12):
        print(f"{times:5} {message}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
