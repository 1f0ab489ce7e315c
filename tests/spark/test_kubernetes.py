"""The Kubernetes example: its resources match the schemas, and its program runs on Spark's scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import dataset

from consumer_membership.devbroker import Broker
from consumer_membership.errors import GroupError
from tests.spark.clusters import ROOT, SPARK_S, Ground
from tests.support.kafka import produce
from tests.support.kubernetes import Cluster, kubernetes
from tests.support.kubernetes_schemas import check, resources
from tests.support.waiting import wait_until

EXAMPLE = ROOT / "examples" / "spark_kubernetes"
#: Settings that replace those of the pods' network, and that shorten waits.
_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.port": "0",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "384m",
    "spark.kubernetes.executor.apiPollingInterval": "1s",
    "spark.kubernetes.allocation.batch.delay": "1s",
    "spark.ui.enabled": "false",
}


def of_example() -> list[dict[str, Any]]:
    """All resources of the example."""
    return resources(*sorted(EXAMPLE.glob("*.yaml")))


def configured() -> dict[str, str]:
    """The driver's files, as the cluster mounts them."""
    (found,) = (one["data"] for one in of_example() if one["kind"] == "ConfigMap")
    return dict(found)


def test_example_resources_match_the_kubernetes_schemas() -> None:
    """The resources and the executor pod template match the schemas, and every resource that they reference exists."""
    found = [*of_example(), yaml.safe_load(configured()["executor.yaml"])]
    for one in found:
        check(one)
    assert Counter(one["kind"] for one in found) == Counter(
        ["ConfigMap", "Deployment", "Pod", "Role", "RoleBinding", "Service", "ServiceAccount"]
    )
    by_kind = {one["kind"]: one for one in found}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"] == labels
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    settings = dict(line.split(None, 1) for line in configured()["spark-defaults.conf"].splitlines() if line[0] != "#")
    assert settings["spark.driver.host"] == by_kind["Service"]["metadata"]["name"]
    assert settings["spark.kubernetes.authenticate.serviceAccountName"] == spec["serviceAccountName"]
    assert settings["spark.kubernetes.container.image"] == spec["containers"][0]["image"]
    environment = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert settings["spark.executor.instances"] == environment["INSTANCES"]
    assert f"COPY {Path(spec['containers'][0]['command'][1]).name} /opt/job/" in (EXAMPLE / "Dockerfile").read_text()


def joined(ground: Ground) -> list[str]:
    """The group's members; none if the group does not exist yet."""
    try:
        return ground.members()
    except GroupError:
        return []


@contextmanager
def driver(cluster: Cluster, ground: Ground, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The example's program with the example's settings, in a process that ends with the block."""
    conf = folder / "conf"
    conf.mkdir()
    settings = configured()["spark-defaults.conf"].replace("https://kubernetes.default.svc", cluster.url)
    settings = settings.replace("/opt/spark/conf", str(conf))
    (conf / "spark-defaults.conf").write_text(settings + "\n".join(f"{key} {value}" for key, value in _HERE.items()))
    (conf / "executor.yaml").write_text(configured()["executor.yaml"])
    environment = {
        "SPARK_CONF_DIR": str(conf),
        "KAFKA_BOOTSTRAP_SERVERS": ground.bootstrap,
        "TOPIC": ground.topic,
        "GROUP": ground.group,
        "FOLDER": str(folder / "parquet"),
        "INSTANCES": "2",
        "POD_NAME": "driver",
        "POD_NAMESPACE": "tests",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    with (folder / "driver.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "orders_to_parquet.py")],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_example_runs_on_the_kubernetes_scheduler(kafka: Broker, tmp_path: Path) -> None:
    """A deleted pod is replaced, a terminated driver leaves no member, and each record is in one file.

    Spark creates the pods, each of which is validated; they run on this machine.
    """
    ground = Ground(kafka, 4, 400)
    with kubernetes(tmp_path) as cluster, driver(cluster, ground, tmp_path) as process:
        try:
            wait_until(
                lambda: "running" in (tmp_path / "driver.log").read_text().splitlines(),
                "the driver's first line",
                SPARK_S,
            )
            wait_until(lambda: len(joined(ground)) == 2, "two members", SPARK_S)
            wait_until(lambda: sum(ground.committed()) == 400, "400 committed records", SPARK_S)
            first = cluster.pods()[0]
            first.delete()
            produce(ground.bootstrap, ground.topic, 400)
            wait_until(lambda: sum(ground.committed()) == 800, "800 committed records", SPARK_S)
            wait_until(lambda: len(cluster.pods()) == 2 and first not in cluster.pods(), "a new pod", SPARK_S)
            wait_until(lambda: len(joined(ground)) == 2, "two members", SPARK_S)
        except Exception as failed:
            raise AssertionError((tmp_path / "driver.log").read_text()[-4000:]) from failed
        process.send_signal(signal.SIGTERM)
        assert process.wait(SPARK_S) == 0
        wait_until(lambda: ground.members() == [], "a group without members", SPARK_S)
        assert cluster.refused == []
    found = dataset.dataset(tmp_path / "parquet", format="parquet").to_table(columns=["partition", "offset"])
    counts = Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    assert (len(counts), set(counts.values())) == (800, {1})
