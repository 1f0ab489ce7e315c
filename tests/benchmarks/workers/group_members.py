"""A process with many `GroupMember`s of many groups, which one thread polls in turns.

It records the times at which the heartbeats of each member are sent and answered. Sends are recorded on the membership
thread, when the request is handed to the connection.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from consumer_membership import GroupMember, MemberState
from consumer_membership.membership.effects import SendHeartbeat
from tests.benchmarks.samples import percentile
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumer_membership.membership.protocol import GroupEffect
    from consumer_membership.membership.view import MembershipView

_GIVE_UP_S = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The number of members, and the interval of their polls.

    Attributes:
        config: The configuration, without the group.
        group: The prefix of the groups' names.
        topic: The topic that each member subscribes to.
        groups: The number of groups.
        members: The number of members in each group.
        every_s: The time between two polls of each member; a poll does not wait.
    """

    config: dict[str, str]
    group: str
    topic: str
    groups: int
    members: int
    every_s: float


class HeartbeatIntervals:
    """The times between two heartbeats of each member, recorded while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.sent: list[float] = []
        self.answered: list[float] = []
        self.rejoins = 0

    def recorder(self) -> Callable[[tuple[GroupEffect, ...], MembershipView], None]:
        """Return the callback that records the heartbeats of one member."""
        sent_at = answered_at = 0.0
        epoch = 0

        def record(effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
            nonlocal sent_at, answered_at, epoch
            if any(isinstance(effect, SendHeartbeat) for effect in effects):
                now = time.monotonic()
                if self.is_on and sent_at:
                    self.sent.append(now - sent_at)
                sent_at = now
            response_at = view.last_heartbeat_at
            if response_at is not None and response_at != answered_at:
                if self.is_on and answered_at:
                    self.answered.append(response_at - answered_at)
                answered_at = response_at
            if self.is_on and view.member_epoch != epoch:
                self.rejoins += 1
            epoch = view.member_epoch

        return record


def main() -> None:
    """Create the members, report when each has its partitions, and poll them until the end."""
    job = job_of(Job)
    intervals = HeartbeatIntervals()
    with GroupMember({**job.config, "group.id": f"{job.group}-first"}) as first:  # imports what a member needs
        first.subscribe([job.topic])
        first.poll(0)
    gc.collect()
    process = psutil.Process()
    before, began = process.memory_info().rss, time.monotonic()
    members = [
        GroupMember({**job.config, "group.id": f"{job.group}-{number % job.groups}"})
        for number in range(job.groups * job.members)
    ]
    for member in members:
        member._session.thread.watch(intervals.recorder())  # no public call reports single heartbeats
        member.subscribe([job.topic])
    waiting = list(members)
    while waiting and time.monotonic() - began < _GIVE_UP_S:
        for member in members:
            member.poll(0)
        waiting = [member for member in waiting if not _is_settled(member.membership())]
        time.sleep(0.05)
    report("ready", took_s=time.monotonic() - began, missing=len(waiting))
    turn_at = time.monotonic()
    while (order := next_order(max(0.0, turn_at - time.monotonic()))) != END:
        if order == "begin":
            intervals.is_on = True
            continue
        if order == "count":
            intervals.is_on = False
            gc.collect()
            used = process.memory_info().rss - before
            _report_counts(intervals, used / len(members), [member.membership() for member in members])
            continue
        if time.monotonic() < turn_at:
            continue
        for member in members:
            member.poll(0)
        turn_at = max(turn_at + job.every_s, time.monotonic())
    ending = time.monotonic()
    for member in members:
        member.close()
    report("left", took_s=time.monotonic() - ending)


def _is_settled(view: MembershipView) -> bool:
    return view.state is MemberState.STABLE and bool(view.owned)


def _report_counts(intervals: HeartbeatIntervals, bytes_each: float, views: list[MembershipView]) -> None:
    interval_s = next((view.heartbeat_interval_s for view in views if view.heartbeat_interval_s), 0.0)
    facts = {
        f"{name}_p{percent}": percentile(distances, percent) - interval_s
        for name, distances in (("sent", intervals.sent), ("answered", intervals.answered))
        for percent in (50, 99, 100)
        if distances
    }
    report(
        "counted",
        interval_s=interval_s,
        heartbeats=len(intervals.sent),
        changes=intervals.rejoins,
        settled=sum(map(_is_settled, views)),
        bytes_each=bytes_each,
        threads=psutil.Process().num_threads(),
        files=psutil.Process().num_fds(),
        **facts,
    )


if __name__ == "__main__":
    main()
