"""The Kubernetes example: its manifests are valid, and their values match each other and the package's limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.config.environment import PREFIX
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.runtime.application.commits import ANSWER_GRACE_S
from consumer_membership.types import ConflictPolicy
from tests.support.kubernetes_schemas import check, resources
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "kubernetes"
MANIFESTS = sorted(EXAMPLE.glob("*.yaml"))
#: The manifests' limit for the processing time of one record.
LONGEST_RECORD_S = 30


def workload(path: Path) -> dict[str, Any]:
    """Return the resource that runs the pods."""
    (found,) = (one for one in resources(path) if "template" in one["spec"])
    return found


def container(path: Path) -> dict[str, Any]:
    """Return the pods' only container."""
    (found,) = workload(path)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_manifests_are_valid_and_refer_to_existing_names() -> None:
    """The manifests match Kubernetes' schemas, and their selectors, names and commands match each other."""
    kinds = Counter[str]()
    for path in MANIFESTS:
        found = resources(path)
        kinds += Counter(one["kind"] for one in found)
        for one in found:
            check(one)
        spec = workload(path)["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        for one in found:
            if one["kind"] == "PodDisruptionBudget":
                assert one["spec"]["selector"]["matchLabels"] == labels
            if one["kind"] == "Service":
                assert (one["spec"]["selector"], one["metadata"]["name"]) == (labels, spec["serviceName"])
        command = container(path)["command"]
        assert all((EXAMPLE / Path(name).name).exists() for name in command if name.startswith("/app/"))
        assert f"ENTRYPOINT {json.dumps(command)}" in (EXAMPLE / "Dockerfile").read_text()
    assert kinds == {"Deployment": 2, "StatefulSet": 1, "PodDisruptionBudget": 3, "Service": 1}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pods_run_without_root_writable_files_or_a_service_account_token(path: Path) -> None:
    """Pods do not run as root, have a read-only file system and receive no token of the cluster."""
    pod = workload(path)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container(path)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_variables_configure_static_members_guardian_and_probes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable is a key of the package, and the probes request the port that the consumer serves."""
    of_container = container(path)
    for one in of_container["env"]:
        monkeypatch.setenv(one["name"], one.get("value", "orders-0"))
    config = ConsumerConfig.from_mapping({})
    assert {name for name in (one["name"] for one in of_container["env"]) if not name.startswith(PREFIX)} == {"TOPIC"}
    assert config.crash_guardian_enable
    member = config.member_settings()
    (port,) = of_container["ports"]
    assert str(config.probe_settings().address) == f"0.0.0.0:{port['containerPort']}"
    probes = [of_container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert [one["httpGet"] for one in probes] == [
        {"path": f"/{page}", "port": port["name"]} for page in ("livez", "livez", "readyz")
    ]
    replicas = workload(path)["spec"]["replicas"]
    assert (member.instance_id is None) is path.stem.startswith("deployment")
    assert path.stem != "deployment" or len(member.instance_pool) >= 2 * replicas


def test_hand_over_manifest_starts_new_pods_first_and_has_an_id_for_each_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool has exactly one id for each replica: with a free id, a new pod would join without a hand-over.

    A pod that has handed over is reported as not ready before the next pod is replaced, so that Kubernetes ends this
    pod and no other one.
    """
    path = EXAMPLE / "deployment-hand-over.yaml"
    spec, of_container = workload(path)["spec"], container(path)
    for one in of_container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    member = ConsumerConfig.from_mapping({}).member_settings()
    assert member.conflict_policy is ConflictPolicy.HAND_OVER
    assert len(member.instance_pool) == spec["replicas"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    probe = of_container["readinessProbe"]
    assert spec["minReadySeconds"] > probe["periodSeconds"] * probe["failureThreshold"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pod_grace_period_covers_the_longest_record_and_a_close(path: Path) -> None:
    """The grace period covers the longest record and a close without a response.

    A stuck pod is restarted before its session ends.
    """
    pod = workload(path)["spec"]["template"]["spec"]
    close_s = MemberSettings(group_id="orders").leave_timeout_s + ANSWER_GRACE_S
    assert pod["terminationGracePeriodSeconds"] > LONGEST_RECORD_S + close_s
    probe = container(path)["livenessProbe"]
    restarted_after_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert restarted_after_s + probe["terminationGracePeriodSeconds"] <= 45


def run(*command: str) -> subprocess.Popen[str]:
    """Start a command the way the container starts it."""
    words = ["sh", str(EXAMPLE / "entrypoint.sh"), *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


_ENDS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("ends", flush=True), sys.exit(7)))
print("runs", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.slow
def test_entrypoint_forwards_the_signal_and_returns_the_exit_code() -> None:
    """The entrypoint forwards SIGTERM, ends after the program and returns its exit code."""
    with run(sys.executable, "-c", _ENDS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S) == ("ends\n", "")
        assert process.returncode == 7


#: A program that is killed after its child process has started, so that the entrypoint's second is only for the leave.
_DIES = """
import os, time
has_started, starts = os.pipe()
if os.fork() == 0:
    os.write(starts, b"x")
    time.sleep(0.1)
    print("left the group", flush=True)
    os._exit(0)
os.read(has_started, 1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_entrypoint_waits_for_the_guardian_of_a_killed_program() -> None:
    """The entrypoint gives child processes of a killed program time to finish; a guardian leaves the group."""
    with run(sys.executable, "-c", _DIES) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "left the group\n"
        assert process.poll() is None
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 137
