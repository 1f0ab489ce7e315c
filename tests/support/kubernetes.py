"""The part of a Kubernetes cluster that Spark's scheduler needs: an API server of pods, and a node that runs executors.

The API keeps pods, lists them and forgets them, as Spark asks; each pod is checked against Kubernetes' own schema. The
node is this machine: an executor's container is a process with the pod's environment, started as the entrypoint of
Spark's images does it. A pod that is deleted gets SIGTERM, and SIGKILL when its grace period is over.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyspark

from consumer_membership.devbroker.tcp_ports import LOOPBACK
from tests.support.kubernetes_schemas import RefusedResource, check

_SOMETIME = "2026-01-01T00:00:00Z"
_POD = re.compile(r"/api/v1/namespaces/[^/]+/pods/(?P<name>[^/?]+)")
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: Of an executor's environment: its argument in the command.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class Pod:
    """A pod that runs here, made from its definition."""

    def __init__(self, definition: dict[str, Any], folder: Path) -> None:
        self.definition = definition
        self.name = str(definition["metadata"]["name"])
        (container,) = definition["spec"]["containers"]
        fields = {"status.podIP": LOOPBACK, "metadata.name": self.name}
        told = {
            one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container["env"]
        }
        options = [told[name] for name in sorted(told) if name.startswith("SPARK_JAVA_OPT_")]
        words = [word for flag, name in _ARGUMENTS.items() for word in (flag, told[name])]
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        folder.mkdir()
        memory = f"-Xmx{told['SPARK_EXECUTOR_MEMORY']}"
        self.log = folder / "log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [shutil.which("java") or "java", *options, memory, "-cp", str(jars), _BACKEND, *words],
                env={**os.environ, **told, "SPARK_LOCAL_DIRS": str(folder), "PYSPARK_PYTHON": sys.executable},
                cwd=folder,
                stdout=output,
                stderr=output,
            )

    def described(self) -> Mapping[str, Any]:
        """The pod's current state in the API."""
        code = self.process.poll()
        phase = "Running"
        state: Mapping[str, Mapping[str, object]] = {"running": {"startedAt": _SOMETIME}}
        if code is not None:
            phase = "Failed" if code else "Succeeded"
            state = {"terminated": {"exitCode": code, "finishedAt": _SOMETIME}}
        name = self.definition["spec"]["containers"][0]["name"]
        container = {"name": name, "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        return {**self.definition, "status": {"phase": phase, "podIP": LOOPBACK, "containerStatuses": [container]}}

    def delete(self) -> None:
        """Delete the pod as `kubectl delete pod` does."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        grace_s = self.definition["spec"].get("terminationGracePeriodSeconds", 30)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cluster:
    """The pods of one API server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self.refused: list[str] = []
        self.url = ""

    def pods(self) -> list[Pod]:
        """The existing pods, the oldest first."""
        with self._lock:
            return list(self._pods.values())

    def create(self, definition: dict[str, Any]) -> Mapping[str, Any]:
        """Validate a pod and run it."""
        try:
            check(definition)
        except RefusedResource as refused:
            self.refused.append(str(refused))
        with self._lock:
            pod = Pod(definition, self._folder / definition["metadata"]["name"])
            definition["metadata"] |= {"uid": pod.name, "creationTimestamp": _SOMETIME}
            self._pods[pod.name] = pod
        return pod.described()

    def find(self, name: str) -> Mapping[str, Any] | None:
        """The pod with this name; the driver's pod is not on this node."""
        with self._lock:
            pod = self._pods.get(name)
        if pod is not None:
            return pod.described()
        return None if "-exec-" in name else {"metadata": {"name": name, "uid": name}, "status": {"phase": "Running"}}

    def delete(self, name: str | None) -> None:
        """Delete one pod or all."""
        with self._lock:
            ended = [self._pods.pop(one) for one in list(self._pods) if name in (None, one)]
        for pod in ended:
            pod.delete()


class _Api(BaseHTTPRequestHandler):
    """The requests that Spark sends to an API server."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster
    closing: threading.Event

    def do_GET(self) -> None:
        """Return a pod or the list of all. Watches return nothing, because Spark also polls."""
        if "watch=true" in self.path:
            if self.headers.get("upgrade"):
                # No web sockets: the client asks once more, without.
                self._answer({})
                return
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.closing.wait()
            return
        named = _POD.match(self.path)
        if named:
            found = self.cluster.find(named["name"])
            self._answer(found if found is not None else {"kind": "Status", "code": 404}, 404 if found is None else 200)
            return
        items = [pod.described() for pod in self.cluster.pods()] if "spark-role%3Dexecutor" in self.path else []
        self._answer({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})

    def do_POST(self) -> None:
        """Create a pod; accept other resources unchanged."""
        told = self._told()
        self._answer(self.cluster.create(told) if told["kind"] == "Pod" else told, 201)

    def do_PATCH(self) -> None:
        """Accept labels, which no code reads here."""
        self._told()
        named = _POD.match(self.path)
        self._answer((self.cluster.find(named["name"]) if named else None) or {})

    def do_DELETE(self) -> None:
        """Delete one pod or all."""
        self._told()
        named = _POD.match(self.path)
        if "/pods" in self.path:
            self.cluster.delete(named["name"] if named else None)
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _told(self) -> Any:
        words = self.rfile.read(int(self.headers.get("content-length", 0)))
        return json.loads(words or b"{}")

    def _answer(self, said: Mapping[str, Any], code: int = 200) -> None:
        kind = {"kind": "Pod", "apiVersion": "v1"} if "kind" not in said else {}
        words = json.dumps({**kind, **said}).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def kubernetes(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the context lasts; its pods keep their files in this folder."""
    cluster, closing = Cluster(folder), threading.Event()
    handler = type("Api", (_Api,), {"cluster": cluster, "closing": closing})
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster.url = f"http://{LOOPBACK}:{server.server_port}"
    try:
        yield cluster
    finally:
        closing.set()
        cluster.delete(None)
        server.shutdown()
        server.server_close()
