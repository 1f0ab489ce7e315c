"""The faults: each is a context manager that begins the fault on entry and ends it on exit; its kind has the durations.

A fault receives the testbed, its target and a number for its own random choices. After its end, the group must be able
to consume to the end of the topic. `Testbed.heal` is called after all faults.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from consumer_membership import MembershipError
from tests.chaos import history as h
from tests.chaos.links import Mode
from tests.chaos.members.account import Order
from tests.chaos.plan import (
    PARTITIONS,
    POLL_INTERVAL_S,
    SESSION_S,
    USER,
    Family,
    FaultKind,
    Identity,
    Loop,
    MemberPlan,
    Protocol,
)
from tests.chaos.testbed import READY_S, Member, Task, Testbed
from tests.support.versions import NEWEST

Fault: TypeAlias = Callable[[Testbed, str, int], AbstractContextManager[None]]

_KINDS: dict[str, FaultKind] = {}
_FAULTS: dict[str, Fault] = {}


def _fault(
    name: str,
    family: Family,
    shortest_s: float,
    longest_s: float,
    protocols: frozenset[Protocol] = frozenset(Protocol),
    is_for: Callable[[MemberPlan], bool] = lambda _: True,
) -> Callable[[Callable[[Testbed, str, int], Iterator[None]]], Fault]:
    """Register a generator function as a fault."""

    def register(run: Callable[[Testbed, str, int], Iterator[None]]) -> Fault:
        _KINDS[name] = FaultKind(
            name=name, family=family, shortest_s=shortest_s, longest_s=longest_s, protocols=protocols, is_for=is_for
        )
        _FAULTS[name] = contextmanager(run)
        return _FAULTS[name]

    return register


# ---- brokers ----


@contextmanager
def _without_node(testbed: Testbed, node_id: int, *, kills: bool) -> Iterator[None]:
    with testbed.nodes_lock:
        (testbed.cluster.broker.kill_node if kills else testbed.cluster.broker.stop_node)(node_id)
    yield
    with testbed.nodes_lock:
        testbed.cluster.broker.start_node(node_id)
        testbed.cluster.broker.wait_ready(READY_S)


@contextmanager
def _paused_node(testbed: Testbed, node_id: int) -> Iterator[None]:
    with testbed.nodes_lock:
        pid = testbed.cluster.broker.node_pid(node_id)
    if pid is not None:
        os.kill(pid, signal.SIGSTOP)
    yield
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@_fault("broker-kill", Family.BROKERS, 2, 8)
def broker_kill(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Kill a node, and start it again."""
    with _without_node(testbed, int(target), kills=True):
        yield


@_fault("broker-stop", Family.BROKERS, 2, 8)
def broker_stop(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Stop a node cleanly, and start it again."""
    with _without_node(testbed, int(target), kills=False):
        yield


@_fault("broker-pause", Family.BROKERS, 1, 12)
def broker_pause(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Suspend a node: its connections stay open, without responses."""
    with _paused_node(testbed, int(target)):
        yield


@_fault("coordinator-kill", Family.BROKERS, 2, 8)
def coordinator_kill(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Kill the node of the group's coordinator."""
    with _without_node(testbed, testbed.coordinator_node() or int(target), kills=True):
        yield


@_fault("coordinator-stop", Family.BROKERS, 2, 8)
def coordinator_stop(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Stop the node of the group's coordinator cleanly."""
    with _without_node(testbed, testbed.coordinator_node() or int(target), kills=False):
        yield


@_fault("coordinator-pause", Family.BROKERS, 1, 12)
def coordinator_pause(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Suspend the node of the group's coordinator, for less or for more time than a session."""
    with _paused_node(testbed, testbed.coordinator_node() or int(target)):
        yield


@_fault("rolling-restart", Family.BROKERS, 0, 1)
def rolling_restart(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Restart all nodes, one after the other."""
    first = int(target)
    for node_id in sorted(testbed.cluster.broker.node_ids, key=lambda one: (one < first, one)):
        with _without_node(testbed, node_id, kills=False):
            pass
    yield


@_fault("rolling-upgrade", Family.BROKERS, 0, 1)
def rolling_upgrade(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Restart all nodes with the newest version, one after the other; the round began with an older version."""
    first = int(target)
    for node_id in sorted(testbed.cluster.broker.node_ids, key=lambda one: (one < first, one)):
        with testbed.nodes_lock:
            testbed.cluster.broker.stop_node(node_id)
            testbed.cluster.broker.start_node(node_id, NEWEST)
            testbed.cluster.broker.wait_ready(READY_S)
    yield


@_fault("controller-kill", Family.BROKERS, 2, 8)
def controller_kill(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Kill the node of the active controller."""
    with _without_node(testbed, testbed.controller_node() or int(target), kills=True):
        yield


@_fault("disk-full", Family.BROKERS, 3, 8)
def disk_full(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """A node cannot write to any file, which ends the Kafka process. It is started again with space on its disk."""
    with testbed.nodes_lock:
        pid = testbed.cluster.broker.node_pid(int(target))
    if pid is not None:
        # Writes fail with EFBIG. ENOSPC would need a separate file system for the broker.
        _, hard_limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard_limit))
    yield
    with testbed.nodes_lock:
        testbed.cluster.broker.kill_node(int(target))
        testbed.cluster.broker.start_node(int(target))
        testbed.cluster.broker.wait_ready(READY_S)


# ---- members ----

#: Another fault may leave the tasks of a Spark job without partitions for this long.
_TASK_S = 120.0


@_fault("member-kill", Family.MEMBERS, 0, 1)
def member_kill(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Kill a member; it is restarted immediately."""
    testbed.members[target].kill()
    yield


@contextmanager
def _kept_down(member: Member) -> Iterator[None]:
    member.is_kept_down = True
    yield
    member.is_kept_down = False


@_fault("member-killed-long", Family.MEMBERS, SESSION_S + 1, 2 * SESSION_S)
def member_killed_long(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Kill a member; it is restarted after its session has expired."""
    with _kept_down(testbed.members[target]):
        testbed.members[target].kill()
        yield


@_fault("members-kill-all", Family.MEMBERS, 0, 1)
def members_kill_all(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """Kill all members at the same time."""
    for member in list(testbed.members.values()):
        member.kill()
    yield


@contextmanager
def _suspended(member: Member) -> Iterator[None]:
    member.send(signal.SIGSTOP)
    yield
    member.send(signal.SIGCONT)


@_fault("member-pause", Family.MEMBERS, 1, SESSION_S - 2)
def member_pause(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Suspend a member for less time than its session."""
    with _suspended(testbed.members[target]):
        yield


@_fault("member-pause-long", Family.MEMBERS, SESSION_S + 1, 2 * SESSION_S)
def member_pause_long(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Suspend a member for longer than its session."""
    with _suspended(testbed.members[target]):
        yield


@_fault("member-restart", Family.MEMBERS, 0, 1)
def member_restart(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Close a member with SIGTERM; it is restarted."""
    testbed.members[target].close()
    yield


@_fault("member-interrupt", Family.MEMBERS, 0, 1)
def member_interrupt(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Interrupt a member (Ctrl-C) in any of its calls; it is restarted."""
    testbed.members[target].close(signal.SIGINT)
    yield


@_fault("members-restart-all", Family.MEMBERS, 0, 1)
def members_restart_all(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """Close all members at the same time, as a deployment without rolling updates does."""
    members = list(testbed.members.values())
    for member in members:
        member.send(signal.SIGTERM)
    for member in members:
        member.close()
    yield


@_fault("member-added", Family.MEMBERS, 3, 8)
def member_added(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """Another member joins, and later leaves."""
    with testbed.another_member(target):
        yield


def _receives_orders(plan: MemberPlan) -> bool:
    """Whether the process that receives orders has the consumer; a Spark job has its consumers in its tasks."""
    return plan.loop is not Loop.SPARK


@_fault("slow-callbacks", Family.MEMBERS, 6, 10, is_for=_receives_orders)
def slow_callbacks(testbed: Testbed, target: str, choice: int) -> Iterator[None]:
    """The callbacks of a member take up to 4 s while another member joins and leaves."""
    member = testbed.members[target]
    member.order(Order.SLOW_CALLBACKS, 0.5 + choice % 4)
    with testbed.another_member(target):
        yield
    member.order(Order.SLOW_CALLBACKS, 0.0)


def _keeps_the_record_of_a_raising_callback(plan: MemberPlan) -> bool:
    """Whether `poll` returns a record later if a callback raises meanwhile; confluent-kafka's consumer loses it."""
    return _receives_orders(plan) and plan.loop is not Loop.RAW


@_fault("raising-callbacks", Family.MEMBERS, 3, 6, is_for=_keeps_the_record_of_a_raising_callback)
def raising_callbacks(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """The callbacks of a member raise for 3 s, while another member joins and leaves."""
    testbed.members[target].order(Order.RAISING_CALLBACKS, 3.0)
    with testbed.another_member(target):
        yield


@_fault("late-poll", Family.MEMBERS, POLL_INTERVAL_S + 3, POLL_INTERVAL_S + 4, is_for=_receives_orders)
def late_poll(testbed: Testbed, target: str, choice: int) -> Iterator[None]:
    """A member does not poll for longer than max.poll.interval.ms, by up to 2.2 s."""
    testbed.members[target].order(Order.SLEEP, POLL_INTERVAL_S + 0.2 + choice % 3)
    yield


@_fault("gil-held", Family.MEMBERS, SESSION_S + 1, SESSION_S + 5, is_for=_receives_orders)
def gil_held(testbed: Testbed, target: str, choice: int) -> Iterator[None]:
    """A native call holds the GIL of a member for as long as its session or up to 3 s longer."""
    testbed.members[target].order(Order.HOLD_GIL, SESSION_S + choice % 4)
    yield


@_fault("duplicate-instance-id", Family.MEMBERS, 8, 12)
def duplicate_instance_id(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """A second process has the group.instance.id of the target; if the target has none, two new processes share one."""
    instance_id = testbed.members[target].plan.instance_id
    with ExitStack() as stack:
        shared_id = instance_id or f"{target}-twin"
        changes = {"identity": Identity.STATIC, "given_instance_id": shared_id, "hands_over": False}
        for _ in range(2 if instance_id is None else 1):
            stack.enter_context(testbed.another_member(target, **changes))
        yield


@contextmanager
def _killed(member: Member) -> Iterator[None]:
    member.kill()
    yield


@contextmanager
def _cut_off(member: Member) -> Iterator[None]:
    member.links.change(Mode.HOLD)
    yield
    member.links.change(Mode.PASS)


#: Each process of a hand-over gets its partitions, or prepares for them, within this time.
_HAND_OVER_S = 60.0
#: At most this many new processes are started until one of them prepares for its partitions.
_HAND_OVER_PROCESSES = 10


def _hand_over(name: str, disturb: Callable[[Member], AbstractContextManager[None]], *, is_new: bool = False) -> None:
    """Register a fault with a hand-over between two new processes, which have an instance id of their own.

    `disturb` is applied to the old process (with `is_new`: to the new process) while the new one prepares.
    """

    def run(testbed: Testbed, target: str, _: int) -> Iterator[None]:
        changes = {"identity": Identity.STATIC, "given_instance_id": f"{target}-handed", "hands_over": True}
        # Only the network of members without a certificate can be cut.
        changes |= {"has_certificate": False}
        with ExitStack() as stack:
            old = stack.enter_context(testbed.another_member(target, **changes))
            testbed.wait(lambda: bool(testbed.owned_by(old)), _HAND_OVER_S)
            new = stack.enter_context(testbed.another_member(target, **changes))
            if _has_warmed(testbed, old, new):
                disturbed = new if is_new else old
                testbed.history.write(h.FaultBegan(fault=name, target=disturbed.name))
                stack.enter_context(disturb(disturbed))
            yield

    _fault(name, Family.MEMBERS, 6, 12, frozenset({Protocol.CONSUMER}))(run)


def _has_warmed(testbed: Testbed, old: Member, new: Member) -> bool:
    """Wait until the new process prepares for its partitions; return False if another fault ended the old one before.

    If a process finds the owner of its instance id more than 2 s after it subscribed, it requests no hand-over, and
    ends after a session. On a busy machine, several processes may be needed.

    Raises:
        TimeoutError: no process prepared; the round fails, because its fault did not happen.
    """

    def is_warm() -> bool:
        return new.name in testbed.progress.read().warmed

    for _ in range(_HAND_OVER_PROCESSES):
        testbed.wait(lambda: is_warm() or not (new.is_running and old.is_running), _HAND_OVER_S)
        if is_warm() or not old.is_running:
            return is_warm()
        if not new.is_running:
            new.begin()
    raise TimeoutError(f"no process of {new.plan.name} prepared for the partitions of {old.name}")


_hand_over("hand-over", lambda _: nullcontext())
for _name, _disturb in (("kill", _killed), ("pause", _suspended), ("cut", _cut_off)):
    _hand_over(f"hand-over-{_name}-old", _disturb)
    _hand_over(f"hand-over-{_name}-new", _disturb, is_new=True)


def _is_job(plan: MemberPlan) -> bool:
    return plan.loop is Loop.SPARK


@_fault("task-kill", Family.MEMBERS, 0, 1, is_for=_is_job)
def task_kill(testbed: Testbed, target: str, choice: int) -> Iterator[None]:
    """Kill the process of a Spark task; Spark starts another attempt of the task."""
    task = _owning_task(testbed, target, choice)
    testbed.history.write(h.Killed(member=task.process))
    task.send(signal.SIGKILL)
    yield


@_fault("task-pause", Family.MEMBERS, 2, 2 * SESSION_S, is_for=_is_job)
def task_pause(testbed: Testbed, target: str, choice: int) -> Iterator[None]:
    """Suspend the process of a Spark task, for less or for more time than its session."""
    task = _owning_task(testbed, target, choice)
    task.send(signal.SIGSTOP)
    yield
    task.send(signal.SIGCONT)


def _owning_task(testbed: Testbed, target: str, choice: int) -> Task:
    """Return a task of a Spark job that owns partitions; wait for it, because another fault may have restarted the job.

    Raises:
        TimeoutError: no task owns a partition; the round fails, because its fault did not happen.
    """
    member = testbed.members[target]
    if not testbed.wait(lambda: len(testbed.owning_tasks(member)) > 0, _TASK_S):
        raise TimeoutError(f"no task of {member.name} owns a partition after {_TASK_S:.0f} s")
    tasks = testbed.owning_tasks(member)
    return tasks[choice % len(tasks)]


def _has_certificate(plan: MemberPlan) -> bool:
    return plan.has_certificate


@_fault("certificate-renewed", Family.MEMBERS, 1, 4, is_for=_has_certificate)
def certificate_renewed(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """The nodes get a second key and certificate, and later the first ones again; a member is restarted meanwhile."""
    keys = testbed.cluster.keys
    renewed = {"keystore.key": keys.renewed_key_pem, "keystore.certificate.chain": keys.renewed_certificate_chain_pem}
    with testbed.certificates(renewed):
        testbed.members[target].close()
        yield


@_fault("certificate-refused", Family.MEMBERS, 4, 10, is_for=_has_certificate)
def certificate_refused(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """The nodes reject the certificate of a restarted member, because they trust another authority for some time.

    Existing connections stay open.
    """
    with testbed.certificates({"truststore.certificates": testbed.cluster.keys.foreign_ca_pem}):
        testbed.members[target].close()
        yield


# ---- the network of a member, and of all members without a certificate ----


def _has_links(plan: MemberPlan) -> bool:
    return not plan.has_certificate


def _network(name: str, mode: Mode, shortest_s: float, longest_s: float) -> None:
    def run(testbed: Testbed, target: str, _: int) -> Iterator[None]:
        links = testbed.members[target].links
        links.change(mode)
        yield
        links.change(Mode.PASS)

    _fault(name, Family.NETWORK, shortest_s, longest_s, is_for=_has_links)(run)


_network("black-hole", Mode.HOLD, 1, 12)
_network("resets", Mode.RESET, 1, 12)
_network("delays", Mode.DELAY, 3, 10)
_network("stalls", Mode.STALL, 3, 12)
_network("lost-responses", Mode.SILENCE, 1, 10)


@_fault("half-open", Family.NETWORK, 2, 6, is_for=_has_links)
def half_open(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """All existing connections of a member become silent permanently; new connections work."""
    testbed.members[target].links.forget()
    yield


@_fault("coordinator-cut", Family.NETWORK, 3, 12, is_for=_has_links)
def coordinator_cut(testbed: Testbed, target: str, _: int) -> Iterator[None]:
    """A member can connect to all nodes except the coordinator of its group."""
    links, node_id = testbed.members[target].links, testbed.coordinator_node()
    if node_id is not None:
        links.change(Mode.HOLD, testbed.address_for_members(node_id))
    yield
    links.change(Mode.PASS)


@_fault("all-cut", Family.NETWORK, 2, 10, is_for=_has_links)
def all_cut(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """No member can connect to any node."""
    members = list(testbed.members.values())
    for member in members:
        member.links.change(Mode.HOLD)
    yield
    for member in members:
        member.links.change(Mode.PASS)


# ---- the topic ----


@_fault("partitions-added", Family.TOPIC, 2, 4)
def partitions_added(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """The topic gets two more partitions."""
    count = PARTITIONS + 2
    future = testbed.admin.create_partitions([NewPartitions(testbed.topic, count)], operation_timeout=60.0)
    future[testbed.topic].result(60.0)
    testbed.producer.add_partitions(count)
    yield


@_fault("topic-recreated", Family.TOPIC, 2, 4)
def topic_recreated(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """The topic is deleted, and created again."""
    testbed.recreate_topic()
    yield


# ---- the group ----


@_fault("members-removed", Family.GROUP, 1, 3)
def members_removed(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """An administrator removes all running members; the harness restarts those that end because of it."""
    for member in list(testbed.members.values()):
        if member.is_running:
            testbed.history.write(h.Evicted(member=member.name))
    with suppress(MembershipError, KafkaException):
        testbed.groups.remove_members(testbed.group, all_members=True, reason="chaos")
    yield


@_fault("other-protocol", Family.GROUP, 4, 8)
def other_protocol(testbed: Testbed, _target: str, choice: int) -> Iterator[None]:
    """A member of the other protocol joins and leaves; the brokers convert the group (policy `bidirectional`)."""
    like = sorted(testbed.members)[choice % len(testbed.members)]
    is_classic = testbed.members[like].plan.protocol is Protocol.CLASSIC
    other = Protocol.CONSUMER if is_classic else Protocol.CLASSIC
    if is_classic and any(one.plan.strategy != "cooperative-sticky" for one in testbed.members.values()):
        other = Protocol.CLASSIC
    loop = testbed.members[like].plan.loop
    if loop is not Loop.TRANSACTIONS:
        loop = Loop.POLL
    with testbed.another_member(like, protocol=other, loop=loop, hands_over=False):
        yield


@_fault("offsets-deleted", Family.GROUP, 0, 1)
def offsets_deleted(testbed: Testbed, _target: str, _: int) -> Iterator[None]:
    """All members are closed, the group is deleted with its offsets, and the members begin again."""
    members = list(testbed.members.values())
    with ExitStack() as stack:
        for member in members:
            stack.enter_context(_kept_down(member))
            member.send(signal.SIGTERM)
        for member in members:
            member.close()
        testbed.delete_group()
    yield


@_fault("rights-revoked", Family.GROUP, 3, 10)
def rights_revoked(testbed: Testbed, _target: str, choice: int) -> Iterator[None]:
    """The members lose the right to read the group, or the topic, and get it back."""
    kind, name = (ResourceType.GROUP, testbed.group) if choice % 2 else (ResourceType.TOPIC, testbed.topic)
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, user, "*", operation, permission)
        for user, operation, permission in (
            # As soon as a resource has a rule, Kafka allows only the operations that a rule allows.
            ("User:*", AclOperation.ALL, AclPermissionType.ALLOW),
            (f"User:{USER}", AclOperation.READ, AclPermissionType.DENY),
        )
    ]
    for made in testbed.admin.create_acls(rules, request_timeout=60.0).values():
        made.result()
    yield
    # One request for each rule, because a filter has one user.
    for rule in reversed(rules):
        filters = AclBindingFilter(
            kind, name, rule.resource_pattern_type, rule.principal, "*", AclOperation.ANY, AclPermissionType.ANY
        )
        testbed.admin.delete_acls([filters], request_timeout=60.0)[filters].result()


#: The faults that need a cluster with an older version.
UPGRADES = frozenset({"rolling-upgrade"})

KINDS: Mapping[str, FaultKind] = MappingProxyType(_KINDS)
"""All faults, by name."""


def inject(testbed: Testbed, kind: str, target: str, choice: int, is_over: threading.Event, duration_s: float) -> None:
    """Begin a fault, and end it after its duration; write both events to the history."""
    name = target or testbed.topic
    testbed.history.write(h.FaultBegan(fault=kind, target=name))
    try:
        with _FAULTS[kind](testbed, target, choice):
            is_over.wait(duration_s)
    finally:
        testbed.history.write(h.FaultEnded(fault=kind, target=name))
