"""Run Kafka's consumer group scenarios: `python -m tests.kafkatest [--clients ours,java,confluent] [--scenario TEXT]`.

Each client's verifiable consumer runs on a devbroker cluster; cases with equal brokers share a cluster. The command
prints a line for each case, and then a table of passed cases for each test and client. Its exit code is 1 if a case
failed with this package's client. `--scenario` selects the cases whose names contain the text. Logs of failed cases are
kept in `tests/results/kafkatest`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from consumer_membership.devbroker import Broker, start
from tests.kafkatest.clients import Client
from tests.kafkatest.environment import Environment
from tests.kafkatest.scenarios import CASES, Case

RESULTS = Path(__file__).resolve().parent.parent / "results" / "kafkatest"


class Verdict(Enum):
    """The result of one case with one client; the value is its text in tables."""

    PASSED = "passes"
    FAILED = "fails"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one case with one client; `reason` is the first line of the failure, or the missing feature."""

    case: Case
    client: Client
    verdict: Verdict
    seconds: float
    reason: str = ""
    detail: str = ""

    @property
    def line(self) -> str:
        """One line for the terminal."""
        text = f"{self.client:10} {self.case.name:60} {self.verdict.value:12} {self.seconds:6.1f} s"
        return f"{text}  {self.reason}" if self.reason else text


def run(case: Case, client: Client, broker: Broker, *, bounces: int, partitions: int = 1) -> Outcome:
    """Run one case with one client; keep the logs if it fails."""
    if client in case.unsupported:
        return Outcome(
            case=case, client=client, verdict=Verdict.UNSUPPORTED, seconds=0.0, reason=case.unsupported[client]
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="consumer-membership-kafkatest-") as folder:
        count = case.partitions if case.partitions > 1 else partitions
        config = case.config if client is Client.OURS else {}
        environment = Environment.prepare(
            broker, client, Path(folder), bounces=bounces, partitions=count, config=config
        )
        try:
            case.run(environment)
        except (AssertionError, TimeoutError) as error:
            shutil.copytree(folder, RESULTS / f"{client}-{case.name}", dirs_exist_ok=True)
            text = str(error) or type(error).__name__
            return Outcome(
                case=case,
                client=client,
                verdict=Verdict.FAILED,
                seconds=time.monotonic() - began,
                reason=text.partition("\n")[0],
                detail=text,
            )
    return Outcome(case=case, client=client, verdict=Verdict.PASSED, seconds=time.monotonic() - began)


@contextmanager
def _cluster(case: Case) -> Iterator[Broker]:
    with start(nodes=case.nodes, properties=case.properties) as broker:
        yield broker


def _by_cluster(cases: Sequence[Case]) -> list[list[Case]]:
    kinds: dict[tuple[int, tuple[tuple[str, str], ...]], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.nodes, tuple(sorted(case.properties.items()))), []).append(case)
    return list(kinds.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kafkatest", description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", default=",".join(Client), help="comma-separated clients; default: all")
    parser.add_argument("--scenario", action="append", help="run only cases whose names contain this text; repeatable")
    parser.add_argument(
        "--bounces",
        type=int,
        default=2,
        help="number of restarts of members and brokers; default: 2 (Kafka's tests: 5)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=1,
        help="number of partitions for tests whose topic has one partition in Kafka's tests; default: 1",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the selected cases, and exit")
    return parser


def _markdown(verdicts: Iterable[tuple[str, Client, bool]], clients: Sequence[Client]) -> str:
    """Return a table with a row for each of Kafka's tests.

    Each cell has the number of passed cases and of all cases that the client supports.
    """
    counts: dict[str, dict[Client, tuple[int, int]]] = {}
    for test, client, is_passed in verdicts:
        passed, total = counts.setdefault(test, {}).get(client, (0, 0))
        counts[test][client] = (passed + is_passed, total + 1)
    rows = [f"| test | {' | '.join(clients)} |", f"|---|{'---|' * len(clients)}"]
    for test, of_clients in counts.items():
        cells = [_cell(of_clients.get(client)) for client in clients]
        rows.append(f"| `{test}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(count: tuple[int, int] | None) -> str:
    return "-" if count is None else f"{count[0]} of {count[1]}"


def main(arguments: Sequence[str]) -> int:
    """Run the selected cases; return the exit code."""
    given = _parser().parse_args(arguments)
    clients = [Client(name) for name in given.clients.split(",")]
    cases = [case for case in CASES if not given.scenario or any(text in case.name for text in given.scenario)]
    if given.list:
        print("\n".join(case.name for case in cases))
        return 0
    # On SIGTERM, the context managers end members and brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    outcomes: list[Outcome] = []
    for sharing in _by_cluster(cases):
        with _cluster(sharing[0]) as broker:
            for case in sharing:
                for client in clients:
                    outcomes.append(run(case, client, broker, bounces=given.bounces, partitions=given.partitions))
                    print(outcomes[-1].line, flush=True)
    rated = [one for one in outcomes if one.verdict is not Verdict.UNSUPPORTED]
    print(_markdown([(one.case.test, one.client, one.verdict is Verdict.PASSED) for one in rated], clients))
    failed = [one for one in outcomes if one.verdict is Verdict.FAILED]
    return 1 if any(one.client is Client.OURS for one in failed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
