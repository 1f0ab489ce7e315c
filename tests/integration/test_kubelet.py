"""The Kubernetes example under a kubelet: which conditions restart it, make it unready, or do neither."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from consumer_membership import Consumer, MemberState
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.types import TopicPartition
from tests.support.kafka import create_topic, produce, unique
from tests.support.kubelet import LIVENESS, READINESS, Kubelet, stop
from tests.support.kubernetes_schemas import resources
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kubernetes"
#: Multiplies the manifest's periods: one second passes between two liveness probes.
FACTOR = 0.1


def container(manifest: str) -> Mapping[str, Any]:
    """Return the container of the pods in this manifest."""
    (found,) = (one for one in resources(EXAMPLE / f"{manifest}.yaml") if "template" in one["spec"])
    (one,) = found["spec"]["template"]["spec"]["containers"]
    return dict(one)


class Namespace:
    """The environment of the pods of one workload: a group on a topic."""

    def __init__(self, kafka: Broker, folder: Path, manifest: str, partitions: int = 4) -> None:
        self.servers = kafka.bootstrap_servers
        self._partitions = partitions
        self.topic = create_topic(self.servers, unique("orders"), partitions)
        self.group = unique("orders")
        self._folder = folder
        self._container = container(manifest)

    def pod(self, number: int = 0, factor: float = FACTOR, files: Path = EXAMPLE, **config: str) -> Kubelet:
        """Start a pod of this workload with additional settings."""
        name = f"orders-{number}"
        environment = {
            "TOPIC": self.topic,
            "LOG": str(self._folder / f"{name}.log"),
            "PYTHONPATH": str(ROOT),
            "HUNG": str(self._folder / "hung"),
            "CONSUMER_MEMBERSHIP_BOOTSTRAP_SERVERS": self.servers,
            "CONSUMER_MEMBERSHIP_GROUP_ID": self.group,
            **{f"CONSUMER_MEMBERSHIP_{key.upper()}": value for key, value in config.items()},
        }
        return Kubelet(self._container, files, environment, name, factor)

    def produce(self, value: str = "an order") -> None:
        """Produce a record to each partition."""
        produce(self.servers, self.topic, [(None, value)] * self._partitions)

    def members(self) -> list[str | None]:
        """The instance ids of the group's members."""
        admin = GroupAdmin({"bootstrap.servers": self.servers})
        return [one.instance_id for one in admin.describe(self.group, with_offsets=False).group.members]

    def shares(self) -> dict[str | None, frozenset[TopicPartition]]:
        """The partitions of each instance id."""
        admin = GroupAdmin({"bootstrap.servers": self.servers})
        members = admin.describe(self.group, with_offsets=False).group.members
        return {one.instance_id: one.assignment for one in members}

    def is_balanced(self, members: int) -> bool:
        """Whether this number of members has two partitions each."""
        shares = self.shares()
        return len(shares) == members and all(len(share) == 2 for share in shares.values())

    def has_handled_all(self) -> bool:
        """Whether the group has committed all produced records."""
        return GroupAdmin({"bootstrap.servers": self.servers}).describe(self.group).lag == 0


@pytest.fixture
def namespace(kafka: Broker, tmp_path: Path) -> Callable[..., Namespace]:
    """Makes namespaces on the shared broker."""
    return partial(Namespace, kafka, tmp_path)


def assert_live(pod: Kubelet) -> None:
    """Check that the pod was never restarted, and that no liveness probe failed."""
    assert pod.restarts == []
    assert {one.status for one in pod.of(LIVENESS)} <= {200, None}, pod.of(LIVENESS)


@pytest.mark.parametrize("manifest", ["deployment", "statefulset"])
def test_pod_becomes_ready_and_releases_its_place_when_it_ends(
    namespace: Callable[..., Namespace], manifest: str
) -> None:
    """The pod is ready when it has its partitions; the next pod gets its place, by the pool or by the pod's name."""
    here = namespace(manifest)
    with here.pod(2) as pod:
        pod.wait(lambda: pod.is_ready)
        here.produce()
        (instance,) = here.members()
        assert manifest == "deployment" or instance == "orders-2"
        assert pod.terminate() == 0
        assert_live(pod)
    with here.pod(2) as again:
        again.wait(lambda: again.is_ready)
        assert here.members() == [instance]


def test_stopped_pod_is_restarted_after_its_probes_time_out(namespace: Callable[..., Namespace]) -> None:
    """A stopped process does not respond to its probes; its replacement takes over its place."""
    here = namespace("statefulset")
    with here.pod() as pod:
        pod.wait(lambda: pod.is_ready)
        before = pod.program()
        stop(before)
        pod.wait(lambda: pod.restarts == [LIVENESS])
        assert [one.status for one in pod.of(LIVENESS)[-3:]] == [None] * 3
        pod.wait(lambda: pod.is_ready)
        assert pod.program() != before
        assert here.members() == ["orders-0"]


def test_killed_program_s_guardian_releases_its_pool_id(namespace: Callable[..., Namespace]) -> None:
    """The container's first process stays for a second, in which the guardian leaves.

    The next pod claims the same id.
    """
    here = namespace("deployment")
    with here.pod() as pod:
        pod.wait(lambda: pod.is_ready)
        before = here.members()
        os.kill(pod.program(), signal.SIGKILL)
        pod.wait(lambda: pod.restarts == ["it ended with 137"])
        pod.wait(lambda: pod.is_ready)
        assert here.members() == before


def test_hanging_record_handler_restarts_the_pod_only_after_its_time_limit(
    namespace: Callable[..., Namespace], tmp_path: Path
) -> None:
    """Before the limit the pod reports the cause, is not ready and is not restarted. The record may need the time."""
    files = tmp_path / "app"
    files.mkdir()
    shutil.copy(EXAMPLE / "entrypoint.sh", files)
    program = (ROOT / "tests" / "integration" / "hanging_orders.py").resolve()
    (files / "orders.py").write_text(f"import runpy; runpy.run_path({str(program)!r}, run_name='hanging')")
    here = namespace("statefulset")
    with here.pod(files=files, max_poll_interval_ms="6000") as pod:
        pod.wait(lambda: pod.is_ready)
        here.produce("hang")
        pod.wait(lambda: pod.restarts == [LIVENESS])
        stalled = [one for one in pod.of(LIVENESS) if "not_polled" in one.body]
        before, after = [one for one in stalled if one.status == 200], [one for one in stalled if one.status == 503]
        assert before
        assert max(one.at for one in before) < min(one.at for one in after)
        assert "a restart would help" in after[0].body
        assert any(one.status == 503 and "not_polled" in one.body for one in pod.of(READINESS))
        pod.wait(lambda: pod.is_ready)
        assert pod.restarts == [LIVENESS]
        assert here.members() == ["orders-0"]


def test_open_transaction_makes_the_pod_unready_without_a_restart(namespace: Callable[..., Namespace]) -> None:
    """The pod reports the transaction as the cause and is not ready until it ends."""
    here = namespace("statefulset")
    with here.pod(health_stuck_after_ms="1500") as pod:
        pod.wait(lambda: pod.is_ready)
        writer = Producer({"bootstrap.servers": here.servers, "transactional.id": unique("writer")})
        writer.init_transactions(PATIENCE_S)
        writer.begin_transaction()
        writer.produce(here.topic, b"never committed", partition=0)
        assert writer.flush(PATIENCE_S) == 0

        def write() -> None:
            here.produce()
            pod.wait_probes(READINESS, 1)

        pod.work_until(lambda: "a transaction is open from offset" in pod.of(READINESS)[-1].body, write)
        pod.wait_probes(LIVENESS, 6)
        assert not pod.is_ready
        writer.abort_transaction(PATIENCE_S)
        pod.wait(lambda: pod.is_ready)
        assert_live(pod)


def test_fenced_pod_stays_unready_without_a_restart(namespace: Callable[..., Namespace]) -> None:
    """The membership has ended permanently.

    After a restart the two holders would fence each other in turns, so the pod stays live but not ready.
    """
    here = namespace("statefulset")
    with here.pod() as pod:
        pod.wait(lambda: pod.is_ready)
        config = {"bootstrap.servers": here.servers, "group.id": here.group, "group.instance.id": "orders-0"}
        with Consumer(config) as holder:
            holder.subscribe([here.topic])
            pod.work_until(lambda: "fatal" in pod.of(READINESS)[-1].body, lambda: holder.poll(0.1))
            for one in pod.wait_probes(LIVENESS, 6):
                holder.poll(0)
                assert "fatal" in one.body
            assert not pod.is_ready
            assert holder.membership().state is not MemberState.FATAL
            assert_live(pod)
            assert pod.terminate() == 0


def test_broker_outage_makes_the_pod_unready_without_a_restart(own_broker: Broker, tmp_path: Path) -> None:
    """The outage is not the pod's fault: the pod stays live, is not ready, and is ready when the broker is back."""
    here = Namespace(own_broker, tmp_path, "statefulset")
    with here.pod() as pod:
        pod.wait(lambda: pod.is_ready)
        own_broker.kill_node(1)
        # On a busy machine, late responses can make the pod unready first.
        pod.wait(lambda: not pod.is_ready and "unreachable" in pod.of(READINESS)[-1].body)
        pod.wait_probes(LIVENESS, 5)
        own_broker.start_node(1)
        own_broker.wait_ready()
        pod.wait(lambda: pod.is_ready)
        assert_live(pod)


def test_pod_terminated_without_a_broker_ends_within_its_grace_period(own_broker: Broker, tmp_path: Path) -> None:
    """The shutdown uses part of the manifest's grace period; the rest is for the longest record."""
    here = Namespace(own_broker, tmp_path, "deployment")
    with here.pod() as pod:
        pod.wait(lambda: pod.is_ready)
        here.produce()
        own_broker.kill_node(1)
        pod.wait(lambda: not pod.is_ready)
        assert pod.terminate() == 0
        assert_live(pod)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("count", [4, 20])
def test_rebalance_keeps_ready_pods_ready_without_a_restart(
    namespace: Callable[..., Namespace], count: int, protocol: str
) -> None:
    """Members join and leave: each pod that was ready stays ready, and none is restarted."""
    here = namespace("statefulset", partitions=2 * count)
    half = count // 2
    with ExitStack() as stack:

        def join(numbers: range) -> list[Kubelet]:
            factor = 5 * FACTOR if count > 4 else FACTOR
            return [stack.enter_context(here.pod(one, factor, group_protocol=protocol)) for one in numbers]

        pods = join(range(half))
        wait_ready(pods)
        pods += join(range(half, count))
        wait_ready(pods)
        here.produce()
        for pod in pods[: half // 2]:
            assert pod.terminate() == 0
        for pod in pods[half // 2 :]:
            pod.wait_probes(READINESS, 2)
        for pod in pods:
            assert_live(pod)
            assert_stayed_ready(pod)


@pytest.mark.parametrize("count", [3, 20])
def test_deployment_with_hand_over_rolls_pods_under_load(namespace: Callable[..., Namespace], count: int) -> None:
    """Each new pod becomes ready before an old pod ends, and takes over the partitions of an old pod.

    That one becomes unready, so Kubernetes ends it. If a pod of the same deployment became unready instead, no old pod
    would ever end. Each instance id keeps its partitions, no pod is restarted, and each record is handled.
    """
    here = namespace("deployment-hand-over", partitions=2 * count)
    factor = 5 * FACTOR if count > 3 else FACTOR
    pool = f"orders-{{0..{count - 1}}}"
    with ExitStack() as stack:

        def start(number: int) -> Kubelet:
            return stack.enter_context(here.pod(number, factor, group_instance_id_pool=pool))

        pods = [start(number) for number in range(count)]
        wait_ready(pods)
        pods[0].work_until(lambda: here.is_balanced(count), here.produce)
        before = here.shares()
        old_pods = list(pods)
        for number in range(count):
            new = start(count + number)
            new.work_until(lambda new=new: new.is_ready, here.produce)  # type: ignore[misc]  # a default
            new.work_until(lambda: len(unready(pods)) == 1, here.produce)
            (old,) = unready(pods)
            assert old in old_pods
            assert_live(old)
            assert old.terminate() == 0
            pods[pods.index(old)] = new
        wait_ready(pods)
        assert here.shares() == before
        pods[0].work_until(here.has_handled_all, lambda: pods[0].wait_probes(READINESS, 1))
        for pod in pods:
            assert_live(pod)
            assert_stayed_ready(pod)


def unready(pods: Sequence[Kubelet]) -> list[Kubelet]:
    """Return the pods that their readiness probes report as not ready."""
    return [pod for pod in pods if not pod.is_ready]


def test_waiting_classic_rebalance_keeps_all_pods_ready(namespace: Callable[..., Namespace]) -> None:
    """One member does not poll, so all members wait in their joins; the pods stay ready."""
    here = namespace("statefulset")
    config = {"bootstrap.servers": here.servers, "group.id": here.group, "group.protocol": "classic"}
    with here.pod(0, group_protocol="classic") as pod, Consumer(config) as slow:
        pod.wait(lambda: pod.is_ready)
        slow.subscribe([here.topic])
        pod.work_until(lambda: bool(slow.assignment()), lambda: slow.poll(0.1))
        # The probes also show the end of the rebalance for the slow member.
        pod.work_until(lambda: "rebalancing" not in pod.of(READINESS)[-1].body, lambda: slow.poll(0.1))
        with here.pod(1, group_protocol="classic") as third:
            pod.wait(lambda: "rebalancing" in pod.of(READINESS)[-1].body)
            assert {one.status for one in pod.wait_probes(READINESS, 6)} == {200}
            assert pod.consumer()["state"] == "JOINING"
            assert not third.is_ready
            third.work_until(lambda: third.is_ready, lambda: slow.poll(0.1))
            assert_stayed_ready(pod)
            assert_live(pod)
            assert_live(third)


def wait_ready(pods: Sequence[Kubelet]) -> None:
    """Wait until all these pods are ready."""
    for pod in pods:
        pod.wait(lambda pod=pod: pod.is_ready)  # type: ignore[misc]  # a default


def assert_stayed_ready(pod: Kubelet) -> None:
    """Check that the pod stayed ready after it had become ready, unless a busy broker did not respond for 5 s."""
    since_ready = itertools.dropwhile(lambda one: one.status != 200, pod.of(READINESS))
    assert [one for one in since_ready if one.status not in (200, None) and " unreachable" not in one.body] == []
