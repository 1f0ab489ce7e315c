"""One moment of a demo, for the displays to draw."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.demo.display import MemberRow, Progress, Snapshot, Step

ALIVE = MemberRow(
    name="member-1", pid=71, fate="", state="STABLE", epoch=5, owned=(0, 1), handled=1_234, lag=12, waits_for=""
)
DEAD = replace(ALIVE, name="member-2", pid=72, fate="killed", owned=(), handled=99, lag=0)
STARTING = replace(
    ALIVE,
    name="member-3",
    pid=73,
    state="starting",
    epoch=None,
    owned=(),
    handled=0,
    lag=0,
    waits_for="the coordinator",
)
SNAPSHOT = Snapshot(
    at=12.3,
    title="Apache Kafka 4.3.1 (jvm) at 127.0.0.1:9092",
    remarks=("It is a test.",),
    partitions=4,
    steps=(
        Step(title="two more members join", progress=Progress.DONE, outcome="balanced after 0.4 s"),
        Step(title="a kill", progress=Progress.RUNNING),
        Step(title="the end", progress=Progress.TO_COME),
    ),
    members=(ALIVE, DEAD, STARTING),
    produced=2_000,
    seen=1_333,
    twice=7,
)
