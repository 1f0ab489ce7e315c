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
from tests.benchmarks.bench import Bench, log
from tests.benchmarks.figures import growth, many, rolling, spark_recovery
from tests.benchmarks.table import FIGURES, as_text, by_default, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Figure

_RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Run the figures; return 1 if a bound does not hold, else 0."""
    options = _parser().parse_args(arguments)
    # pip compiles a package when it installs it, but a source tree may have no bytecode.
    compileall.compile_dir(Path(consumer_membership.__file__).parent, quiet=1)
    with _broker(options) as (bootstrap, broker):
        bench = Bench(
            bootstrap=bootstrap,
            subject=options.subject,
            is_quick=options.quick,
            rounds=options.rounds,
            seed=options.seed if options.seed is not None else secrets.randbelow(10**6),
            cells=tuple(options.cell),
        )
        run = report.circumstances(broker=broker, subject=bench.subject, is_quick=bench.is_quick, seed=bench.seed)
        figures: list[Figure] = []
        for name in options.names or by_default():
            began = time.monotonic()
            log(f"--- {name}")
            figures.append(measured(FIGURES[name], bench))
            print(report.figure_markdown(figures[-1]), flush=True)
            log(f"--- {name} took {time.monotonic() - began:.0f} s")
            _write(options.output, run, figures)
    print(f"\nwritten to {options.output}: {', '.join(sorted(path.name for path in options.output.iterdir()))}")
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
def _broker(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if options.bootstrap:
        yield options.bootstrap, f"at {options.bootstrap}"
        return
    with start(options.version, backend=Backend(options.backend) if options.backend else None) as broker:
        yield broker.bootstrap_servers, f"{broker.version} ({broker.backend.value})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"figures, with the unit, the sides, the workers and the bounds:\n{as_text()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = ", ".join(name for name in FIGURES if name not in by_default())
    which = f"the figures to run; default: {', '.join(by_default())}; these run only if they are named: {named}"
    parser.add_argument("names", nargs="*", type=_name, help=which)
    parser.add_argument("--quick", action="store_true", help="few rounds, little data: about fifteen minutes")
    parser.add_argument("--rounds", type=int, help="number of rounds of each figure, instead of its default")
    with_cells = (rolling, spark_recovery, growth, many)
    cells = f"run only this cell of {', '.join(figure.NAME for figure in with_cells)}; may be repeated"
    choices = [cell for figure in with_cells for cell in figure.CELLS]
    parser.add_argument("--cell", action="append", default=[], choices=choices, help=cells)
    parser.add_argument("--seed", type=int, help="seed of random phases and choices")
    parser.add_argument("--bootstrap", help="host:port of an existing broker; without it, a broker is started")
    parser.add_argument("--version", help="version of the broker to start")
    parser.add_argument("--backend", choices=[backend.value for backend in Backend], help="how the broker is started")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="folder for the results")
    parser.add_argument(
        "--subject", default="consumer_membership", help="module of our Consumer; confluent_kafka measures the harness"
    )
    return parser


def _name(name: str) -> str:
    """Return a valid figure name; argparse's `choices` would reject an empty list of names."""
    if name not in FIGURES:
        raise argparse.ArgumentTypeError(f"{name!r} is not a figure; choose from {', '.join(FIGURES)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
