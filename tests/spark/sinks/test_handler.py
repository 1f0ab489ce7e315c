"""`HandlerSink` without Spark and brokers: order, retries, dead letters and errors of one batch and of the next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import tenacity
from confluent_kafka import Message

from consumer_membership.errors import ConfigurationError, FencedError, HandlerError
from consumer_membership.spark import BatchFormat, HandlerSink, SinkHandlerContext
from consumer_membership.spark.context import SinkContext
from consumer_membership.spark.pickling import pickled
from tests.spark.sinks.builders import TOPIC, Word, batch, context, sent, use
from tests.support.waiting import PATIENCE_S

#: Two attempts without a wait between them.
TWICE = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())


def records(keys: str, start: int = 0) -> list[Message]:
    """One record of partition 0 for each letter, which is its key."""
    return [
        Message(topic=TOPIC, partition=0, offset=start + index, key=key.encode(), value=b"")
        for index, key in enumerate(keys)
    ]


def give(sink: HandlerSink, keys: str, start: int = 0, context_of: Callable[..., SinkContext] = context) -> None:
    """Pass these records to the sink as one batch."""
    sink(records(keys, start), context_of({0: range(start, start + len(keys))}))


@contextmanager
def sink_of(handler: object, **options: object) -> Iterator[HandlerSink]:
    """A sink, which is closed at the end."""
    with closing(HandlerSink(handler, **options)) as sink:  # type: ignore[arg-type]  # each test gives valid options
        yield sink


def offset_of(record: Message) -> int:
    """The offset of a record."""
    offset = record.offset()
    assert offset is not None
    return offset


def test_records_of_a_key_run_in_order_while_other_keys_run() -> None:
    """The first records of both keys are handled at the same time, and the others follow in the order of offsets."""
    meeting = threading.Barrier(2)
    handled: dict[bytes, list[int]] = {b"a": [], b"b": []}

    def handle(record: Message) -> None:
        if offset_of(record) < 2:
            meeting.wait(PATIENCE_S)
        handled[record.key()].append(offset_of(record))  # type: ignore[index]  # each record has a key

    with sink_of(handle, concurrency=2) as sink:
        give(sink, "abaabb")
        give(sink, "ab", start=6)
    assert handled == {b"a": [0, 2, 3, 6], b"b": [1, 4, 5, 7]}


def test_failed_record_runs_again_alone() -> None:
    """Only the failed record is repeated, before the next one of its key; the context has the attempt and the error."""
    calls: list[tuple[int, int, str]] = []

    def handle(record: Message, call: SinkHandlerContext) -> None:
        calls.append((offset_of(record), call.attempt, str(call.last_error)))
        if offset_of(record) == 0 and call.attempt == 1:
            raise ValueError("not yet")

    with sink_of(handle, concurrency=1, retry=TWICE) as sink:
        give(sink, "aa")
    assert calls == [(0, 1, "None"), (0, 2, "not yet"), (1, 1, "None")]


def test_context_has_the_batch_and_the_fence_of_the_record() -> None:
    """A handler can store the fencing token of its partition, and check whether the member was replaced."""
    seen: dict[int, tuple[int, int, int]] = {}

    def handle(_: Message, call: SinkHandlerContext) -> None:
        call.batch.verify()
        seen[call.partition.partition] = (call.fence.partition, call.fence.epoch, call.epoch)

    parts = {0: range(3), 1: range(5)}
    with sink_of(handle) as sink:
        sink(batch(parts), context(parts, epoch=7))
    assert seen == {0: (0, 7, 7), 1: (1, 7, 7)}


def test_poison_record_goes_to_the_dead_letter_function(caplog: pytest.LogCaptureFixture) -> None:
    """The batch ends, and every other record is handled; the function receives the last error and the attempts.

    The log of the task has the dead letter.
    """
    handled: list[int] = []
    dead: list[tuple[int, str, int]] = []

    def handle(record: Message) -> None:
        if offset_of(record) == 1:
            raise ValueError("poison")
        handled.append(offset_of(record))

    def keep(record: Message, error: BaseException, attempts: int) -> None:
        dead.append((offset_of(record), str(error), attempts))

    with sink_of(handle, retry=TWICE, dead_letter=keep, concurrency=1) as sink:
        give(sink, "aaa")
    assert (handled, dead) == ([0, 2], [(1, "poison", 2)])
    assert caplog.messages[-1].startswith("Dead-lettered orders-0 offset 1 after attempt 2: ValueError: poison")


def test_poison_record_without_a_target_fails_the_batch_when_no_handler_runs() -> None:
    """The error has the record and its cause. It is raised after the running handlers were cancelled and have ended."""
    has_begun, has_ended = threading.Event(), threading.Event()

    def handle(record: Message, call: SinkHandlerContext) -> None:
        if record.key() == b"a":
            assert has_begun.wait(PATIENCE_S)
            raise ValueError("poison")
        has_begun.set()
        while not call.is_cancelled:
            threading.Event().wait(0.001)
        has_ended.set()

    with sink_of(handle, retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(1))) as sink:
        with pytest.raises(HandlerError, match="offset 0 of orders-0 after 1 attempt: ValueError: poison") as raised:
            give(sink, "ab")
        assert has_ended.is_set()
    assert isinstance(raised.value.__cause__, ValueError)


def test_fenced_error_of_a_handler_ends_the_batch_and_is_no_dead_letter() -> None:
    """The record belongs to another member now. The sink can continue if this member joins again."""
    is_owner = False
    calls: list[int] = []
    dead: list[int] = []

    def handle(record: Message, call: SinkHandlerContext) -> None:
        calls.append(offset_of(record))
        call.batch.verify()

    def keep(record: Message, _: BaseException, __: int) -> None:
        dead.append(offset_of(record))

    def at_present(parts: dict[int, range]) -> SinkContext:
        return context(parts, ownership=Word(is_owner=is_owner))

    with sink_of(handle, dead_letter=keep, concurrency=1) as sink:
        with pytest.raises(FencedError, match="does not confirm the member"):
            give(sink, "aa", context_of=at_present)
        is_owner = True
        give(sink, "aa", context_of=at_present)
    assert (calls, dead) == ([0, 0, 1], [])


def test_coroutines_share_one_loop_in_all_batches() -> None:
    """A client that belongs to the event loop can be kept from one batch to the next."""
    loops: set[asyncio.AbstractEventLoop] = set()
    meetings: list[asyncio.Barrier] = []

    async def handle(_: Message) -> None:
        loops.add(asyncio.get_running_loop())
        if not meetings:
            meetings.append(asyncio.Barrier(2))
        await asyncio.wait_for(meetings[0].wait(), PATIENCE_S)

    with sink_of(handle, concurrency=2) as sink:
        give(sink, "ab")
        give(sink, "ab", start=2)
    assert len(loops) == 1


def test_poison_record_of_a_coroutine_cancels_the_others() -> None:
    """A failed batch does not wait for its other coroutines, but cancels them."""
    cancelled: list[int] = []

    async def handle(record: Message) -> None:
        if record.key() == b"b":
            raise ValueError("poison")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(offset_of(record))
            raise

    with (
        sink_of(handle, retry=TWICE) as sink,
        pytest.raises(HandlerError, match="offset 1 of orders-0 after 2 attempts"),
    ):
        give(sink, "ab")
    assert cancelled == [0]


def test_threads_stay_for_the_next_batch() -> None:
    """A handler can keep a connection in a `threading.local`."""
    threads: set[int] = set()
    with sink_of(lambda _: threads.add(threading.get_ident()), concurrency=1) as sink:
        give(sink, "ab")
        give(sink, "ab", start=2)
    assert len(threads) == 1


def test_sink_is_sent_to_tasks_with_its_policy_and_decorated_handler() -> None:
    """Spark's pickler includes the handler, its tenacity decorator, and functions of the policy."""
    is_retriable = tenacity.retry_if_exception(lambda error: "again" in str(error))

    @tenacity.retry(retry=is_retriable, stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())
    def handle(_: Message, call: SinkHandlerContext) -> None:
        raise ValueError("again" if call.attempt == 1 else "no more")

    with (
        closing(sent(HandlerSink(handle, order="partition"))) as sink,
        pytest.raises(HandlerError, match="after 2 attempts: ValueError: no more"),
    ):
        give(sink, "a")


def test_contexts_never_show_the_keys_of_the_connection() -> None:
    """The connection of the job may contain a password."""
    secret = {"sasl.password": "secret"}
    shown = repr(replace(context({0: range(1)}), cluster_config=secret)), repr(replace(use(), cluster_config=secret))
    assert ["secret" in one for one in shown] == [False, False]


def test_handler_that_cannot_be_sent_is_named() -> None:
    """The error names the variable of the handler, not a part of the sink."""
    lock = threading.Lock()
    with pytest.raises(ConfigurationError, match=r"the variable 'lock' of sink\._options\.handler\.given is a _thread"):
        pickled(HandlerSink(lambda _: lock.locked()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "keys"}, "order='keys'"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"retry": 3}, "retry=3"),
        ({"retry": tenacity.Retrying(retry=tenacity.retry_always)}, "give the policy a stop"),
        ({"dead_letter": ""}, "the name is empty"),
        ({"dead_letter": "^orders"}, "a pattern cannot be a target"),
        ({"dead_letter": lambda _: None}, r"it cannot be called with \(record, error, attempts\)"),
    ],
)
def test_wrong_option_of_a_handler_sink_is_refused(options: dict[str, object], message: str) -> None:
    """The error is raised on the driver, when the sink is created."""
    with pytest.raises(ConfigurationError, match=message):
        HandlerSink(print, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_wrong_handler_is_refused() -> None:
    """A function that cannot be called with a record raises an error when the sink is created."""
    with pytest.raises(ConfigurationError, match="it must accept"):
        HandlerSink(lambda: None)


def test_use_that_cannot_work_is_refused_before_the_job() -> None:
    """The format must be messages, and the job must not read its own dead letters."""
    sink = HandlerSink(print, dead_letter=TOPIC)
    with pytest.raises(ConfigurationError, match="use batch_format='messages'"):
        sink.check_use(use(BatchFormat.ARROW))
    with pytest.raises(ConfigurationError, match="the job reads this topic"):
        sink.check_use(use())
    assert HandlerSink(print, dead_letter="orders.dlq").check_use(use()) == "failed records go to topic orders.dlq"
    with pytest.raises(ConfigurationError, match="use batch_format='messages'"):
        sink([], context({0: range(1)}, batch_format=BatchFormat.PANDAS))
