"""A program that calls most methods of a consumer and prints the results: `verbs.py WHOSE PROTOCOL SERVERS TOPIC`.

WHOSE selects the consumer class: `raw` (confluent-kafka's), `ours` (imported from this package) or `installed`
(imported from confluent-kafka, replaced by `install()`). The topic has two partitions with ten records each; the group
has the topic's name.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

CALL_S = 60.0
PARTITIONS, RECORDS = 2, 20


def main(whose: str, protocol: str, servers: str, topic: str) -> None:
    """Run the program and print one line of JSON."""
    package = _package(whose)
    print(json.dumps(_Program(package, protocol, servers, topic).run()))


def _package(whose: str) -> Any:
    if whose == "ours":
        import consumer_membership  # noqa: PLC0415

        return consumer_membership
    import confluent_kafka  # noqa: PLC0415

    if whose == "installed":
        import consumer_membership  # noqa: PLC0415

        consumer_membership.install()
    return confluent_kafka


class _Program:
    """A program with one consumer; each step adds its results to `seen`."""

    def __init__(self, package: Any, protocol: str, servers: str, topic: str) -> None:
        self.package, self.servers, self.topic = package, servers, topic
        self.seen: dict[str, object] = {}
        self.calls: list[object] = []
        self.committed_by_callback: list[object] = []
        config = {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": self._on_commit,
        }
        # confluent-kafka's consumer uses the default: its first releases with the consumer protocol were unfinished.
        self.consumer = package.Consumer(config | ({} if protocol == "raw" else {"group.protocol": protocol}))

    def run(self) -> dict[str, object]:
        """Run all steps in order."""
        import confluent_kafka  # noqa: PLC0415

        self.seen["is a confluent_kafka.Consumer"] = isinstance(self.consumer, confluent_kafka.Consumer)
        self.seen["is a cimpl.Consumer"] = isinstance(self.consumer, confluent_kafka.cimpl.Consumer)
        offered = {name for name, value in vars(confluent_kafka).items() if not isinstance(value, ModuleType)}
        self.seen["names that it lacks"] = sorted(n for n in offered if n[0] != "_" and not hasattr(self.package, n))
        self._read()
        self._offsets()
        self._places()
        self._transaction()
        self._close()
        return self.seen

    def _read(self) -> None:
        self.consumer.subscribe(
            [self.topic],
            on_assign=lambda _, partitions: self._note("assign", partitions),
            on_revoke=lambda _, partitions: self._note("revoke", partitions),
        )
        messages = [self._poll() for _ in range(RECORDS // 2)]
        while len(messages) < RECORDS:
            messages += self.consumer.consume(RECORDS - len(messages), CALL_S)
        self.seen["records"] = sorted(
            [m.topic() == self.topic, m.partition(), m.offset(), m.value().decode(), m.key(), m.headers()]
            for m in messages
        )
        self.seen["kinds"] = sorted({type(m).__name__ for m in messages})
        self.seen["assignment"] = self._plain(self.consumer.assignment())

    def _offsets(self) -> None:
        package, consumer = self.package, self.consumer
        both = [package.TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self.seen["position"] = self._plain(consumer.position(both))
        self.seen["committed before"] = self._plain(consumer.committed(both, CALL_S))
        self.seen["commit"] = self._plain(consumer.commit(asynchronous=False))
        self.seen["committed"] = self._plain(consumer.committed(both, CALL_S))
        consumer.seek(package.TopicPartition(self.topic, 1, 3))
        message = self._poll()
        self.seen["after seek"] = [message.partition(), message.offset(), message.value().decode()]
        self.seen["commit of a message"] = self._plain(consumer.commit(message, asynchronous=False))
        consumer.commit(offsets=[package.TopicPartition(self.topic, 0, 5)])
        asked = [None, [[True, 0, 5, None]]]
        while asked not in self.committed_by_callback:
            consumer.poll(0.1)
        self.seen["on_commit"] = asked
        self.seen["committed then"] = self._plain(consumer.committed(both, CALL_S))
        try:
            consumer.commit(offsets=[package.TopicPartition(self.topic, 0, 5)], message=message)
        except ValueError as refused:
            self.seen["both"] = str(refused)
        try:
            consumer.seek(package.TopicPartition("elsewhere", 1, 3))
        except package.KafkaException as refused:
            self.seen["seek elsewhere"] = refused.args[0].code()

    def _places(self) -> None:
        package, consumer = self.package, self.consumer
        first = package.TopicPartition(self.topic, 0)
        consumer.pause([first])
        consumer.resume([first])
        self.seen["watermarks"] = list(consumer.get_watermark_offsets(first, CALL_S))
        times = consumer.offsets_for_times([package.TopicPartition(self.topic, 0, 0)], CALL_S)
        self.seen["first of all times"] = self._plain(times)
        found = consumer.list_topics(self.topic, CALL_S).topics[self.topic]
        self.seen["list_topics"] = sorted(found.partitions)

    def _transaction(self) -> None:
        package = self.package
        producer = package.Producer({"bootstrap.servers": self.servers, "transactional.id": self.topic})
        producer.init_transactions(CALL_S)
        producer.begin_transaction()
        offsets = [package.TopicPartition(self.topic, 0, 7)]
        producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), CALL_S)
        producer.commit_transaction(CALL_S)
        first = package.TopicPartition(self.topic, 0)
        self.seen["committed by a transaction"] = self._plain(self.consumer.committed([first], CALL_S))

    def _close(self) -> None:
        self.consumer.close()
        self.consumer.close()
        self.seen["callbacks"] = self.calls
        for name, call in (("poll", lambda: self.consumer.poll(0)), ("commit", self.consumer.commit)):
            try:
                call()
            except RuntimeError as refused:
                self.seen[f"{name} after close"] = str(refused)

    def _poll(self) -> Any:
        message = self.consumer.poll(CALL_S)
        if message is None or message.error() is not None:
            raise AssertionError(message and message.error())
        return message

    def _note(self, name: str, partitions: list[Any]) -> None:
        self.calls.append([name, sorted(partition.partition for partition in partitions)])

    def _on_commit(self, error: object, partitions: list[Any]) -> None:
        self.committed_by_callback.append([error, self._plain(partitions)])

    def _plain(self, partitions: list[Any]) -> list[object]:
        return sorted(
            [p.topic == self.topic, p.partition, p.offset, p.error and p.error.code()]
            for p in partitions
            if p.offset != self.package.OFFSET_INVALID or len(partitions) == PARTITIONS
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
