"""Chaos: `python -m tests.chaos [--seed N] [--rounds N | --minutes M] [--replay SEED] [--faults A,B] [--members A,B]`.

The command starts a cluster of three nodes, and runs rounds on it (`rounds`). Each round has its own seed, from which
its members, its faults and the start of each fault are drawn (`plan`). The command prints a line for each round and a
table at the end. Its exit code is 1 if a round failed. The folders of failed rounds stay in `tests/results/chaos` or in
the folder of `--keep`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random
from typing import Self

from consumer_membership.devbroker import SUPPORTED_VERSIONS
from tests.chaos import small
from tests.chaos.faults import KINDS, UPGRADES
from tests.chaos.plan import MEMBER_FEATURES, RoundPlan, covering, draw
from tests.chaos.report import table
from tests.chaos.rounds import Outcome, run_round
from tests.chaos.testbed import NODES, Cluster, cluster
from tests.support import seeds
from tests.support.versions import NEWEST

RESULTS = Path(__file__).resolve().parent.parent / "results" / "chaos"
_SHOWN = 8


def _parser() -> argparse.ArgumentParser:
    """Return the parser of this command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Run rounds of faults on a cluster, and check the history of each round.",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of the run; default: a new random seed")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="the number of rounds; default: 1, or without limit with --minutes"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no round after this many minutes")
    parser.add_argument("--replay", type=int, action="append", metavar="SEED", help="repeat the round of this seed")
    parser.add_argument("--faults", default="", metavar="A,B", help=f"draw only these faults: {', '.join(KINDS)}")
    parser.add_argument(
        "--members",
        default="",
        metavar="A,B",
        help=f"draw only members with these features: {', '.join(sorted(MEMBER_FEATURES))}",
    )
    parser.add_argument("--keep", type=Path, default=RESULTS, metavar="DIR", help="the folder for failed rounds")
    parser.add_argument("--keep-all", action="store_true", help="also keep the folders of rounds that passed")
    parser.add_argument(
        "--planted",
        nargs="*",
        metavar="NAME",
        help="plant these bugs (without names: all), and fail if the checks do not report one; runs no other rounds",
    )
    parser.add_argument("--list", action="store_true", help="print the rounds that would run, and exit")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds; return 0 if all passed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.planted is not None:
        return small.run_planted(options.planted)
    names = [name for name in options.faults.split(",") if name]
    features = frozenset(name for name in options.members.split(",") if name)
    if unknown := [*(set(names) - KINDS.keys()), *(features - MEMBER_FEATURES)]:
        parser.error(f"unknown fault or member feature: {', '.join(sorted(unknown))}")
    kinds = {name: KINDS[name] for name in names} or KINDS
    seed = seeds.fresh_seed() if options.seed is None else options.seed
    rounds = options.rounds or (None if options.minutes and not options.list else 1)
    nodes = range(1, NODES + 1)
    plans: Iterable[RoundPlan] = (draw(one, kinds, nodes, features) for one in options.replay or ())
    if not options.replay:
        plans = islice(covering(Random(seed), kinds, nodes, features), rounds)  # noqa: S311 - repeatable
    if options.list:
        print("\n".join(map(str, plans)))
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"seed {seed}; to repeat a round, use --replay SEED with the same --faults and --members", flush=True)
    outcomes = _run(plans, options.keep, options.minutes, keeps_all=options.keep_all)
    print(table(outcomes, kinds))
    failed = [outcome for outcome in outcomes if not outcome.has_passed]
    if failed:
        print(f"failed: {', '.join(str(outcome.plan.seed) for outcome in failed)}")
    return 1 if failed else 0


class Clusters:
    """The current cluster of a run: a round that upgrades the cluster gets a new one. A context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._current: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, plan: RoundPlan) -> Cluster:
        """Return the cluster for this round. If the round upgrades its cluster, it begins with the version before."""
        is_upgraded = bool(plan.features & UPGRADES)
        if self._current is None or is_upgraded:
            self._stack.close()
            version = SUPPORTED_VERSIONS[-2] if is_upgraded else NEWEST
            self._current = self._stack.enter_context(cluster(version))
        return self._current


def _run(plans: Iterable[RoundPlan], keep: Path, minutes: float | None, *, keeps_all: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    end_at = time.monotonic() + minutes * 60 if minutes is not None else None
    with Clusters() as clusters:
        for plan in plans:
            if end_at is not None and time.monotonic() > end_at:
                break
            folder = keep / str(plan.seed)
            shutil.rmtree(folder, ignore_errors=True)
            print(plan, flush=True)
            outcome = run_round(clusters.of(plan), plan, folder)
            outcomes.append(outcome)
            figures = outcome.verdict.figures
            print(
                f"  {'passed' if outcome.has_passed else 'FAILED'} after {outcome.seconds:.0f} s: {figures.records}"
                f" records, {figures.repeated} repeated, {figures.lost} lost, stall {figures.worst_stall_s:.1f} s,"
                f" overlap {figures.overlap_s * 1000:.0f} ms",
                flush=True,
            )
            if outcome.has_passed and not keeps_all:
                shutil.rmtree(folder)
                continue
            lines = [*outcome.problems, *map(str, outcome.verdict.violations)]
            for line in lines[:_SHOWN]:
                print(f"    {line}", flush=True)
            if len(lines) > _SHOWN:
                print(f"    and {len(lines) - _SHOWN} more: {folder}/verdict.txt", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
