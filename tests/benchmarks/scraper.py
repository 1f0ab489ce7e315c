"""A simulated kubelet and Prometheus that repeatedly request a worker's readiness and metrics.

They run in the driver, so that the measured process has only the cost of the responses.
"""

from __future__ import annotations

import http.client
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

import psutil

from tests.benchmarks.processes import WorkerFailedError

if TYPE_CHECKING:
    from types import TracebackType

EVERY_S = 5.0
PATHS = ("/readyz", "/metrics")
"""A consumer that joins is not ready; its metrics are available at any time."""

_CHECK_EVERY_S = 0.05
_TIMEOUT_S = 10.0


class Scraper:
    """Scrapes a process after `first_s` and then every five seconds until the end of its context.

    It skips a process that has ended, and a process that does not listen yet. If a request for metrics received an
    error status, the end of the context raises `WorkerFailedError`.
    """

    def __init__(self, pid: int, first_s: float = 0.0) -> None:
        self._pid = pid
        self._first_s = first_s
        self._is_over = threading.Event()
        self._has_answered = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answered = 0
        self._refused: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if self._refused and error is None:
            raise WorkerFailedError(f"process {self._pid} did not return its metrics: {self._refused}")

    def await_response(self) -> None:
        """Wait until each request received one response.

        Raises:
            WorkerFailedError: A request received no response in time.
        """
        if not self._has_answered.wait(self._first_s + 2 * _TIMEOUT_S):
            raise WorkerFailedError(f"process {self._pid} did not respond")

    def _run(self) -> None:
        port = None
        while port is None:
            if self._is_over.wait(_CHECK_EVERY_S):
                return
            port = listening_port(self._pid)
        wait_s = self._first_s
        while not self._is_over.wait(wait_s):
            began = time.monotonic()
            try:
                statuses = [_get(port, path) for path in PATHS]
            except OSError:  # the process ends and no longer listens
                return
            self._refused += [status for status in statuses[1:] if status != HTTPStatus.OK]
            self.answered += 1
            self._has_answered.set()
            wait_s = max(began + EVERY_S - time.monotonic(), 0.0)


def listening_port(pid: int) -> int | None:
    """Return the only TCP port on which a process listens; None if it listens on none or has ended."""
    try:
        opened = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return None
    ports = [one.laddr.port for one in opened if one.status == psutil.CONN_LISTEN]
    return ports[0] if ports else None


def _get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    return answer.status
