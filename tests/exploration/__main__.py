"""Explore: `python -m tests.exploration [--world NAME] [--rules 4.3] [--depth N] [--minutes M]`.

Without `--depth` each run goes as deep as its share of the minutes allows, two runs at a time; with it, to that depth.
Prints a line for each world and broker version, and ends with 1 and a trace if a rule is broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.exploration.model import Model
from tests.exploration.search import Outcome, Search
from tests.exploration.worlds import RULES, WORLDS

#: Runs at a time: each takes one core, and a gigabyte or two in half an hour.
PROCESSES = 2
#: Of the time given, so much is for starting and for freeing memory.
MARGIN = 0.06


def explore(world: str, rules: str, depth: int | None, seconds: float) -> Outcome:
    """One run, in a process of its own."""
    search = Search(Model(WORLDS[world], RULES[rules]))
    return search.run(depth=depth, seconds=seconds)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a rule was broken."""
    options = _parser().parse_args(words)
    runs = [
        (name, rules)
        for name, world in WORLDS.items()
        for rules in (options.rules or world.rules)
        if not options.world or name in options.world
    ]
    at_once = min(PROCESSES, os.cpu_count() or 1, len(runs))
    seconds = options.minutes * 60 * (1 - MARGIN) * at_once / len(runs)
    broken: list[Outcome] = []
    began = time.perf_counter()
    print(f"{'world':16} {'rules':5} {'states':>9} {'steps':>9} {'settle':>9} {'parts':>7} {'depth':>9} {'seconds':>7}")
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        asked = {pool.submit(explore, name, rules, options.depth, seconds): (name, rules) for name, rules in runs}
        for done in as_completed(asked):
            outcome = done.result()
            print(line(*asked[done], outcome), flush=True)
            if outcome.violation is not None:
                broken.append(outcome)
    for outcome in broken:
        print(f"\n{outcome.trace}\n{outcome.violation}")
    print(f"{len(runs)} runs in {time.perf_counter() - began:.0f} s, {len(broken)} broke a rule")
    return 1 if broken else 0


def line(name: str, rules: str, outcome: Outcome) -> str:
    """One row of the table; a depth with a star is the whole world within its budgets."""
    depth = f"{outcome.depth}{'*' if outcome.is_complete else ' '}"
    row = f"{name:16} {rules:5} {outcome.states:9} {outcome.steps:9} {outcome.settled:9} {outcome.parts:7} {depth:>9}"
    return f"{row} {outcome.seconds:7.1f}" + (f"  {outcome.violation}" if outcome.violation else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--world", action="append", choices=tuple(WORLDS), help="this world only; may be repeated")
    parser.add_argument("--rules", action="append", choices=tuple(RULES), help="of this broker only; may be repeated")
    parser.add_argument("--depth", type=int, help="stop after so many steps from the beginning")
    parser.add_argument("--minutes", type=float, default=2.0, help="for everything together (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
