"""The part of a kubelet that probes need: it runs one pod of a manifest, probes it as specified, and restarts it.

The periods are shortened by a factor, the timeouts are not: a busy machine is no reason for a restart. A container is
the process that the manifest's command starts, with all its children; it ends as a container does: SIGTERM, then
SIGKILL for all of them.
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

#: A container that is restarted fails several probes before, starts an interpreter, and joins its group again.
PODS_S = 90.0
STARTUP, LIVENESS, READINESS = "startupProbe", "livenessProbe", "readinessProbe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """One probe; a `status` of None means that no response came in time."""

    at: float
    probe: str
    status: int | None
    body: str = ""


class Kubelet:
    """One pod with one container, for as long as the context lasts.

    Args:
        container: The container of the manifest.
        files: The contents of /app in the image.
        environment: Variables with another value here.
        pod: Its name.
        factor: The factor for the probes' periods.
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
            threading.Thread(target=self._keep, daemon=True),
            threading.Thread(target=self._look, daemon=True),
        ]
        #: All probes, and why the container was restarted each time.
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

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until the probes satisfy this."""
        wait_until(is_so, "what the probes shall show", PODS_S, changed=self._changed, seen=self._seen)

    def work_until(self, is_so: Callable[[], bool], work: Callable[[], object]) -> None:
        """Repeat this until the probes satisfy the condition."""
        wait_until(is_so, "what the probes shall show", PODS_S, between=work, seen=self._seen)

    def _seen(self) -> object:
        return self.restarts, self.probed[-8:]

    def wait_probes(self, probe: str, count: int) -> list[Probed]:
        """Wait for this number of further probes of this kind."""
        begun = len(self.probed)
        self.wait(lambda: len(self.of(probe, begun)) >= count)
        return self.of(probe, begun)

    def of(self, probe: str, begun: int = 0) -> list[Probed]:
        """The probes of this kind, from this index of all probes on."""
        return [one for one in self.probed[begun:] if one.probe == probe]

    def program(self) -> int:
        """The process that consumes."""
        return int(json.loads(self._get("/health", PODS_S).body)["process"])

    def consumer(self) -> Mapping[str, Any]:
        """The state of the only consumer in /health."""
        (found,) = json.loads(self._get("/health", PODS_S).body)["consumers"]
        return dict(found)

    def terminate(self) -> int:
        """End the pod as a deletion does: no more liveness probes, then SIGTERM; return its exit code."""
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
        """Kill all processes of the container, as the end of its first process does."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        first = psutil.Process(process.pid)
        found: list[psutil.Process] = []
        # A stopped process starts no child that would be left.
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

    def _keep(self) -> None:
        """Run the startup probe, then the liveness probe; restart the container if it fails or ends."""
        failures = 0
        while not self._stopped.is_set():
            name = LIVENESS if self.has_started else STARTUP
            probe = self._container[name]
            if self._process is not None and self._process.poll() is not None:
                self._restart(f"it ended with {self._process.returncode}", 0)
                failures = 0
                continue
            found = self._ask(name, probe)
            if found.status == http.HTTPStatus.OK:
                failures = 0
                self.has_started = True
            else:
                failures += 1
            if failures >= probe["failureThreshold"]:
                self._restart(name, probe.get("terminationGracePeriodSeconds", 30) * self._factor)
                failures = 0
            self._stopped.wait(probe["periodSeconds"] * self._factor)

    def _look(self) -> None:
        """Run the readiness probe once the container has started."""
        failures = 0
        probe = self._container[READINESS]
        while not self._stopped.wait(probe["periodSeconds"] * self._factor):
            if not self.has_started:
                continue
            found = self._ask(READINESS, probe)
            failures = 0 if found.status == http.HTTPStatus.OK else failures + 1
            with self._changed:
                if failures == 0 and self.has_started:
                    self.is_ready = True
                elif failures >= probe["failureThreshold"]:
                    self.is_ready = False
                self._changed.notify_all()

    def _ask(self, name: str, probe: Mapping[str, Any]) -> Probed:
        found = self._get(probe["httpGet"]["path"], probe["timeoutSeconds"], name)
        with self._changed:
            self.probed.append(found)
            self._changed.notify_all()
        return found

    def _get(self, path: str, timeout_s: float, name: str = "") -> Probed:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return Probed(at=time.monotonic(), probe=name, status=answer.status, body=answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            return Probed(at=time.monotonic(), probe=name, status=None, body=str(error))
        finally:
            connection.close()


def stop(process: int) -> None:
    """Freeze the pod as a frozen node does; it continues only on request."""
    os.kill(process, signal.SIGSTOP)
