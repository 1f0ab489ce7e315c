"""`on_assignment` of an assignor: it runs on a separate thread, one call after the other, and it may raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

from consumer_membership.assignors.assignor import Assigned
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic.exchanges import AssignmentFailed, AssignorNotified, NotifyAssignor
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.leader_requests import LeaderRequests
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.membership.classic.scene import Plan
from tests.support.waiting import PATIENCE_S

ResultT = TypeVar("ResultT")
SHARE = Assigned(partitions=frozenset({TopicPartition("t", 0)}), user_data=b"yours")


class RecordingAssignor(Plan):
    """An assignor that records its calls and their threads; it may be slow, or raise."""

    def __init__(self, fails: BaseException | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.assignments: list[Assigned] = []
        self.threads: set[int] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._fails = fails

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        self.calls.append(("begin", generation))
        self.threads.add(threading.get_ident())
        self.assignments.append(assignment)
        assert self.may_go_on.wait(PATIENCE_S)
        if self._fails is not None:
            raise self._fails
        self.calls.append(("end", generation))


def requests_of(assignor: RecordingAssignor) -> LeaderRequests:
    """Return the leader requests of a member with this assignor, without a broker."""
    protocols = ProtocolSettings(
        classic=ClassicSettings(assignors=(assignor,)), protocols=(GroupProtocol.CLASSIC,), reason="a test"
    )
    member = MemberCore(MemberSettings(group_id="g"), protocols, new_member_id=lambda: "m", jitter=lambda: 0.5)
    return LeaderRequests(Cluster.__new__(Cluster), member)


def order(number: int) -> NotifyAssignor:
    """Return the order to notify the assignor of this generation's assignment."""
    return NotifyAssignor(request_id=number, generation=number, assignor="plan", assignment=SHARE)


def done(work: Coroutine[object, object, ResultT]) -> ResultT:
    """Return the result of a coroutine."""

    async def bounded() -> ResultT:
        return await asyncio.wait_for(work, PATIENCE_S)

    return asyncio.run(bounded())


def test_notify_assignor_calls_on_assignment_on_another_thread() -> None:
    """The assignor receives the leader's assignment while the loop continues."""
    assignor = RecordingAssignor()
    answer = done(requests_of(assignor).notify_assignor(order(3)))
    assert (answer, assignor.assignments) == (AssignorNotified(request_id=3), [SHARE])
    assert threading.get_ident() not in assignor.threads


def test_notify_assignor_calls_on_assignment_one_after_the_other() -> None:
    """The call for the next generation waits for a slow call."""
    assignor = RecordingAssignor()
    assignor.may_go_on.clear()

    async def both() -> list[object]:
        requests = requests_of(assignor)
        tasks = [asyncio.create_task(requests.notify_assignor(order(number))) for number in (1, 2)]
        # The first call has started on its thread by now, or it still starts before the second one.
        asyncio.get_running_loop().call_soon(assignor.may_go_on.set)
        return list(await asyncio.gather(*tasks))

    assert done(both()) == [AssignorNotified(request_id=1), AssignorNotified(request_id=2)]
    assert assignor.calls == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_notify_assignor_returns_what_on_assignment_raised() -> None:
    """The error names the assignor and the method, as for assign()."""
    answer = done(requests_of(RecordingAssignor(KeyError("standby"))).notify_assignor(order(4)))
    assert isinstance(answer, AssignmentFailed)
    assert answer.generation == 4
    assert answer.error.message == "on_assignment() of the assignor 'plan' failed: KeyError: 'standby'"
