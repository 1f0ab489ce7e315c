"""`Processor` on a real broker: order, commits, rebalances, failures, timeouts, and the end."""

from __future__ import annotations

import asyncio
import threading

import pytest
import tenacity
from confluent_kafka import KafkaError, KafkaException, Message

from consumer_membership.devbroker import Broker
from consumer_membership.errors import HandlerError, UseError
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.processing import AsyncProcessor, HandlerContext, Processor
from consumer_membership.processing.settings import ProcessorOptions
from consumer_membership.types import TopicPartition
from tests.integration.processors import Handled, Run, by_key, committed, config_of, running, value_of
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: So that a test need not wait for the next commit.
EAGER_COMMITS: dict[str, object] = {"auto.commit.interval.ms": 50}
ONE_ATTEMPT = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))


@pytest.mark.parametrize("concurrency", [1, 8])
def test_records_of_a_key_run_in_order_and_all_are_committed(broker: Broker, concurrency: int) -> None:
    """Each record runs once, those of a key in the order of their offsets, and the ends are committed."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 3), unique("g")
    written = produce(broker.bootstrap_servers, topic, [(f"k{n % 7}", str(n)) for n in range(2000)])
    handled: list[Message] = []
    lock = threading.Lock()

    def handle(record: Message) -> None:
        with lock:
            handled.append(record)

    with running(Run(broker.bootstrap_servers, topic, group, handle, concurrency=concurrency)):
        wait_until(lambda: len(handled) >= 2000, "all records", seen=lambda: len(handled))
    places = [(record.partition(), record.offset()) for record in handled]
    assert len(places) == len(set(places)) == 2000
    for offsets in by_key(handled).values():
        assert offsets == sorted(offsets)
    ends = {number: (end, "") for number, end in written.items()}
    assert committed(broker.bootstrap_servers, group, topic, 3) == ends


def test_next_owner_skips_the_records_that_were_finished_beyond_the_committed_offset(broker: Broker) -> None:
    """The commit stays before an unfinished record, and its metadata spares the next owner the finished ones."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{n}", str(n)) for n in range(10)])
    first = Handled()
    first.fail("3", lambda: ValueError("not yet"))
    first.hold("3")
    run = Run(broker.bootstrap_servers, topic, group, first, retry=ONE_ATTEMPT)
    first.wait_for_end(*[str(n) for n in range(10) if n != 3])
    first.release()
    assert isinstance(run.join(), HandlerError)
    offset, metadata = committed(broker.bootstrap_servers, group, topic, 1)[0]
    assert (offset, metadata[:4]) == (3, "cm1:")
    second = Handled()
    with running(Run(broker.bootstrap_servers, topic, group, second)):
        second.wait_for_end("3")
        produce(broker.bootstrap_servers, topic, [("k", "10")])
        second.wait_for_end("10")
    assert second.began == ["3", "10"]
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (11, "")


def test_failed_record_stops_the_processor_before_it(broker: Broker) -> None:
    """Without a target for dead letters, run raises an error with the record, and its offset is not committed."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("k", str(n)) for n in range(5)])
    handled = Handled()
    handled.fail("2", lambda: ValueError("broken"))
    run = Run(broker.bootstrap_servers, topic, group, handled, retry=ONE_ATTEMPT)
    error = run.join()
    assert isinstance(error, HandlerError)
    assert (error.partition, error.offset, type(error.__cause__)) == (TopicPartition(topic, 0), 2, ValueError)
    assert f"the handler failed for offset 2 of {topic}-0 after 1 attempt: ValueError: broken" in str(error)
    assert handled.ended == ["0", "1"]
    assert committed(broker.bootstrap_servers, group, topic, 1)[0][0] == 2
    health = run.processor.health()
    assert (health.verdict, health.would_restart_help) == (HealthVerdict.FATAL, True)


def test_retry_delays_only_its_own_key(broker: Broker) -> None:
    """While a record waits for its next attempt, other keys continue; then its key continues in order."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
    handled = Handled()
    attempts = iter([ValueError("once"), ValueError("twice"), None])
    handled.fail("a1", lambda: next(attempts))
    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(0.5))
    with running(Run(broker.bootstrap_servers, topic, group, handled, retry=retry)) as run:
        handled.wait_for_end("a1", "a2", "b1", "b2")
        assert run.processor.metrics().handlers is not None
        assert run.processor.progress().counts.retries == 2
    assert handled.ended == ["b1", "b2", "a1", "a2"]
    assert handled.contexts["a1"].attempt == 3


def test_revocation_waits_for_running_handlers_and_commits_them(broker: Broker) -> None:
    """A new member receives a partition only after the handlers there have ended; nothing runs on two owners."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 2), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{n}", str(n)) for n in range(8)])
    first, second = Handled(), Handled()
    first.hold(*map(str, range(8)))
    with running(Run(broker.bootstrap_servers, topic, group, first)) as one:
        first.wait_for_begin(*map(str, range(8)))
        with running(Run(broker.bootstrap_servers, topic, group, second)) as two:
            wait_until(
                lambda: one.processor.health().verdict is HealthVerdict.REBALANCING,
                "a revocation that waits",
                seen=one.processor.health,
            )
            assert second.began == []
            first.release()
            wait_until(lambda: two.processor.progress().partitions, "a partition of the second member")
            produce(broker.bootstrap_servers, topic, [("k", "8"), ("k", "9")])
            wait_until(lambda: {"8", "9"} <= {*first.ended, *second.ended}, "the new records")
    assert sorted([*first.began, *second.began], key=int) == [str(n) for n in range(10)]
    assert set(second.began) < {"8", "9"}


def test_handler_that_outlasts_the_drain_is_disowned(broker: Broker) -> None:
    """After drain.timeout.ms the partition moves: `is_current` is false, and the handler's result is not committed."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 2), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0"), ("b", "1")])
    first, second = Handled(), Handled()
    first.hold("0", "1")
    with running(Run(broker.bootstrap_servers, topic, group, first, {"drain.timeout.ms": 200})):
        first.wait_for_begin("0", "1")
        with running(Run(broker.bootstrap_servers, topic, group, second)):
            second.wait_for(lambda: bool(second.ended), "a record of the second member")
            moved = second.ended[0]
            assert not first.contexts[moved].is_current
            first.release()
            first.wait_for_end("0", "1")
    assert {place: at[0] for place, at in committed(broker.bootstrap_servers, group, topic, 2).items()} == {0: 1, 1: 1}


@pytest.mark.parametrize("callbacks", [{}, {"rebalance.callbacks": "eager"}], ids=["default", "eager"])
def test_long_job_keeps_its_partition_while_another_one_moves(broker: Broker, callbacks: dict[str, object]) -> None:
    """A rebalance concerns only the partitions that move: the job on the other one runs on, and its result counts."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 2), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0"), ("b", "1")])
    first, second = Handled(), Handled()
    first.hold("0", "1")
    with running(Run(broker.bootstrap_servers, topic, group, first, callbacks | {"drain.timeout.ms": 200})):
        first.wait_for_begin("0", "1")
        with running(Run(broker.bootstrap_servers, topic, group, second, callbacks)):
            second.wait_for(lambda: bool(second.ended), "a record of the second member")
            (kept,) = {"0", "1"} - {*second.ended}
            assert first.contexts[kept].is_current
            first.release()
            first.wait_for_end(kept)
    assert len(second.began) == 1
    assert sorted(first.began) == ["0", "1"]


def test_coroutines_run_at_the_same_time_and_are_cancelled_at_their_timeout(broker: Broker) -> None:
    """A coroutine beyond handler_timeout is cancelled, and its record is retried."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{n}", str(n)) for n in range(50)])
    began: list[str] = []
    ended: list[str] = []
    together = asyncio.Event()

    async def handle(record: Message, context: HandlerContext) -> None:
        value = value_of(record)
        began.append(value)
        if len(began) == 50:
            together.set()
        await together.wait()
        if value == "7" and context.attempt == 1:
            await asyncio.Event().wait()
        ended.append(value)

    async def process() -> None:
        config = config_of(broker.bootstrap_servers, group)
        retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
        options: ProcessorOptions = {"concurrency": 50, "handler_timeout": 2.0, "retry": retry}
        async with AsyncProcessor(config, [topic], handle, **options) as processor:
            run = asyncio.create_task(processor.run())
            await asyncio.to_thread(wait_until, lambda: len(ended) == 50, "all coroutines", seen=lambda: len(ended))
            await processor.stop()
            await run

    asyncio.run(process())
    assert began.count("7") == 2
    assert sorted(ended, key=int) == [str(n) for n in range(50)]
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (50, "")


def test_coroutine_that_exceeds_each_timeout_is_dead_lettered(broker: Broker) -> None:
    """Each attempt is cancelled at its timeout; after the last one, the other records continue."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0"), ("a", "1")])
    dead: list[tuple[str, int]] = []

    async def handle(record: Message) -> None:
        if value_of(record) == "0":
            await asyncio.Event().wait()

    def bury(record: Message, _: BaseException, attempts: int) -> None:
        dead.append((value_of(record), attempts))

    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    run = Run(broker.bootstrap_servers, topic, group, handle, handler_timeout=0.2, retry=retry, dead_letter=bury)
    with running(run):
        wait_until(lambda: run.processor.progress().counts.finished == 2, "both records")
    assert dead == [("0", 2)]
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (2, "")


def test_function_beyond_its_timeout_ends_the_processor(broker: Broker) -> None:
    """A thread cannot be cancelled: the processor stops, and reports the partition, the offset and the stack."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0"), ("b", "1")])
    handled = Handled()
    handled.hold("0")
    run = Run(broker.bootstrap_servers, topic, group, handled, handler_timeout=0.5, grace_period=0.2)
    error = run.join()
    handled.release()
    assert isinstance(error, HandlerError)
    assert f"the handler for offset 0 of {topic}-0 exceeded handler_timeout=0.5 s" in str(error)
    assert committed(broker.bootstrap_servers, group, topic, 1)[0][0] == 0
    wait_until(
        lambda: run.processor.health().verdict is HealthVerdict.FATAL,
        "the end of the handler",
        seen=run.processor.health,
    )


def test_stop_finishes_running_handlers_and_starts_no_others(broker: Broker) -> None:
    """Stop waits for the handlers that run, commits them, and leaves queued records to the next owner."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", str(n)) for n in range(5)])
    handled = Handled()
    handled.hold("2")
    run = Run(broker.bootstrap_servers, topic, group, handled)
    handled.wait_for_begin("2")
    run.processor.stop()
    wait_until(lambda: run.processor.progress().partitions[TopicPartition(topic, 0)].queued == 0, "the end of intake")
    handled.release()
    run.stop()
    assert handled.ended == ["0", "1", "2"]
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (3, "")
    with pytest.raises(UseError, match="runs once"):
        run.processor.run()


def test_full_partition_is_paused_while_others_continue(broker: Broker) -> None:
    """A stuck key fills its own partition only; the records in hand of that partition are bounded."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 2), unique("g")
    # Even numbers are in partition 0, all with one key.
    produce(broker.bootstrap_servers, topic, [("hot" if n % 2 == 0 else f"k{n}", str(n)) for n in range(6000)])
    handled = Handled()
    handled.hold("0")
    with running(Run(broker.bootstrap_servers, topic, group, handled, max_queued=100)) as run:
        handled.wait_for_end(*[str(n) for n in range(1, 6000, 2)])
        progress = run.processor.progress().partitions
        assert progress[TopicPartition(topic, 0)].queued <= 600
        handled.release()
        handled.wait_for(lambda: len(handled.ended) == 6000, "all records")
    assert [int(value) for value in handled.ended if int(value) % 2 == 0] == list(range(0, 6000, 2))


@pytest.mark.parametrize("limit", [0, 12])
def test_small_metadata_limit_makes_records_wait(broker: Broker, limit: int) -> None:
    """Metadata stays within the configured limit; records beyond it wait, and nothing is lost."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{n}", str(n)) for n in range(300)])
    handled = Handled()
    handled.hold("0")
    config = {"offset.metadata.max.bytes": limit, **EAGER_COMMITS}
    with running(Run(broker.bootstrap_servers, topic, group, handled, config)):
        handled.wait_for_begin("0")
        handled.release()
        handled.wait_for(lambda: len(handled.ended) == 300, "all records")
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (300, "")


def test_processor_with_batches_splits_a_failed_one(broker: Broker) -> None:
    """A batch handler receives lists; if one record makes a batch fail, only that record is dead-lettered."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{n % 3}", str(n)) for n in range(60)])
    good: list[str] = []
    dead: list[str] = []

    def handle(batch: list[Message]) -> None:
        values = [value_of(record) for record in batch]
        if "7" in values:
            raise ValueError("poison")
        good.extend(values)

    def bury(record: Message, error: BaseException, attempts: int) -> None:
        dead.append(f"{value_of(record)} {error} {attempts}")

    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    run = Run(
        broker.bootstrap_servers, topic, group, handle, max_batch=10, concurrency=1, retry=retry, dead_letter=bury
    )
    with running(run):
        wait_until(lambda: len(good) + len(dead) == 60, "all records", seen=lambda: (len(good), dead))
    assert dead == ["7 poison 2"]
    assert sorted(good, key=int) == [str(n) for n in range(60) if n != 7]
    assert [value for value in good if int(value) % 3 == 0] == [str(n) for n in range(0, 60, 3)]


def test_processor_without_a_run_can_be_closed() -> None:
    """Closing needs no broker if nothing ran."""
    processor = Processor({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"], Handled())
    processor.stop()
    processor.close()


def test_long_job_can_end_early_when_its_partition_is_given_up(broker: Broker) -> None:
    """`is_ending` shows a running handler the stop; if the handler raises then, its record stays for the next owner."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0")])
    began = threading.Event()

    def handle(_: Message, context: HandlerContext) -> None:
        began.set()
        wait_until(lambda: context.is_ending, "the stop")
        raise InterruptedError

    run = Run(broker.bootstrap_servers, topic, group, handle)
    began.wait()
    run.stop()
    assert committed(broker.bootstrap_servers, group, topic, 1)[0][0] == 0
    after = Handled()
    with running(Run(broker.bootstrap_servers, topic, group, after)):
        after.wait_for_end("0")


def test_close_waits_for_the_run_on_another_thread(broker: Broker) -> None:
    """Running handlers finish, their records are committed, and `run` returns without an error."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0")])
    began = threading.Event()

    def handle(_: Message, context: HandlerContext) -> None:
        began.set()
        wait_until(lambda: context.is_ending, "the end")

    run = Run(broker.bootstrap_servers, topic, group, handle)
    began.wait()
    run.processor.close()
    assert run.join() is None
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (1, "")


def test_handler_that_closes_its_processor_is_not_waited_for(broker: Broker) -> None:
    """`close` returns at once in a handler, whose record is finished and committed before `run` returns."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0")])

    def handle(_: Message) -> None:
        run.processor.close()

    run = Run(broker.bootstrap_servers, topic, group, handle)
    assert run.join() is None
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (1, "")


@pytest.mark.parametrize("method", ["stop", "close"])
def test_coroutine_that_ends_its_processor_is_not_waited_for(broker: Broker, method: str) -> None:
    """`stop` and `close` return at once in a handler, whose record is finished and committed before `run` returns."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "0")])

    async def run() -> None:
        async def handle(_: Message) -> None:
            await getattr(processor, method)()

        async with AsyncProcessor(config_of(broker.bootstrap_servers, group), [topic], handle) as processor:
            await processor.run()

    asyncio.run(run())
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (1, "")


def test_async_processor_can_be_stopped_on_another_event_loop(broker: Broker) -> None:
    """Frameworks run their shutdown on other loops and threads; `stop` returns there at the end of the run."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    handled = Handled()
    produce(broker.bootstrap_servers, topic, [("a", "0")])

    async def run() -> None:
        async with AsyncProcessor(config_of(broker.bootstrap_servers, group), [topic], handled) as processor:
            running = asyncio.create_task(processor.run())
            await asyncio.to_thread(handled.wait_for_end, "0")
            with pytest.raises(UseError):
                await processor.run()
            await asyncio.to_thread(lambda: asyncio.run(processor.stop()))
            await running

    asyncio.run(run())
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (1, "")


def test_partition_without_an_offset_ends_the_processor_if_the_reset_is_an_error(broker: Broker) -> None:
    """Its records would never be read, and only the log would show it."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    run = Run(broker.bootstrap_servers, topic, group, Handled(), {"auto.offset.reset": "error"})
    error = run.join()
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError._AUTO_OFFSET_RESET
