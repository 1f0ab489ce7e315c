"""Processors on a real broker: run on a thread, with a handler that a test controls."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

from confluent_kafka import Message, TopicPartition

from consumer_membership import Consumer
from consumer_membership.processing import HandlerContext, Processor
from consumer_membership.processing.settings import ProcessorOptions
from tests.support.waiting import wait_until

#: A deadline for the end of a processor, so that a failing test does not hang.
ENDS_S = 60.0


class Handled:
    """A handler that records each call, and blocks at the records that a test names until their release."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        #: The values of the records in the order in which their handlers began, and of those that ended.
        self.began: list[str] = []
        self.ended: list[str] = []
        self.contexts: dict[str, HandlerContext] = {}
        self._held: set[str] = set()
        self._errors: dict[str, Callable[[], Exception | None]] = {}

    def hold(self, *values: str) -> None:
        """Make the handler of these values wait for `release`."""
        self._held.update(values)

    def release(self) -> None:
        """Let all handlers continue."""
        with self._change:
            self._held.clear()
            self._change.notify_all()

    def fail(self, value: str, error: Callable[[], Exception | None]) -> None:
        """Make the handler of this value raise what `error` returns."""
        self._errors[value] = error

    def __call__(self, record: Message, context: HandlerContext) -> None:
        """Handle a record."""
        value = value_of(record)
        with self._change:
            self.began.append(value)
            self.contexts[value] = context
            self._change.notify_all()
            self._change.wait_for(lambda: value not in self._held, ENDS_S)
            error = self._errors.get(value, lambda: None)()
            if error is not None:
                raise error
            self.ended.append(value)
            self._change.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition of `began` and `ended` is true."""
        wait_until(condition, what, changed=self._change)

    def wait_for_end(self, *values: str) -> None:
        """Wait until the handlers of these values have ended."""
        self.wait_for(lambda: set(values) <= set(self.ended), f"the end of {values}")

    def wait_for_begin(self, *values: str) -> None:
        """Wait until the handlers of these values have begun."""
        self.wait_for(lambda: set(values) <= set(self.began), f"the begin of {values}")


def value_of(record: Message) -> str:
    """Return the value of a record as text."""
    value = record.value()
    assert isinstance(value, bytes)
    return value.decode()


class Run:
    """A processor that runs on a thread; `error` is what its run raised."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        handler: object,
        config: dict[str, object] | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        self.processor = Processor(config_of(bootstrap, group) | (config or {}), [topic], handler, **options)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.processor.run()
        except BaseException as raised:  # noqa: BLE001 - the test reads it
            self.error = raised

    def join(self) -> BaseException | None:
        """Wait for the end of the run, and return what it raised."""
        self._thread.join(ENDS_S)
        assert not self._thread.is_alive(), "the processor did not end"
        return self.error

    def stop(self) -> None:
        """Stop the processor, and raise what its run raised."""
        self.processor.stop()
        error = self.join()
        if error is not None:
            raise error


def config_of(bootstrap: str, group: str) -> dict[str, object]:
    """Return the configuration of a processor that starts at the beginning."""
    return {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}


@contextmanager
def running(run: Run) -> Iterator[Run]:
    """Stop a processor at the end of the block, and raise what its run raised."""
    try:
        yield run
    except BaseException:
        run.processor.stop()
        raise
    run.stop()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, tuple[int, str]]:
    """Return the committed offset and its metadata of each partition."""
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group}) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], ENDS_S)
    return {one.partition: (one.offset, one.metadata or "") for one in found}


def by_key(records: list[Message]) -> dict[object, list[int]]:
    """Return the offsets of each partition and key in the order of the records."""
    found: defaultdict[object, list[int]] = defaultdict(list)
    for record in records:
        found[record.partition(), record.key()].append(record.offset() or 0)
    return found
