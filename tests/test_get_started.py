"""The programs of the README's quickstart and of `docs/start` run on a real broker and print what the pages show."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker
from tests.support.documents import DOCS, README
from tests.support.kafka import unique
from tests.support.texts import is_of_busy_broker
from tests.support.waiting import PATIENCE_S, PROCESS_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

START = DOCS / "start"
#: A program with its file name, and the first output block below it.
_PROGRAM = re.compile(
    r"^ *```python title=\"(?P<name>[\w.]+)\"\n(?P<code>.*?)^ *```$.*?^ *```text\n(?P<output>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


def without_warnings(text: str) -> list[str]:
    """Return the lines without the warning that a broker did not read a connection's first request in time."""
    return [line for line in text.splitlines() if not is_of_busy_broker(line)]


class Shown:
    """The programs of a page, written to a folder, with this broker and with topics and groups that are unique."""

    def __init__(self, page: Path, kafka: Broker, folder: Path) -> None:
        self._folder = folder
        self._output: dict[str, list[str]] = {}
        others = {name: unique(name) for name in ("quickstart", "first-rebalance")}
        for found in _PROGRAM.finditer(page.read_text()):
            code = textwrap.dedent(found["code"]).replace("localhost:9092", kafka.bootstrap_servers)
            # Only complete strings are replaced, because "order 1" in a value is not a topic.
            code = code.replace('"orders"', f'"orders-{folder.name}"')
            for name, other in others.items():
                code = code.replace(f'"group.id": "{name}"', f'"group.id": "{other}"')
            (folder / found["name"]).write_text(code)
            self._output[found["name"]] = textwrap.dedent(found["output"]).splitlines()

    def output(self, name: str) -> list[str]:
        """Return the lines that the page shows for this program."""
        return self._output[name]

    def run(self, name: str) -> list[str]:
        """Run a program to its end and return the lines that it prints."""
        words = [sys.executable, name]
        ran = subprocess.run(words, cwd=self._folder, check=False, capture_output=True, text=True, timeout=PROCESS_S)
        assert (ran.returncode, without_warnings(ran.stderr)) == (0, [])
        return ran.stdout.splitlines()

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Start a program that runs until a signal; yield it with the file of its output."""
        output = self._folder / f"{'-'.join(arguments)}.log"
        words = [sys.executable, name, *arguments]
        with output.open("wb") as log, subprocess.Popen(words, cwd=self._folder, stdout=log, stderr=log) as process:
            try:
                yield process, output
            finally:
                process.kill()


@pytest.mark.parametrize("page", [README, START / "quickstart.md"], ids=["README", "quickstart"])
def test_quickstart_prints_the_shown_output(kafka: Broker, tmp_path: Path, page: Path) -> None:
    """Both programs print the shown lines; only the order of the partitions may differ."""
    shown = Shown(page, kafka, tmp_path)
    assert shown.run("produce.py") == shown.output("produce.py")
    printed, expected = shown.run("consume.py"), shown.output("consume.py")
    assert sorted(printed[:6]) == sorted(expected[:6])
    assert printed[6:] == expected[6:]


def test_first_rebalance_prints_the_shown_output(kafka: Broker, tmp_path: Path) -> None:
    """A partition moves to the second member and back, and both members print what the page shows."""
    Shown(START / "quickstart.md", kafka, tmp_path).run("produce.py")
    text = (START / "first-rebalance.md").read_text()
    shown = Shown(START / "first-rebalance.md", kafka, tmp_path)
    with shown.started("member.py", "a") as (_, of_a):
        wait_until(
            lambda: without_warnings(of_a.read_text()) == shown.output("member.py"),
            "all partitions for a",
            seen=of_a.read_text,
        )
        with shown.started("member.py", "b") as (second, of_b):
            wait_until(lambda: re.search(r"owns \[\d", of_b.read_text()), "a partition for b")
            wait_until(lambda: "a: revoked" in of_a.read_text(), "a without that partition")
            second.send_signal(signal.SIGINT)
            second.wait(PATIENCE_S)
        wait_until(lambda: "a: epoch 4, owns [0, 1, 2]" in of_a.read_text(), "all partitions for a again")
        printed = without_warnings(of_a.read_text() + of_b.read_text())
    # The broker decides which partition moves, and when it computes an assignment.
    expected = {_anonymous(line) for line in text.splitlines()}
    assert [line for line in printed if _anonymous(line) not in expected] == []


def _anonymous(line: str) -> str:
    return re.sub(r"\[\d(?:, \d)?\]|epoch \d", "...", line)
