"""One process of a static member: it consumes until it is killed or ordered to end, and reports its first steps.

The order is `end`. The time `running` is taken before either package is imported. Reports are few, so that their cost
is not part of the measurement.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, job_of, next_order, report, report_partitions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message

_POLL_S = 0.1
_AFTER_FATAL_S = 0.05
"""The pause before the next poll of a consumer that failed permanently: the poll may return at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration, with the instance id.
        topic: The topic to subscribe to.
        hides: Modules that cannot be imported, because users do not have them.
        batch: The largest number of records in a batch; used by `committer` only.
        ledger: The file of handled records; used by `committer` only.
    """

    module: str
    config: dict[str, str]
    topic: str
    hides: list[str] = field(default_factory=list)
    batch: int = 0
    ledger: str = ""


class StaticMember:
    """A consumer of a static member; it reports its steps in their order."""

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
            on_assign=lambda _, partitions: report_partitions("assigned", partitions),
            on_revoke=lambda _, partitions: report_partitions("revoked", partitions),
            on_lost=lambda _, partitions: report_partitions("lost", partitions),
        )
        report("constructing", at=constructing)
        report("constructed", at=constructed)

    def is_record(self, message: Message) -> bool:
        """Return whether this is a record; report the first one of each partition, and each kind of error once."""
        error = message.error()
        if error is not None:
            self.failed(error)
            return False
        partition = message.partition()
        if partition not in self._begun:
            self._begun.add(partition)
            report("first", partition=partition, offset=message.offset(), cpu_s=time.process_time())
        return True

    def failed(self, error: KafkaError) -> None:
        """Report an error that the consumer returned or raised."""
        # confluent-kafka returns fatal errors of the group as _FATAL, for which `fatal()` is false.
        is_fatal = error.fatal() or error.name() == "_FATAL"
        if error.str() not in self._failed:
            self._failed.add(error.str())
            report("error", name=error.name(), message=error.str(), is_fatal=is_fatal)
        if is_fatal:
            time.sleep(_AFTER_FATAL_S)

    def leave(self) -> None:
        """Close the consumer."""
        report("leaving")
        self.consumer.close()
        report("left")


def main() -> None:
    """Consume until the order to end."""
    running = time.monotonic()
    member = StaticMember(job_of(Job))
    report("running", at=running)
    while next_order() != END:
        try:
            message = member.consumer.poll(_POLL_S)
        except member.failure as error:
            member.failed(error.args[0])
        else:
            if message is not None:
                member.is_record(message)
    member.leave()


if __name__ == "__main__":
    main()
