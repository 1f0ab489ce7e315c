"""`AIOGroupMember` with a scripted member: waiting without a thread, callbacks on the loop, cancellation, the close."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership.aio import AIOGroupMember
from consumer_membership.clients.group_member import GroupMember
from consumer_membership.errors import ConfigurationError, FatalGroupError
from consumer_membership.membership.effects import Problem, RaiseToApplication, RevokePartitions
from consumer_membership.membership.events import LeaveRequested, Polled
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, TopicPartition
from tests.clients.scripted import SHARDS_CONFIG, ScriptedGroupMember, ScriptedMember
from tests.support.waiting import PATIENCE_S

S0, S1 = TopicPartition("shards", 0), TopicPartition("shards", 1)


class ScriptedAIOGroupMember(AIOGroupMember):
    """An asyncio group member whose membership is scripted by the test."""

    def __init__(self, **config: object) -> None:
        super().__init__(config)

    @property
    def member(self) -> ScriptedMember:
        """The scripted membership."""
        assert isinstance(self._member, ScriptedGroupMember)
        return self._member.member

    def _made(self, config: Mapping[str, object]) -> GroupMember:
        return ScriptedGroupMember(**config)


def test_waiting_poll_uses_no_thread_and_is_woken_by_an_assignment() -> None:
    """The membership thread wakes the loop; coroutine callbacks run on the loop, and receive this member."""

    async def program() -> None:
        seen: list[object] = []
        async with ScriptedAIOGroupMember() as member:

            async def take(given: AIOGroupMember, partitions: list[Partition]) -> None:
                await asyncio.sleep(0)
                seen.extend([given is member, threading.current_thread() is here, [p.partition for p in partitions]])

            await member.subscribe(["shards"], on_assign=take)
            assert await member.poll(0) is False
            assert len(member.member.of(Polled)) == 1
            before = set(threading.enumerate())
            waiting = asyncio.create_task(member.poll(PATIENCE_S))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert set(threading.enumerate()) <= before
            member.member.assign({S0: -1001, S1: -1001})
            assert await waiting is True
            assert seen == [True, True, [0, 1]]
            assert not member.member.steps[-1].failed

    here = threading.current_thread()
    asyncio.run(program())


def test_waiting_polls_count_as_polls() -> None:
    """Each `poll` increases the count by which the member checks max.poll.interval.ms."""

    async def program() -> None:
        async with ScriptedAIOGroupMember() as member:
            before = member.member.progress()
            await member.poll(0)
            assert member.member.progress() > before

    asyncio.run(program())


def test_cancelled_poll_leaves_its_callback_running_and_the_next_poll_has_its_result() -> None:
    """A cancelled `poll` loses no assignment, and the next poll does not call the callback again."""

    async def program() -> None:
        began, may_end, calls = asyncio.Event(), asyncio.Event(), 0
        async with ScriptedAIOGroupMember() as member:

            async def take(_: AIOGroupMember, __: list[Partition]) -> None:
                nonlocal calls
                calls += 1
                began.set()
                await may_end.wait()

            await member.subscribe(["shards"], on_assign=take)
            member.member.assign({S0: -1001})
            polling = asyncio.create_task(member.poll())
            await began.wait()
            with pytest.raises(RuntimeError, match="another poll of this member is running"):
                await member.poll(0)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            may_end.set()
            assert await member.poll(PATIENCE_S) is True
            assert calls == 1

    asyncio.run(program())


def test_errors_of_callbacks_and_of_the_group_are_raised_by_the_awaited_poll() -> None:
    """The awaited `poll` raises the exceptions that `GroupMember.poll` raises."""

    async def program() -> None:
        async with ScriptedAIOGroupMember() as member:

            async def fail(_: AIOGroupMember, __: list[Partition]) -> None:
                raise ValueError("no space")

            await member.subscribe(["shards"], on_assign=fail)
            member.member.assign({S0: -1001})
            with pytest.raises(ValueError, match="no space"):
                await member.poll(PATIENCE_S)
            error = BrokerError(code=82, name="FENCED_INSTANCE_ID", message="another process has the id")
            member.member.in_state(MemberState.FATAL)
            member.member.order(RaiseToApplication(problem=Problem.FATAL, error=error))
            with pytest.raises(FatalGroupError):
                await member.poll(PATIENCE_S)

    asyncio.run(program())


def test_close_ends_a_waiting_poll_and_leaves_once() -> None:
    """The waiting poll returns False, on_revoke runs on the loop, and later polls raise."""

    async def program() -> None:
        revoked: list[int] = []
        member = ScriptedAIOGroupMember()

        async def release(_: AIOGroupMember, partitions: list[Partition]) -> None:
            revoked.extend(one.partition for one in partitions)

        await member.subscribe(["shards"], on_revoke=release)
        await member.poll(0)
        member.member.assign({S0: -1001})
        assert await member.poll(PATIENCE_S) is True
        waiting = asyncio.create_task(member.poll())
        await asyncio.sleep(0)
        member.member.farewell = [RevokePartitions(attempt=99, partitions=None)]
        await asyncio.gather(member.close(), member.close())
        assert await waiting is False
        assert revoked == [0]
        assert len(member.member.of(LeaveRequested)) == 1
        assert member.member.is_stopped
        with pytest.raises(RuntimeError):
            await member.poll(0)

    asyncio.run(program())


def test_commits_are_awaited_and_other_calls_never_block() -> None:
    """Commits, views, health and metrics have the same values as in `GroupMember`."""

    async def program() -> None:
        async with ScriptedAIOGroupMember() as member:
            await member.subscribe(["shards"])
            await member.poll(0)
            (done,) = await member.commit([Partition("shards", 0, 7)])
            assert (done.offset, done.error) == (7, None)
            (found,) = await member.committed([Partition("shards", 0)], PATIENCE_S)
            assert found.offset == 7
            assert (member.membership().group_id, member.generation()) == ("shards", -1)
            assert member.metrics().application.poll.count >= 1
            assert not member.health().would_restart_help
            assert str(await member.dump("somewhere")) == "somewhere"

    asyncio.run(program())


def test_callbacks_of_librdkafka_are_refused() -> None:
    """The constructor refuses librdkafka's callbacks, as `GroupMember` does, and requires a running event loop."""

    async def program() -> None:
        with pytest.raises(ConfigurationError, match="a GroupMember has no such callback"):
            AIOGroupMember(SHARDS_CONFIG | {"error_cb": print})

    asyncio.run(program())
    with pytest.raises(RuntimeError, match="no running event loop"):
        AIOGroupMember(SHARDS_CONFIG)
