"""A continuous load on a topic during a test."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.integration.partners import PARTNERS_S

PARTITIONS = 12
#: The time between two records, which is long enough that the writer does not load the machine.
_PACE_S = 0.005


class Writer:
    """A thread that writes one record after the other, each to the next partition, until it is stopped."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._refused: list[KafkaError] = []
        self._written: Counter[int] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PARTNERS_S)

    def stop(self) -> Counter[int]:
        """Stop, check that all records were acknowledged, and return their number in each partition."""
        self.__exit__()
        assert not self._thread.is_alive()
        assert self._refused == []
        return self._written

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_PACE_S):
            self._producer.produce(
                self._topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._acknowledged
            )
            self._producer.poll(0)
            number += 1
        self._producer.flush(PARTNERS_S)

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self._written[message.partition() or 0] += 1
