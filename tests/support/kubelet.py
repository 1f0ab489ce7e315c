"""A simulated kubelet: it runs one pod of a manifest, probes the pod as specified, and restarts its container.

A factor shortens the periods but not the timeouts, so that a busy machine causes no restarts. A container is the
process that the manifest's command starts, with all of its children. It is stopped as a container is: SIGTERM for the
process, then SIGKILL for all processes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.waiting import wait_until

#: A restart takes long: several probes fail, then the container starts an interpreter and joins its group again.
PODS_S = 90.0
STARTUP, LIVENESS, READINESS = "startupProbe", "livenessProbe", "readinessProbe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The result of one probe; a `status` of None means that no response arrived in time."""

    at: float
    probe: str
    status: int | None
    body: str = ""


class Kubelet:
    """One pod with one container; a context manager that runs it.

    Args:
        container: The container of the manifest.
        files: The contents of /app in the image.
        environment: Environment variables that replace those of the manifest.
        pod: The name of the pod.
        factor: The factor for the periods of probes.
    """

    def __init__(
        self, container: Mapping[str, Any], files: Path, environment: Mapping[str, str], pod: str, factor: float
    ) -> None:
        (self._port,) = draw_ports(1)
        self._container = container
        self._files = files
        self._factor = factor
        manifest = {one["name"]: one.get("value", pod) for one in container["env"]}
        address = {"CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS": f"{LOOPBACK}:{self._port}"}
        self._environment = {**os.environ, **manifest, **environment, **address}
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads = [
            threading.Thread(target=self._supervise, daemon=True),
            threading.Thread(target=self._probe_readiness, daemon=True),
        ]
        #: All probes, and the reason of each restart.
        self.probed: list[Probed] = []
        self.restarts: list[str] = []
        self.has_started = False
        self.is_ready = False
        self.log = Path(self._environment["LOG"])

    def __enter__(self) -> Self:
        """Start the container."""
        self._start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill all remaining processes."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(PODS_S)
        self._kill()
        if error is not None:
            error.add_note(f"{self.restarts} {self.probed[-8:]}\n{self.log.read_text()[-3000:]}")

    # ---- for the test ----

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after each probe."""
        wait_until(condition, "the awaited probes", PODS_S, changed=self._changed, seen=self._seen)

    def work_until(self, condition: Callable[[], bool], work: Callable[[], object]) -> None:
        """Call `work` repeatedly until the condition holds."""
        wait_until(condition, "the awaited probes", PODS_S, between=work, seen=self._seen)

    def _seen(self) -> object:
        return self.restarts, self.probed[-8:]

    def wait_probes(self, probe: str, count: int) -> list[Probed]:
        """Wait for this number of additional probes of this kind, and return them."""
        begun = len(self.probed)
        self.wait(lambda: len(self.of(probe, begun)) >= count)
        return self.of(probe, begun)

    def of(self, probe: str, begun: int = 0) -> list[Probed]:
        """Return the probes of this kind, starting at this index of all probes."""
        return [one for one in self.probed[begun:] if one.probe == probe]

    def program(self) -> int:
        """Return the id of the process that consumes."""
        return int(json.loads(self._get("/health", PODS_S).body)["process"])

    def consumer(self) -> Mapping[str, Any]:
        """Return the state of the only consumer in /health."""
        (found,) = json.loads(self._get("/health", PODS_S).body)["consumers"]
        return dict(found)

    def terminate(self) -> int:
        """End the pod as a deletion does: stop the probes, then send SIGTERM; return the exit code."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(PODS_S)
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PODS_S)

    # ---- the container ----

    def _start(self) -> None:
        command = [str(one).replace("/app", str(self._files)) for one in self._container["command"]]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable if one == "python3" else one for one in command],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self.has_started = False

    def _kill(self) -> None:
        """Kill all processes of the container."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        first = psutil.Process(process.pid)
        found: list[psutil.Process] = []
        # All processes are suspended first, so that none of them starts a child that would not be killed.
        while new := [one for one in (first, *first.children(recursive=True)) if one not in found]:
            found += new
            for one in new:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
        for one in found:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(PODS_S)

    def _restart(self, cause: str, grace_s: float) -> None:
        process = self._process
        assert process is not None
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._kill()
        with self._changed:
            self.restarts.append(cause)
            self.is_ready = False
            if not self._stopped.is_set():
                self._start()
            self._changed.notify_all()

    # ---- the probes ----

    def _supervise(self) -> None:
        """Run the startup probe, then the liveness probe; restart the container if they fail or the process ends."""
        failures = 0
        while not self._stopped.is_set():
            name = LIVENESS if self.has_started else STARTUP
            probe = self._container[name]
            if self._process is not None and self._process.poll() is not None:
                self._restart(f"it ended with {self._process.returncode}", 0)
                failures = 0
                continue
            found = self._run_probe(name, probe)
            if found.status == http.HTTPStatus.OK:
                failures = 0
                self.has_started = True
            else:
                failures += 1
            if failures >= probe["failureThreshold"]:
                self._restart(name, probe.get("terminationGracePeriodSeconds", 30) * self._factor)
                failures = 0
            self._stopped.wait(probe["periodSeconds"] * self._factor)

    def _probe_readiness(self) -> None:
        """Run the readiness probe after the container has started."""
        failures = 0
        probe = self._container[READINESS]
        while not self._stopped.wait(probe["periodSeconds"] * self._factor):
            if not self.has_started:
                continue
            found = self._run_probe(READINESS, probe)
            failures = 0 if found.status == http.HTTPStatus.OK else failures + 1
            with self._changed:
                if failures == 0 and self.has_started:
                    self.is_ready = True
                elif failures >= probe["failureThreshold"]:
                    self.is_ready = False
                self._changed.notify_all()

    def _run_probe(self, name: str, probe: Mapping[str, Any]) -> Probed:
        found = self._get(probe["httpGet"]["path"], probe["timeoutSeconds"], name)
        with self._changed:
            self.probed.append(found)
            self._changed.notify_all()
        return found

    def _get(self, path: str, timeout_s: float, name: str = "") -> Probed:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return Probed(at=time.monotonic(), probe=name, status=response.status, body=response.read().decode())
        except (OSError, http.client.HTTPException) as error:
            return Probed(at=time.monotonic(), probe=name, status=None, body=str(error))
        finally:
            connection.close()


def stop(process: int) -> None:
    """Suspend the process, as on a frozen node; it does not continue automatically."""
    os.kill(process, signal.SIGSTOP)
