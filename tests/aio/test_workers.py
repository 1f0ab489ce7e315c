"""The worker threads of asyncio consumers: many consumers share few threads, and idle threads end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.aio import workers
from consumer_membership.aio.workers import Waiters, Workers
from consumer_membership.types import TopicPartition
from tests.aio.conftest import AIOFactory
from tests.aio.programs import place, run
from tests.clients.conftest import RECORDS
from tests.support.waiting import PATIENCE_S, async_wait_until, wait_until

pytestmark = pytest.mark.slow


def test_workers_reuse_an_idle_thread() -> None:
    """Consecutive jobs run on one thread; concurrent jobs run on one thread each."""
    pool = Workers()
    seen: list[int] = []
    for _ in range(5):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            seen.append(threading.get_ident())
            done.set()

        pool.do(work)
        assert done.wait(PATIENCE_S)
        wait_until(lambda: len(pool._idle) >= 1, "an idle thread")
    assert len(set(seen)) == 1
    both = threading.Barrier(2, timeout=PATIENCE_S)
    for _ in range(2):
        pool.do(lambda: both.wait() and None)  # type: ignore[arg-type]  # the result is not used
    wait_until(lambda: len(pool._idle) >= 2, "two idle threads")


#: A parent process has an idle worker thread, which does not exist in its forked child; the child adds a job.
FORKS = """
import os, threading
from consumer_membership.aio.workers import WORKERS
done = threading.Event()
WORKERS.do(done.set)
done.wait()
while not WORKERS._idle:
    threading.Event().wait(0.005)
child = os.fork()
done = threading.Event()
WORKERS.do(done.set)
is_done = done.wait(60)
if child == 0:
    os._exit(0 if is_done else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_workers_of_a_forked_child_use_new_threads() -> None:
    """A forked child starts new threads; a job for a thread of its parent would never run."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_workers_end_an_idle_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread without work ends after a while."""
    monkeypatch.setattr(workers, "KEPT_S", 0.01)
    threads: list[threading.Thread] = []
    Workers().do(lambda: threads.append(threading.current_thread()))
    wait_until(lambda: threads, "the work's begin")
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Waiters:
    """Two waiting consumers have one thread each; all other consumers share a thread."""
    monkeypatch.setattr(workers, "THREADS", 2)
    waiters = Waiters(Workers())
    monkeypatch.setattr("consumer_membership.aio.consumer.WAITERS", waiters)
    return waiters


def test_many_waiting_consumers_share_a_thread_and_get_their_records(
    aio_consumers: AIOFactory, topic: str, two_threads: Waiters
) -> None:
    """Each consumer gets its record and its callbacks, and the shared thread drops a cancelled poll."""

    async def program() -> None:
        consumers = [aio_consumers(group_id=f"g{number}") for number in range(8)]
        reported: list[int] = []

        async def on_assign(_: object, partitions: list[PartitionOffset]) -> None:
            await asyncio.sleep(0)
            reported.append(len(partitions))

        for consumer in consumers:
            await consumer.subscribe([topic], on_assign=on_assign)
        polls = [asyncio.ensure_future(consumer.poll()) for consumer in consumers]
        # The shared thread may be polling one of the six consumers at this moment.
        await async_wait_until(lambda: len(two_threads._sharing) >= 5, "consumers that share a thread")
        assert two_threads._busy == 2
        polls[-1].cancel()
        await asyncio.wait(polls[-1:])
        for consumer in consumers[:-1]:
            consumer.member.assign({TopicPartition(topic, 0): RECORDS - 1})
        assert [place(await one) for one in polls[:-1]] == [(0, RECORDS - 1)] * 7
        assert reported == [1] * 7
        await async_wait_until(
            lambda: not (two_threads._busy or two_threads._sharing or two_threads._is_looking), "no waiting consumer"
        )
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    run(program())


def test_poll_on_the_shared_thread_returns_none_after_its_timeout(
    aio_consumers: AIOFactory, topic: str, two_threads: Waiters
) -> None:
    """Each poll on the shared thread returns None when its timeout expires."""

    async def program() -> None:
        consumers = [aio_consumers(group_id=f"g{number}") for number in range(5)]
        for consumer in consumers:
            await consumer.assign([PartitionOffset(topic, 0, RECORDS)])
        assert await asyncio.gather(*(consumer.poll(0.2) for consumer in consumers)) == [None] * 5
        assert two_threads._busy in (0, 1, 2)

    run(program())
