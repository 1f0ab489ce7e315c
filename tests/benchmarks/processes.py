"""A worker process as the driver controls it: it receives orders as lines and reports events with their times.

If a worker ends with an error or without the expected report, the waiting caller gets an error with the end of the
worker's stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_PROJECT = Path(__file__).parents[2]
_END_TIMEOUT_S = 60.0
_TAIL_BYTES = 1500


class WorkerFailedError(Exception):
    """A worker ended without the expected report, or did not send it in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report of a worker."""

    event: str
    at: float
    facts: dict[str, Any]


def worker_command(name: str, job: Any, python: str = sys.executable) -> list[str]:
    """Return the command line of a program of `tests.benchmarks.workers`."""
    return [python, "-m", f"tests.benchmarks.workers.{name}", json.dumps(asdict(job))]


class Worker:
    """A process of `tests.benchmarks.workers`, killed at the latest at the end of its context.

    `command` replaces the command line, for programs of another interpreter or language.
    """

    def __init__(self, name: str, job: Any = None, *, command: Sequence[str] | None = None) -> None:
        self.name = name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            command or worker_command(name, job),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=_PROJECT,
        )
        self._reports: list[Report] = []
        self._has_ended = False
        self._news = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._stderr.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def reports(self, *events: str) -> list[Report]:
        """Return its reports so far, optionally only those of these events."""
        with self._news:
            return [report for report in self._reports if not events or report.event in events]

    def order(self, order: str) -> float:
        """Send an order; return the time at which it was sent."""
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerFailedError(f"{self.name} has ended: {self.stderr_tail()}") from error
        return time.monotonic()

    def expect(self, event: str, timeout_s: float) -> Report:
        """Return the latest report of this event; wait for the first report."""
        self.until(lambda: any(report.event == event for report in self._reports), timeout_s, f"'{event}'")
        return self.reports(event)[-1]

    def until(self, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Return as soon as the condition holds; it is checked after each report of the worker.

        Raises:
            WorkerFailedError: The time ran out, or the worker ended before.
        """
        with self._news:
            self._news.wait_for(lambda: holds() or self._has_ended, timeout_s)
            if holds():
                return
            reason = "it ended" if self._has_ended else f"not within {timeout_s:.0f} s"
        raise WorkerFailedError(f"{self.name} never reported {what} ({reason}): {self.stderr_tail()}")

    def end(self, timeout_s: float = _END_TIMEOUT_S) -> None:
        """Order the worker to end and wait for it.

        Raises:
            WorkerFailedError: The worker ended with an error, or did not end in time.
        """
        with suppress(WorkerFailedError):
            self.order("end")
        self.wait(timeout_s)

    def wait(self, timeout_s: float = _END_TIMEOUT_S) -> None:
        """Wait for the end of the worker.

        Raises:
            WorkerFailedError: The worker ended with an error, or did not end in time.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerFailedError(f"{self.name} did not end in {timeout_s:.0f} s: {self.stderr_tail()}") from error
        self._listener.join()
        if code != 0:
            raise WorkerFailedError(f"{self.name} ended with code {code}: {self.stderr_tail()}")

    def stderr_tail(self) -> str:
        """Return the end of its stderr so far."""
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return tail.decode(errors="replace").strip() or "(nothing on stderr)"

    def _listen(self) -> None:
        for line in self._process.stdout:
            facts = json.loads(line)
            report = Report(event=facts.pop("event"), at=facts.pop("at"), facts=facts)
            with self._news:
                self._reports.append(report)
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()


def run_worker(name: str, job: Any, timeout_s: float) -> Report:
    """Run a worker that measures one thing, and return its measurement.

    Raises:
        WorkerFailedError: The worker failed or sent no measurement in time.
    """
    with Worker(name, job) as worker:
        measured = worker.expect("measured", timeout_s)
        worker.wait()
        return measured


def listener_at(bootstrap: str) -> psutil.Process:
    """Return the process of this machine that listens at an address."""
    port = urlsplit(f"//{bootstrap}").port
    listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN and one.pid]
    return psutil.Process(next(one.pid for one in listening if one.laddr.port == port))


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time that a process has used so far, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def share_of_core(process: psutil.Process, watch_s: float) -> float:
    """Return the share of a core that a process uses during this time, in percent."""
    before, began = cpu_s(process), time.monotonic()
    time.sleep(watch_s)
    return (cpu_s(process) - before) / (time.monotonic() - began) * 100
