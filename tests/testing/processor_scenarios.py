"""Scenarios of a `Processor`, with equal results on a `FakeCluster` with virtual time and on a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from confluent_kafka import Message
from tenacity import Retrying, stop_after_attempt, wait_fixed

from consumer_membership.processing import HandlerContext, OutputRecord
from consumer_membership.types import OffsetAndMetadata
from tests.support.waiting import wait_until
from tests.testing.group_admin_scenarios import SCENARIOS
from tests.testing.scenarios import Ground, scenario

__all__ = ["SCENARIOS"]


def settle(ground: Ground, is_over: Callable[[], bool]) -> None:
    """Let the processors work until the condition holds."""
    wait_until(is_over, "the processors' work", between=lambda: ground.cluster.advance(0.1))


def committed(ground: Ground) -> list[int]:
    """Return the group's committed offsets in the order of the partitions."""
    found = ground.group_admin().committed(ground.group)
    return [at.offset for _, at in sorted(found.items()) if isinstance(at, OffsetAndMetadata)]


def text_of(message: Message) -> str:
    """Return the value of a record as text."""
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


@scenario(2)
def processor_handles_each_record_and_commits(ground: Ground) -> None:
    handled: list[str] = []
    ground.produce("a", "b", partition=0)
    ground.produce("c", partition=1)
    ground.processor(lambda message: handled.append(text_of(message)))
    settle(ground, lambda: committed(ground) == [2, 1])
    assert sorted(handled) == ["a", "b", "c"]


@scenario()
def processor_tries_a_failed_record_again(ground: Ground) -> None:
    attempts: list[int] = []

    def handle(_: Message, context: HandlerContext) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise ConnectionError

    ground.produce("a")
    ground.processor(handle, retry=Retrying(wait=wait_fixed(0.1), stop=stop_after_attempt(5)))
    settle(ground, lambda: committed(ground) == [1])
    assert attempts == [1, 2, 3]


@scenario()
def processor_keeps_the_order_of_a_key_during_retries(ground: Ground) -> None:
    handled: list[str] = []

    def handle(message: Message, context: HandlerContext) -> None:
        if text_of(message) == "1" and context.attempt == 1:
            raise ConnectionError
        handled.append(text_of(message))

    ground.produce("1", "2", key="k")
    ground.produce("3", key="other")
    ground.processor(handle, retry=Retrying(wait=wait_fixed(0.5), stop=stop_after_attempt(2)), concurrency=1)
    settle(ground, lambda: committed(ground) == [3])
    assert handled == ["3", "1", "2"]


@scenario()
def processor_runs_coroutines_at_the_same_time(ground: Ground) -> None:
    running, all_run = set[str](), asyncio.Event()

    async def handle(message: Message) -> None:
        running.add(text_of(message))
        if len(running) == 3:
            all_run.set()
        await all_run.wait()

    ground.produce("a", "b", "c")
    ground.processor(handle, order="none", concurrency=3)
    settle(ground, lambda: committed(ground) == [3])
    assert running == {"a", "b", "c"}


@scenario()
def processor_writes_outputs_in_a_transaction(ground: Ground) -> None:
    target = f"{ground.topic}-out"
    ground.cluster.create_topic(target, 1)
    ground.produce("a", "b")
    ground.processor(lambda message: OutputRecord(target, message.value()), transactional=True, order="partition")
    settle(ground, lambda: committed(ground) == [2])
    consumer = ground.consumer(group_id=f"{ground.group}-reader")
    consumer.subscribe([target])
    written: list[Message] = []
    wait_until(lambda: len(written) == 2, "the outputs", between=lambda: written.extend(consumer.consume(2, 0.1)))
    assert [text_of(message) for message in written] == ["a", "b"]


@scenario(2)
def second_processor_gets_half_of_the_partitions(ground: Ground) -> None:
    handled: list[tuple[str, int | None]] = []

    def handler_of(name: str) -> Callable[[Message], None]:
        return lambda message: handled.append((name, message.partition()))

    first = ground.processor(handler_of("first"))
    settle(ground, lambda: len(first.progress().partitions) == 2)
    second = ground.processor(handler_of("second"))
    settle(ground, lambda: len(first.progress().partitions) == len(second.progress().partitions) == 1)
    ground.produce("a", partition=0)
    ground.produce("b", partition=1)
    settle(ground, lambda: committed(ground) == [1, 1])
    assert {name for name, _ in handled} == {"first", "second"}
    assert {partition for _, partition in handled} == {0, 1}


@scenario()
def processor_that_is_closed_finishes_its_running_handler(ground: Ground) -> None:
    began, handled = threading.Event(), list[str]()

    def handle(message: Message, context: HandlerContext) -> None:
        began.set()
        wait_until(lambda: context.is_ending, "the end", between=lambda: ground.cluster.advance(0.05))
        handled.append(text_of(message))

    ground.produce("a", "b")
    processor = ground.processor(handle, order="partition")
    settle(ground, began.is_set)
    processor.close()
    assert (handled, committed(ground)) == (["a"], [1])
