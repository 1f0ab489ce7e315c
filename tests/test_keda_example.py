"""The KEDA example: its manifests match the schemas, and their values match each other and the package's limits."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from consumer_membership.config import ConsumerConfig
from consumer_membership.config.environment import PREFIX
from consumer_membership.metrics.catalog import CATALOG
from tests.support.autoscaler import SYNC_S, Autoscaler, kafka_metric
from tests.support.keda import EXAMPLE, EXAMPLES, SCALED_OBJECTS, deployment, environment, scaled_object
from tests.support.kubernetes_schemas import check, resources


@pytest.mark.parametrize("path", SCALED_OBJECTS, ids=lambda path: path.stem)
def test_scaled_objects_have_only_fields_of_the_resource_definition(path: Path) -> None:
    """KEDA's resource definition has each field with this type; the model generated from it would drop other fields."""
    manifest = scaled_object(path)
    model = import_module("cloudcoil.models.keda.v1alpha1").ScaledObject
    read = model.model_validate(manifest).model_dump_json(by_alias=True, exclude_unset=True)
    assert json.loads(read) == manifest


def test_deployment_is_valid_and_leaves_the_number_of_replicas_to_the_autoscaler() -> None:
    """The manifest has no number of replicas, because applying it would replace the autoscaler's number."""
    for resource in resources(EXAMPLE / "deployment.yaml"):
        check(resource)
    spec = deployment()["spec"]
    assert "replicas" not in spec
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_deployment_differs_from_the_fixed_one_only_by_its_pool_and_its_stop() -> None:
    """The pods are those of `examples/kubernetes`, with more ids, and they leave the group when they stop."""
    (fixed,) = (r for r in resources(EXAMPLES / "kubernetes" / "deployment.yaml") if r["kind"] == "Deployment")
    (container,) = fixed["spec"]["template"]["spec"]["containers"]
    before = {one["name"]: one["value"] for one in container["env"]}
    changed = {name: value for name, value in environment().items() if before.get(name) != value}
    assert changed == {
        f"{PREFIX}GROUP_INSTANCE_ID_POOL": "orders-{0..15}",
        "MEMBERSHIP_AT_STOP": "leave",
    }


@pytest.mark.parametrize("path", SCALED_OBJECTS, ids=lambda path: path.stem)
def test_scaled_objects_match_the_deployment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ScaledObjects scale this Deployment by its group's lag; there are at least twice as many ids as pods."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    member = ConsumerConfig.from_mapping({}).member_settings()
    spec, env = scaled_object(path)["spec"], environment()
    assert spec["scaleTargetRef"] == {"kind": "Deployment", "name": deployment()["metadata"]["name"]}
    assert len(member.instance_pool) >= 2 * spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert trigger["metricType"] == "AverageValue"
    metadata = trigger["metadata"]
    if trigger["type"] == "kafka":
        assert metadata["bootstrapServers"] == env[f"{PREFIX}BOOTSTRAP_SERVERS"]
        assert (metadata["consumerGroup"], metadata["topic"]) == (member.group_id, env["TOPIC"])
        assert metadata["offsetResetPolicy"] == env[f"{PREFIX}AUTO_OFFSET_RESET"]
    else:
        (name,) = {row.prometheus for row in CATALOG if f"({row.prometheus}{{" in metadata["query"]}
        assert metadata["query"] == f'sum(max by (topic, partition) ({name}{{group="{member.group_id}"}}))'


def test_scaled_objects_differ_only_in_their_trigger() -> None:
    """Both ScaledObjects have equal limits and equal scaling behavior."""
    specs = [scaled_object(path)["spec"] for path in SCALED_OBJECTS]
    for spec in specs:
        (trigger,) = spec.pop("triggers")
        assert {"threshold": "100", "lagThreshold": "100"}.items() & trigger["metadata"].items()
    assert specs[0] == specs[1]


class Simulated:
    """An autoscaler with the example's behavior, and its virtual time."""

    def __init__(self) -> None:
        self.autoscaler = Autoscaler(spec=scaled_object(SCALED_OBJECTS[0])["spec"], threshold=100)
        self.now = 0.0
        self.replicas = 1

    def decide(self, *lags: int) -> list[int]:
        """Return the numbers of replicas for these lags, one lag for each sync period."""
        decided = []
        for lag in lags:
            self.replicas = self.autoscaler.decide(self.now, self.replicas, lag)
            self.now += SYNC_S
            decided.append(self.replicas)
        return decided


def test_autoscaler_rounds_up_and_ignores_small_deviations() -> None:
    """The number of replicas is the lag divided by the threshold, rounded up; deviations up to 10 % are ignored."""
    simulated = Simulated()
    assert simulated.decide(0, 100, 109, 111, 210, 219, 221) == [1, 1, 1, 2, 2, 2, 3]


def test_autoscaler_adds_four_pods_or_doubles_in_each_period() -> None:
    """`selectPolicy: Max` takes the larger of the two policies, up to `maxReplicaCount`."""
    assert Simulated().decide(9_000, 9_000) == [5, 8]


def test_autoscaler_removes_pods_after_the_window_and_at_most_half_a_minute_of_them() -> None:
    """The highest number of the last 120 s counts, and within 60 s at most half of the pods are removed."""
    simulated = Simulated()
    simulated.decide(800, 800)
    assert simulated.decide(*[100] * 14) == [8] * 7 + [4] * 4 + [2] * 3


def test_kafka_metric_has_at_most_the_threshold_for_each_partition() -> None:
    """KEDA's scaler for Kafka limits the lag, so that it requests no more pods than partitions."""
    assert [kafka_metric(lag, 8, 100) for lag in (0, 799, 800, 899, 900, 5_000)] == [0, 799, 800, 899, 800, 800]


def test_examples_readme_names_the_folder() -> None:
    """The index of examples has a row for the folder, and each file is valid YAML."""
    assert "[keda](keda)" in (EXAMPLES / "README.md").read_text()
    assert all(list(yaml.safe_load_all(path.read_text())) for path in EXAMPLE.glob("*.yaml"))
