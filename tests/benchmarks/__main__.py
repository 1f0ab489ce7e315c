"""`python -m tests.benchmarks [names...]`: run figures on one broker and write a table, JSON and plots."""

from __future__ import annotations

import argparse
import compileall
import secrets
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import consumer_membership
from consumer_membership.devbroker import Backend, start
from tests.benchmarks import plots, report
from tests.benchmarks.bench import Bench, tell
from tests.benchmarks.figures import growth, many, rolling, spark_recovery
from tests.benchmarks.table import FIGURES, by_default, in_words, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Figure

_RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Run the figures; return 1 if a bound does not hold, else 0."""
    asked = _parser().parse_args(arguments)
    # As pip does when it installs a package: a source tree may have no bytecode, or an environment that writes none.
    compileall.compile_dir(Path(consumer_membership.__file__).parent, quiet=1)
    with _broker(asked) as (bootstrap, broker):
        bench = Bench(
            bootstrap=bootstrap,
            subject=asked.subject,
            is_quick=asked.quick,
            rounds=asked.rounds,
            seed=asked.seed if asked.seed is not None else secrets.randbelow(10**6),
            cells=tuple(asked.cell),
        )
        run = report.circumstances(broker=broker, subject=bench.subject, is_quick=bench.is_quick, seed=bench.seed)
        figures: list[Figure] = []
        for name in asked.names or by_default():
            began = time.monotonic()
            tell(f"--- {name}")
            figures.append(measured(FIGURES[name], bench))
            print(report.figure_markdown(figures[-1]), flush=True)
            tell(f"--- {name} took {time.monotonic() - began:.0f} s")
            _write(asked.output, run, figures)
    print(f"\nwritten to {asked.output}: {', '.join(sorted(path.name for path in asked.output.iterdir()))}")
    failed = report.missed(figures)
    print("no bound is missed" if not failed else "bounds missed:\n  " + "\n  ".join(failed))
    return 1 if failed else 0


def _write(folder: Path, run: report.Circumstances, figures: list[Figure]) -> None:
    """Write the results after each figure, so that an interrupted run keeps its measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(report.markdown(run, figures))
    (folder / "results.json").write_text(report.as_json(run, figures))
    plots.draw(figures[-1], folder)


@contextmanager
def _broker(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if asked.bootstrap:
        yield asked.bootstrap, f"at {asked.bootstrap}"
        return
    with start(asked.version, backend=Backend(asked.backend) if asked.backend else None) as broker:
        yield broker.bootstrap_servers, f"{broker.version} ({broker.backend.value})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"figures, with the unit, the sides, the workers and the bounds:\n{in_words()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = ", ".join(name for name in FIGURES if name not in by_default())
    which = f"which figures; by default {', '.join(by_default())}; only where they are named: {named}"
    parser.add_argument("names", nargs="*", type=_name, help=which)
    parser.add_argument("--quick", action="store_true", help="few rounds, little data: about fifteen minutes")
    parser.add_argument("--rounds", type=int, help="rounds of each figure, instead of its own number")
    with_cells = (rolling, spark_recovery, growth, many)
    cells = f"only this cell of {', '.join(figure.NAME for figure in with_cells)}; may be given again"
    choices = [cell for figure in with_cells for cell in figure.CELLS]
    parser.add_argument("--cell", action="append", default=[], choices=choices, help=cells)
    parser.add_argument("--seed", type=int, help="of random phases and choices")
    parser.add_argument("--bootstrap", help="an existing broker, instead of one that is started")
    parser.add_argument("--version", help="the version of the broker that is started")
    parser.add_argument("--backend", choices=[backend.value for backend in Backend], help="how the broker is come by")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="where to write")
    parser.add_argument(
        "--subject", default="consumer_membership", help="whose Consumer is ours; confluent_kafka measures the harness"
    )
    return parser


def _name(word: str) -> str:
    """Return a valid figure name; argparse's `choices` would reject an empty list of names."""
    if word not in FIGURES:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(FIGURES)}")
    return word


if __name__ == "__main__":
    sys.exit(main())
