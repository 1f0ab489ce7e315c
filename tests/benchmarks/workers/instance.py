"""One life of a static member: it consumes until it is killed or ordered to end, and reports its first steps.

The order is `end`. Neither package is imported before the first moment is taken, and the reports are few, so that
saying it takes no part in what is measured.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, job_of, next_order, say

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

_POLL_S = 0.1
_AFTER_FATAL_S = 0.05
"""The pause before the next poll of a consumer that failed permanently: the poll may return at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose consumer to run and how.

    Attributes:
        module: Where the `Consumer` is.
        config: Its configuration, with the instance id.
        topic: What it subscribes to.
        hides: Modules that are kept from being imported, because users do not have them.
        batch: How many records one batch holds at most; used by `committer` only.
        ledger: The file for what was handled; used by `committer` only.
    """

    module: str
    config: dict[str, str]
    topic: str
    hides: list[str] = field(default_factory=list)
    batch: int = 0
    ledger: str = ""


class Lifetime:
    """A consumer from its import on; the words that it says are the steps in their order."""

    def __init__(self, job: Job) -> None:
        self._begun: set[int] = set()
        self._failed: set[str] = set()
        for name in job.hides:
            sys.modules[name] = None
        package = import_module(job.module)
        self.failure: type[KafkaException] = package.KafkaException
        constructing = time.monotonic()
        self.consumer = package.Consumer(job.config)
        constructed = time.monotonic()
        self.consumer.subscribe(
            [job.topic],
            on_assign=lambda _, partitions: _say("assigned", partitions),
            on_revoke=lambda _, partitions: _say("revoked", partitions),
            on_lost=lambda _, partitions: _say("lost", partitions),
        )
        say("constructing", at=constructing)
        say("constructed", at=constructed)

    def is_record(self, message: Message) -> bool:
        """Return whether this is a record; report the first one of each partition, and each kind of error once."""
        error = message.error()
        if error is not None:
            self.failed(error)
            return False
        partition = message.partition()
        if partition not in self._begun:
            self._begun.add(partition)
            say("first", partition=partition, offset=message.offset(), cpu_s=time.process_time())
        return True

    def failed(self, error: KafkaError) -> None:
        """Tell an error that the consumer gave or raised."""
        # Raw gives a fatal error of the group as _FATAL, and does not call that one fatal.
        is_fatal = error.fatal() or error.name() == "_FATAL"
        if error.str() not in self._failed:
            self._failed.add(error.str())
            say("error", name=error.name(), words=error.str(), is_fatal=is_fatal)
        if is_fatal:
            time.sleep(_AFTER_FATAL_S)

    def leave(self) -> None:
        """Close the consumer."""
        say("leaving")
        self.consumer.close()
        say("left")


def _say(word: str, partitions: list[TopicPartition]) -> None:
    say(word, partitions=[partition.partition for partition in partitions])


def main() -> None:
    """Live."""
    running = time.monotonic()
    life = Lifetime(job_of(Job))
    say("running", at=running)
    while next_order() != END:
        try:
            message = life.consumer.poll(_POLL_S)
        except life.failure as error:
            life.failed(error.args[0])
        else:
            if message is not None:
                life.is_record(message)
    life.leave()


if __name__ == "__main__":
    main()
