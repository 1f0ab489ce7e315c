"""An assignor that hears of its assignment: on a thread of its own, one call after the other, and when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

from consumer_membership.assignors.assignor import Assigned
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic.exchanges import AssignmentFailed, AssignorNotified, NotifyAssignor
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.leader_requests import LeaderRequests
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.membership.classic.scene import Plan
from tests.support.waiting import PATIENCE_S

ResultT = TypeVar("ResultT")
SHARE = Assigned(partitions=frozenset({TopicPartition("t", 0)}), user_data=b"yours")


class Listening(Plan):
    """Notes what it hears and where; it may be slow, or fail."""

    def __init__(self, fails: BaseException | None = None) -> None:
        super().__init__()
        self.heard: list[tuple[str, int]] = []
        self.assignments: list[Assigned] = []
        self.threads: set[int] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._fails = fails

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        self.heard.append(("begin", generation))
        self.threads.add(threading.get_ident())
        self.assignments.append(assignment)
        assert self.may_go_on.wait(PATIENCE_S)
        if self._fails is not None:
            raise self._fails
        self.heard.append(("end", generation))


def requests_of(assignor: Listening) -> LeaderRequests:
    """What performs the orders of a member with this assignor; it asks no broker."""
    protocols = ProtocolSettings(
        classic=ClassicSettings(assignors=(assignor,)), protocols=(GroupProtocol.CLASSIC,), reason="a test"
    )
    member = GroupMember(MemberSettings(group_id="g"), protocols, new_member_id=lambda: "m", jitter=lambda: 0.5)
    return LeaderRequests(Cluster.__new__(Cluster), member)


def order(number: int) -> NotifyAssignor:
    """Tell it of the assignment of this generation."""
    return NotifyAssignor(request_id=number, generation=number, assignor="plan", assignment=SHARE)


def done(work: Coroutine[object, object, ResultT]) -> ResultT:
    """What came of it."""

    async def bounded() -> ResultT:
        return await asyncio.wait_for(work, PATIENCE_S)

    return asyncio.run(bounded())


def test_it_hears_on_a_thread_of_its_own() -> None:
    """The share as the leader gave it; the loop's thread goes on meanwhile."""
    assignor = Listening()
    answer = done(requests_of(assignor).notify_assignor(order(3)))
    assert (answer, assignor.assignments) == (AssignorNotified(request_id=3), [SHARE])
    assert threading.get_ident() not in assignor.threads


def test_it_hears_of_one_assignment_after_the_other() -> None:
    """A slow one is not overtaken by the next generation's."""
    assignor = Listening()
    assignor.may_go_on.clear()

    async def both() -> list[object]:
        requests = requests_of(assignor)
        tasks = [asyncio.create_task(requests.notify_assignor(order(number))) for number in (1, 2)]
        # The first one is on its thread by then, or comes before the second one all the same.
        asyncio.get_running_loop().call_soon(assignor.may_go_on.set)
        return list(await asyncio.gather(*tasks))

    assert done(both()) == [AssignorNotified(request_id=1), AssignorNotified(request_id=2)]
    assert assignor.heard == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_what_it_raises_is_told_with_its_name() -> None:
    """As what assign() raises."""
    answer = done(requests_of(Listening(KeyError("standby"))).notify_assignor(order(4)))
    assert isinstance(answer, AssignmentFailed)
    assert answer.generation == 4
    assert answer.error.message == "on_assignment() of the assignor 'plan' failed: KeyError: 'standby'"
