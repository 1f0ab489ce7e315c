"""Explore: `python -m tests.exploration [--config NAME] [--rules 4.4|classic] [--faults N] [--depth N] [--minutes M]`.

The runs, one for each configuration and broker version, share the minutes, two at a time: later runs can use the time
that a run leaves. `--depth` ends each run after this number of steps; `--faults` sets the number of possible faults in
each run. The command prints a line for each run, and returns 1 and prints a trace if a rule is broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context

from tests.exploration.catalogue import CONFIGURATIONS
from tests.exploration.configurations import RULES, Configuration
from tests.exploration.search import Outcome, explore

#: The number of parallel runs: each uses one core, and about half a gigabyte for a million states.
PROCESSES = 2
#: The estimated time for the start of the first processes, in seconds; later runs use the measured time.
START_S = 1.0
HEAD = f"{'config':16} {'rules':5} {'faults':>6} {'states':>9} {'steps':>9} {'settle':>9} {'depth':>6} {'seconds':>8}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested explorations; return 1 if a rule was broken."""
    options = _parser().parse_args(arguments)
    runs = [
        (
            config if options.faults is None else replace(config, budgets={**config.budgets, "all": options.faults}),
            rules,
        )
        for name, config in CONFIGURATIONS.items()
        for rules in (options.rules or config.rules)
        if not options.config or name in options.config
    ]
    began = time.perf_counter()
    print(HEAD, flush=True)
    broken = [outcome for outcome in _run(runs, options.depth, began + options.minutes * 60) if outcome.violation]
    for outcome in broken:
        print(f"\n{outcome.trace}\n{outcome.violation}")
    print("*: every state of the configuration within its budgets")
    print(f"{len(runs)} runs in {time.perf_counter() - began:.0f} s, {len(broken)} broke a rule")
    return 1 if broken else 0


def _run(runs: list[tuple[Configuration, str]], depth: int | None, until: float) -> list[Outcome]:
    """Run all explorations, each with its share of the remaining time."""
    at_once = min(PROCESSES, os.cpu_count() or 1)
    waiting, outcomes, start_s = list(runs), [], START_S
    under_way: dict[Future[Outcome], tuple[Configuration, str]] = {}
    began: dict[Future[Outcome], float] = {}
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                rounds = -(-len(waiting) // at_once)
                seconds = max(1.0, (until - time.perf_counter()) / rounds - start_s)
                one = waiting.pop(0)
                future = pool.submit(explore, *one, depth, seconds)
                under_way[future], began[future] = one, time.perf_counter()
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                # The start of a process takes long on a busy machine, and must not shorten only the later runs.
                start_s = time.perf_counter() - began[future] - outcome.seconds
                print(line(*under_way.pop(future), outcome), flush=True)
                outcomes.append(outcome)
    return outcomes


def line(config: Configuration, rules: str, outcome: Outcome) -> str:
    """Return one row of the table."""
    depth = f"{outcome.depth}{'*' if outcome.is_complete else ' '}"
    row = (
        f"{config.name:16} {rules:5} {config.budgets['all']:6} {outcome.states:9} {outcome.steps:9} {outcome.settled:9}"
    )
    return f"{row} {depth:>6} {outcome.seconds:8.1f}" + (f"  {outcome.violation}" if outcome.violation else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument(
        "--config", action="append", choices=tuple(CONFIGURATIONS), help="this configuration only; may be repeated"
    )
    parser.add_argument("--rules", action="append", choices=tuple(RULES), help="of this broker only; may be repeated")
    parser.add_argument("--faults", type=int, help="number of possible faults in a run (default: the configuration's)")
    parser.add_argument("--depth", type=int, help="stop after this number of steps from the beginning")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all runs together (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
