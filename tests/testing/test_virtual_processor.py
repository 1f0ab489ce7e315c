"""`Processor` on the virtual time of a `FakeCluster`: handlers, retries and timeouts take no real time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Message
from tenacity import Retrying, stop_after_attempt, wait_fixed

from consumer_membership.errors import HandlerError, UseError
from consumer_membership.processing import AsyncProcessor, HandlerContext, OutputRecord, Processor
from consumer_membership.testing import FakeCluster, RunningCall

GROUP = "billing"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time."""
    with FakeCluster() as cluster, cluster.installed():
        yield cluster


def config(cluster: FakeCluster, **keys: object) -> dict[str, object]:
    """Return the configuration of an application; underscores in keys become dots."""
    more = {name.replace("_", "."): value for name, value in keys.items()}
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "group.protocol": "consumer",
        **more,
    }


def seconds(cluster: FakeCluster) -> int:
    """Return the current time of the cluster, rounded to seconds."""
    return round(cluster.now())


def deliver(cluster: FakeCluster, *values: str, partition: int = 0) -> None:
    """Append records with their values as keys."""
    for value in values:
        cluster.deliver("orders", value, key=value, partition=partition)


def text_of(message: Message) -> str:
    """Return the value of a record as text."""
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


# ---- handlers and time -----------------------------------------------------------------------------------------------


def test_handlers_take_virtual_time_in_parallel(cluster: FakeCluster) -> None:
    """Two workers handle four records of 100 s each in 200 s."""
    ended: list[tuple[str, int]] = []

    def handle(message: Message) -> None:
        cluster.advance(100)
        ended.append((text_of(message), seconds(cluster)))

    deliver(cluster, "a", "b", "c", "d")
    with Processor(config(cluster), ["orders"], handle, concurrency=2) as processor:
        cluster.start(processor.run)
        cluster.advance(90)
        assert ended == []
        assert processor.progress().partitions["orders", 0].running == 2  # type: ignore[index]  # a named tuple
        handlers = processor.metrics().handlers
        assert handlers is not None
        assert 85 < (handlers.now.oldest_in_flight_s or 0) <= 90
        cluster.advance(120)
        assert ended == [("a", 100), ("b", 100), ("c", 200), ("d", 200)]
        cluster.advance(5)
        assert cluster.committed(GROUP) == {("orders", 0): 4}


def test_advance_includes_everything_that_is_due_then(cluster: FakeCluster) -> None:
    """A retry that is due at the end of the time has been made when `advance` returns."""
    began_at: list[float] = []

    def handle(_: Message) -> None:
        began_at.append(cluster.now())
        if len(began_at) < 3:
            raise ConnectionError("the database is away")

    retry = Retrying(wait=wait_fixed(60), stop=stop_after_attempt(5))
    deliver(cluster, "a")
    with Processor(config(cluster), ["orders"], handle, retry=retry) as processor:
        cluster.start(processor.run)
        cluster.advance(1)
        first = began_at[0]
        cluster.advance(first + 59.9 - cluster.now())
        assert len(began_at) == 1
        cluster.advance(first + 60 - cluster.now())
        assert began_at == [first, first + 60]
        cluster.advance(60)
        assert began_at == [first, first + 60, first + 120]
        assert processor.metrics().handlers.retries == 2  # type: ignore[union-attr]


def test_record_that_fails_for_the_last_time_is_dead_lettered(cluster: FakeCluster) -> None:
    """The default waits between ten attempts, about 80 s, take no real time."""
    cluster.create_topic("orders.dlq")

    def handle(_: Message) -> None:
        raise ValueError("bad record")

    deliver(cluster, "a")
    with Processor(config(cluster), ["orders"], handle, dead_letter="orders.dlq") as processor:
        cluster.start(processor.run)
        cluster.advance(200)
        assert [message.value() for message in cluster.records("orders.dlq")] == [b"a"]
        cluster.advance(5)
    assert cluster.committed(GROUP) == {("orders", 0): 1}


def test_error_without_dead_letters_is_raised_by_the_result(cluster: FakeCluster) -> None:
    """`RunningCall.result` raises what `Processor.run` raises."""

    def handle(_: Message) -> None:
        raise ValueError("bad record")

    deliver(cluster, "a")
    processor = Processor(config(cluster), ["orders"], handle, retry=Retrying(stop=stop_after_attempt(1)))
    running = cluster.start(processor.run)
    with pytest.raises(HandlerError, match="bad record"):
        running.result()
    assert running.is_done


def test_processor_runs_in_the_thread_of_the_test(cluster: FakeCluster) -> None:
    """An application that calls `run` itself needs no other thread; a handler stops it."""

    def handle(message: Message) -> None:
        cluster.advance(30)
        if text_of(message) == "c":
            processor.stop()

    deliver(cluster, "a", "b", "c")
    processor = Processor(config(cluster), ["orders"], handle, order="partition")
    processor.run()
    assert cluster.committed(GROUP) == {("orders", 0): 3}
    assert seconds(cluster) == 90


def test_handler_timeout_cancels_a_coroutine(cluster: FakeCluster) -> None:
    """`asyncio.sleep` takes virtual time, also in the handlers of a `Processor`."""
    attempts: list[tuple[int, int]] = []

    async def handle(_: Message, context: HandlerContext) -> None:
        attempts.append((context.attempt, seconds(cluster)))
        await asyncio.sleep(600 if context.attempt == 1 else 5)

    deliver(cluster, "a")
    retry = Retrying(wait=wait_fixed(10), stop=stop_after_attempt(2))
    options = {"handler_timeout": 60, "retry": retry}
    with Processor(config(cluster), ["orders"], handle, **options) as processor:  # type: ignore[arg-type]
        cluster.start(processor.run)
        cluster.advance(69)
        assert attempts == [(1, 0)]
        cluster.advance(3)  # the processor checks for late handlers every 0.25 s
        assert [attempt for attempt, _ in attempts] == [1, 2]
        cluster.advance(10)
    assert cluster.committed(GROUP) == {("orders", 0): 1}


def test_coroutines_run_in_parallel(cluster: FakeCluster) -> None:
    """A hundred handlers of 60 s each end in 60 s, and their dead letters are written."""
    cluster.create_topic("orders.dlq")
    ended: list[int] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(60)
        ended.append(seconds(cluster))
        if text_of(message) == "7":
            raise ValueError("bad record")

    deliver(cluster, *map(str, range(100)))
    once = Retrying(stop=stop_after_attempt(1))
    with Processor(
        config(cluster), ["orders"], handle, concurrency=100, retry=once, dead_letter="orders.dlq"
    ) as processor:
        cluster.start(processor.run)
        cluster.advance(66)
        assert ended == [60] * 100
        assert [message.value() for message in cluster.records("orders.dlq")] == [b"7"]
        assert cluster.committed(GROUP) == {("orders", 0): 100}


# ---- rebalances and the end ------------------------------------------------------------------------------------------


def test_second_processor_takes_over_partitions_and_no_record_is_handled_twice(cluster: FakeCluster) -> None:
    """Partitions move while handlers run, and the former owner commits what they have finished."""
    cluster.create_topic("orders", 4)
    handled: list[tuple[str, str]] = []

    def handler_of(name: str) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            cluster.advance(7)
            handled.append((name, text_of(message)))

        return handle

    for number in range(40):
        deliver(cluster, str(number), partition=number % 4)
    options = {"order": "partition", "concurrency": 4}
    with (
        Processor(config(cluster), ["orders"], handler_of("first"), **options) as first,  # type: ignore[arg-type]
        Processor(config(cluster), ["orders"], handler_of("second"), **options) as second,  # type: ignore[arg-type]
    ):
        cluster.start(first.run)
        cluster.advance(20)
        cluster.start(second.run)
        cluster.advance(100)
        assert [len(one.partitions) for one in cluster.members(GROUP)] == [2, 2]
    assert sorted(int(value) for _, value in handled) == list(range(40))
    assert {name for name, _ in handled} == {"first", "second"}
    assert sum(cluster.committed(GROUP).values()) == 40


def test_revocation_waits_for_handlers_until_the_drain_timeout(cluster: FakeCluster) -> None:
    """A handler that takes longer than `drain.timeout.ms` loses its record, which is handled again."""
    began, ended = list[int](), list[tuple[int, bool]]()

    def handle(_: Message, context: HandlerContext) -> None:
        began.append(seconds(cluster))
        cluster.advance(100 if len(began) == 1 else 1)
        ended.append((seconds(cluster), context.is_current))

    deliver(cluster, "a")
    settings = config(cluster, drain_timeout_ms=20_000)
    with Processor(settings, ["orders"], handle) as processor:
        cluster.start(processor.run)
        cluster.advance(1)
        cluster.rebalance(GROUP)
        cluster.advance(19)
        assert began == [0]
        cluster.advance(20)
        assert len(began) == 2  # the next owner is the same processor
        cluster.advance(80)
        assert ended == [(began[1] + 1, True), (100, False)]


def test_close_waits_for_the_running_handler(cluster: FakeCluster) -> None:
    """The grace period of a close is also virtual time."""
    ended: list[int] = []

    def handle(_: Message) -> None:
        cluster.advance(20)
        ended.append(seconds(cluster))

    deliver(cluster, "a", "b")
    with Processor(config(cluster), ["orders"], handle, order="partition", grace_period=30) as processor:
        running = cluster.start(processor.run)
        cluster.advance(5)
    assert running.is_done
    assert ended == [20]
    assert cluster.committed(GROUP) == {("orders", 0): 1}


def test_transactional_processor_writes_outputs(cluster: FakeCluster) -> None:
    """Outputs and offsets are committed in transactions."""
    cluster.create_topic("invoices")

    def handle(message: Message) -> OutputRecord:
        cluster.advance(3)
        return OutputRecord("invoices", message.value(), key=None)

    deliver(cluster, "a", "b", "c")
    with Processor(config(cluster), ["orders"], handle, transactional=True) as processor:
        cluster.start(processor.run)
        cluster.advance(20)
        assert cluster.committed(GROUP) == {("orders", 0): 3}
    assert sorted(str(message.value()) for message in cluster.records("invoices")) == ["b'a'", "b'b'", "b'c'"]


# ---- order -----------------------------------------------------------------------------------------------------------


def trace(seed: int) -> list[tuple[float, str, str]]:
    """Return the events of two processors with random handlers, with a rebalance and a fence in the middle."""
    chance, events = random.Random(seed), list[tuple[float, str, str]]()  # noqa: S311 - no secret

    with FakeCluster(partitions=3, seed=seed) as cluster:

        def handler_of(name: str) -> Callable[[Message], None]:
            def handle(message: Message) -> None:
                events.append((cluster.now(), name, f"began {text_of(message)}"))
                cluster.advance(chance.random() * 10)
                if chance.random() < 0.2:
                    raise ConnectionError
                events.append((cluster.now(), name, f"ended {text_of(message)}"))

            return handle

        for number in range(60):
            cluster.deliver("orders", str(number), key=str(number))
        retry = Retrying(wait=wait_fixed(3), stop=stop_after_attempt(50))
        with (
            Processor(config(cluster), ["orders"], handler_of("first"), concurrency=5, retry=retry) as first,
            Processor(config(cluster), ["orders"], handler_of("second"), concurrency=3, retry=retry) as second,
        ):
            cluster.start(first.run)
            cluster.advance(13)
            cluster.start(second.run)
            cluster.advance(17)
            cluster.fence(cluster.members(GROUP)[0].member_id, GROUP)
            cluster.advance(200)
        assert sum(cluster.committed(GROUP).values()) == 60
    return events


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_test_has_the_same_order_of_events(seed: int) -> None:
    """Equal tests have equal events: one thread runs at a time, and the order of the queue selects the next one."""
    assert trace(seed) == trace(seed)


# ---- asyncio ---------------------------------------------------------------------------------------------------------


def test_async_processor_runs_on_the_loop_of_the_cluster(cluster: FakeCluster) -> None:
    """`cluster.run` runs an event loop with virtual time, which `AsyncProcessor` and `asyncio.to_thread` use."""
    ended: list[int] = []

    async def handle(_: Message) -> None:
        await asyncio.sleep(50)
        await asyncio.to_thread(cluster.advance, 10)
        ended.append(seconds(cluster))

    async def main() -> None:
        async with AsyncProcessor(config(cluster), ["orders"], handle, concurrency=2) as processor:
            running = asyncio.create_task(processor.run())
            await asyncio.sleep(70)
            await processor.stop()
            await running

    deliver(cluster, "a", "b")
    cluster.run(main())
    assert ended == [60, 60]
    assert cluster.committed(GROUP) == {("orders", 0): 2}


def test_async_processor_on_another_event_loop_is_refused(cluster: FakeCluster) -> None:
    """The error names the alternatives, because the loop would wait in real time."""

    async def main() -> None:
        async with AsyncProcessor(config(cluster), ["orders"], print) as processor:
            await processor.run()

    with pytest.raises(UseError, match=r"cluster\.run\(coroutine\)"):
        asyncio.run(main())


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_worker_processes_are_refused(cluster: FakeCluster) -> None:
    """Other processes have no virtual time; the error names the alternatives."""
    with pytest.raises(UseError, match="processes=True"):
        Processor(config(cluster), ["orders"], print, processes=True)


def test_thread_that_the_cluster_did_not_start_is_refused(cluster: FakeCluster) -> None:
    """A call in such a thread raises an error that names `start`: the thread would run at the same time as others."""
    with Processor(config(cluster), ["orders"], print) as processor:
        cluster.start(processor.run)
        failures: list[str] = []

        def poll() -> None:
            try:
                cluster.advance(1)
            except UseError as error:
                failures.append(str(error))

        thread = threading.Thread(target=poll)
        thread.start()
        thread.join()
        assert "start it with cluster.start(function)" in failures[0]


def test_call_that_does_not_end_raises(cluster: FakeCluster) -> None:
    """`result` raises TimeoutError for a call that does not end within the timeout, after this virtual time."""
    with Processor(config(cluster), ["orders"], print) as processor:
        running: RunningCall[None] = cluster.start(processor.run)
        with pytest.raises(TimeoutError, match="has not ended within 60 s"):
            running.result()
        assert seconds(cluster) == 60


def test_threads_that_wait_end_with_the_cluster() -> None:
    """A test that forgets to close its processor leaves no thread behind."""
    with FakeCluster() as cluster:
        cluster.start(Processor(config(cluster), ["orders"], print).run)
        cluster.advance(1)
        names = [one for one in threading.enumerate() if one.name.startswith("fake cluster")]
    for one in names:
        one.join(10)
        assert not one.is_alive()
    assert names


def test_cluster_ends_a_thread_that_polls_and_closes_its_consumer() -> None:
    """A thread that waits in `poll` holds the consumer's lock, so the thread ends before the consumer is closed."""
    seen: list[str] = []

    def consume(cluster: FakeCluster) -> None:
        consumer = cluster.consumer({"auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(60)
            if message is not None:
                seen.append(text_of(message))

    with FakeCluster() as cluster:
        deliver(cluster, "a")
        running = cluster.start(partial(consume, cluster))
        cluster.advance(100)
        assert seen == ["a"]
        assert len(cluster.members()) == 1
    assert running.is_done
    assert cluster.members() == ()


def test_started_call_has_a_result_on_real_time() -> None:
    """`start` works with virtual time and with real time, so that a fixture may use either."""
    with FakeCluster(time="real") as cluster:
        assert cluster.start(lambda: 7).result(10) == 7
