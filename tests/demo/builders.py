"""A snapshot of a demo, for tests of its screens."""

from __future__ import annotations

from consumer_membership.demo.application import MemberStatus
from consumer_membership.demo.members import MemberProcess
from consumer_membership.demo.screen import DemoStep, GroupSnapshot, StepState

STABLE = MemberStatus(state="STABLE", epoch=5, owned=(0, 1), waits_for=None)
ALIVE = MemberProcess(index=0, name="member-1", pid=71, status=STABLE, handled=1_234, lag=12)
DEAD = MemberProcess(index=1, name="member-2", pid=72, status=STABLE, is_killed=True, handled=99)
STARTING = MemberProcess(
    index=2,
    name="member-3",
    pid=73,
    status=MemberStatus(state="starting", epoch=None, owned=(), waits_for="the coordinator"),
)
SNAPSHOT = GroupSnapshot(
    at=12.3,
    title="Apache Kafka 4.3.1 (jvm) at 127.0.0.1:9092",
    remarks=("It is a test.",),
    partitions=4,
    steps=(
        DemoStep(title="two more members join", state=StepState.DONE, outcome="balanced after 0.4 s"),
        DemoStep(title="a kill", state=StepState.RUNNING),
        DemoStep(title="the end", state=StepState.TO_COME),
    ),
    members=(ALIVE, DEAD, STARTING),
    produced=2_000,
    seen=1_333,
    twice=7,
)
