"""A simulated Kubernetes cluster for Spark's scheduler: an API server for pods, and a node that runs executors.

The API creates, lists and deletes pods, as Spark requests, and validates each pod against Kubernetes' schema. The node
is this machine: an executor's container is a process with the pod's environment, started as the entrypoint of Spark's
images starts it. A deleted pod receives SIGTERM, and SIGKILL after its grace period.
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
#: The arguments of an executor's command, and the environment variables that have their values.
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
    """A pod that runs on this machine, created from its definition."""

    def __init__(self, definition: dict[str, Any], folder: Path) -> None:
        self.definition = definition
        self.name = str(definition["metadata"]["name"])
        (container,) = definition["spec"]["containers"]
        fields = {"status.podIP": LOOPBACK, "metadata.name": self.name}
        environment = {
            one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container["env"]
        }
        options = [environment[name] for name in sorted(environment) if name.startswith("SPARK_JAVA_OPT_")]
        arguments = [text for flag, name in _ARGUMENTS.items() for text in (flag, environment[name])]
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        folder.mkdir()
        memory = f"-Xmx{environment['SPARK_EXECUTOR_MEMORY']}"
        self.log = folder / "log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [shutil.which("java") or "java", *options, memory, "-cp", str(jars), _BACKEND, *arguments],
                env={**os.environ, **environment, "SPARK_LOCAL_DIRS": str(folder), "PYSPARK_PYTHON": sys.executable},
                cwd=folder,
                stdout=output,
                stderr=output,
            )

    def described(self) -> Mapping[str, Any]:
        """Return the pod's current state in the format of the API."""
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
        """Return the existing pods, the oldest first."""
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
        """Return the pod with this name; the driver's pod runs elsewhere, so its state is made up."""
        with self._lock:
            pod = self._pods.get(name)
        if pod is not None:
            return pod.described()
        return None if "-exec-" in name else {"metadata": {"name": name, "uid": name}, "status": {"phase": "Running"}}

    def delete(self, name: str | None) -> None:
        """Delete the pod with this name; None: all pods."""
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
        """Return a pod or the list of all pods. A watch returns no events, because Spark also polls."""
        if "watch=true" in self.path:
            if self.headers.get("upgrade"):
                # Web sockets are not supported: the client repeats the request without them.
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
        resource = self._body()
        self._answer(self.cluster.create(resource) if resource["kind"] == "Pod" else resource, 201)

    def do_PATCH(self) -> None:
        """Accept new labels without storing them."""
        self._body()
        named = _POD.match(self.path)
        self._answer((self.cluster.find(named["name"]) if named else None) or {})

    def do_DELETE(self) -> None:
        """Delete one pod or all pods."""
        self._body()
        named = _POD.match(self.path)
        if "/pods" in self.path:
            self.cluster.delete(named["name"] if named else None)
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _body(self) -> Any:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        return json.loads(content or b"{}")

    def _answer(self, resource: Mapping[str, Any], code: int = 200) -> None:
        kind = {"kind": "Pod", "apiVersion": "v1"} if "kind" not in resource else {}
        content = json.dumps({**kind, **resource}).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def kubernetes(folder: Path) -> Iterator[Cluster]:
    """Run a cluster within the context; its pods have their files in this folder."""
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
