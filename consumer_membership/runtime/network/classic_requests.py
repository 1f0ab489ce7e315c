"""What a classic member orders of the network and of its assignor; each order is tried once and answered with an event.

A member has one JoinGroup or SyncGroup under way at most: a newer one, and a leave, gives the older one up, because the
coordinator would keep the newer one waiting behind it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, assert_never

from consumer_membership.errors import AssignmentError, TransportError
from consumer_membership.membership.choice import GroupMember
from consumer_membership.membership.classic.assignor import AssignmentObserver, Assignor
from consumer_membership.membership.classic.assignors.checked import Checked, assign_checked
from consumer_membership.membership.classic.exchanges import (
    ClassicEffect,
    ClassicEvent,
    ExchangeFailed,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
)
from consumer_membership.membership.classic.leadership import (
    AssignmentComputed,
    AssignmentFailed,
    AssignorNotified,
    ComputeAssignment,
    DescribeTopics,
    LeaderEffect,
    LeaderEvent,
    NotifyAssignor,
    TopicsDescribed,
    TopicsNotDescribed,
)
from consumer_membership.runtime.log_lines import RoomLog
from consumer_membership.runtime.network.classic_client import ClassicClient
from consumer_membership.runtime.network.cluster_client import BrokerRefusal
from consumer_membership.text import speakable
from consumer_membership.types import FATAL_CODE, TRANSPORT_CODE, BrokerAddress, BrokerError
from consumer_membership.wire.cluster import refused_of, topics_of

_LOG = RoomLog("consumer_membership.membership", "ASSIGNOR")

ResultT = TypeVar("ResultT")

#: A coordinator that does not answer within this time is asked elsewhere; well below a session of 45 s.
REQUEST_TIMEOUT_S = 10.0
#: A sync is answered when the leader's assignor is ready: Java's request.timeout.ms.
SYNC_TIMEOUT_S = 30.0


class ClassicRequests:
    """Performs the classic protocol's orders of one member, on the loop of its thread."""

    def __init__(self, client: ClassicClient, member: GroupMember) -> None:
        self._client = client
        self._member = member
        #: The task of the JoinGroup or SyncGroup under way.
        self._rebalance: asyncio.Task[object] | None = None
        #: An assignor hears of one assignment after the other.
        self._notices = asyncio.Lock()

    async def answer_to(self, effect: ClassicEffect | LeaderEffect) -> ClassicEvent | LeaderEvent:
        """Perform this order; what came of it. Never raises for what a broker, the network or an assignor does."""
        match effect:
            case DescribeTopics():
                return await self._describe(effect)
            case ComputeAssignment():
                return await self._compute(effect)
            case NotifyAssignor():
                return await self._notify(effect)
            case SendJoin() | SendSync() | SendClassicHeartbeat() | SendClassicLeave():
                coordinator = self._member.coordinator
                if coordinator is None:
                    return ExchangeFailed(request_id=effect.request_id, reason="the coordinator is not known")
                return await self._exchange(coordinator, effect)
            case _:
                assert_never(effect)

    async def _exchange(self, coordinator: BrokerAddress, effect: ClassicEffect) -> ClassicEvent:
        client, group_id = self._client, self._member.settings.group_id
        match effect:
            case SendJoin():
                self._give_up_rebalance(asyncio.current_task())
                return await client.join(coordinator, group_id, effect, REQUEST_TIMEOUT_S)
            case SendSync():
                self._give_up_rebalance(asyncio.current_task())
                return await client.sync(coordinator, group_id, effect, SYNC_TIMEOUT_S)
            case SendClassicHeartbeat():
                timeout_s = min(REQUEST_TIMEOUT_S, self._member.classic.session_timeout_s)
                return await client.classic_heartbeat(coordinator, group_id, effect, timeout_s)
            case SendClassicLeave():
                self._give_up_rebalance(None)
                return await client.leave(coordinator, group_id, effect, REQUEST_TIMEOUT_S)
            case _:
                assert_never(effect)

    def _give_up_rebalance(self, following: asyncio.Task[object] | None) -> None:
        if self._rebalance is not None and not self._rebalance.done():
            self._rebalance.cancel()
        self._rebalance = following

    # ---- the leader's part ----

    async def _describe(self, effect: DescribeTopics) -> LeaderEvent:
        try:
            found = await self._client.cluster(effect.topics, REQUEST_TIMEOUT_S)
        except BrokerRefusal as refusal:
            return TopicsNotDescribed(request_id=effect.request_id, error=refusal.error)
        except TransportError as error:
            fault = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(error))
            return TopicsNotDescribed(request_id=effect.request_id, error=fault)
        return TopicsDescribed(
            request_id=effect.request_id,
            topics=topics_of(found, effect.topics),
            refused=refused_of(found, effect.topics),
        )

    async def _compute(self, effect: ComputeAssignment) -> LeaderEvent:
        assignor = self._named(effect.assignor)
        try:
            checked = await _on_a_thread(lambda: assign_checked(assignor, effect.topics, effect.members))
        except AssignmentError as error:
            return AssignmentFailed(generation=effect.generation, error=_failure(assignor, str(error)))
        except Exception as error:  # noqa: BLE001 - a user's own code may raise anything, and the user has to know
            _LOG.error("The assignor %s failed", assignor.name, exc_info=error)
            words = f"{type(error).__name__}: {error}"
            return AssignmentFailed(generation=effect.generation, error=_failure(assignor, words))
        self._tell(checked)
        return AssignmentComputed(
            generation=effect.generation, assignments=checked.assignments, user_data=checked.user_data
        )

    def _named(self, name: str) -> Assignor:
        return next(one for one in self._member.classic.assignors if one.name == name)

    async def _notify(self, effect: NotifyAssignor) -> LeaderEvent:
        assignor = self._named(effect.assignor)
        if isinstance(assignor, AssignmentObserver):
            observer: AssignmentObserver = assignor
            try:
                async with self._notices:
                    await _on_a_thread(lambda: observer.on_assignment(effect.assignment, effect.generation))
            except Exception as error:  # noqa: BLE001 - a user's own code may raise anything, and the user has to know
                _LOG.error("on_assignment() of the assignor %s failed", assignor.name, exc_info=error)
                fault = f"on_assignment() of the assignor {assignor.name!r} failed: {type(error).__name__}: {error}"
                told = BrokerError(code=FATAL_CODE, name="_FATAL", message=fault)
                return AssignmentFailed(generation=effect.generation, error=told)
        return AssignorNotified(request_id=effect.request_id)

    def _tell(self, checked: Checked) -> None:
        for note in checked.notes:
            _LOG.warning("[Consumer groupId=%s] %s", self._member.settings.group_id, note)


def _failure(assignor: Assignor, words: str) -> BrokerError:
    text = speakable(f"the assignor {assignor.name!r} failed: {words}")
    return BrokerError(code=FATAL_CODE, name="_FATAL", message=text)


async def _on_a_thread(work: Callable[[], ResultT]) -> ResultT:
    """The result of work that may take its time, or never end: heartbeats go on, and no exit waits for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: ResultT | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # the result, where there is no error

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failure = error
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="assignor", daemon=True).start()
    return await future
