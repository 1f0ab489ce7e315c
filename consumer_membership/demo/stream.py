"""The background of the demo: numbered, keyed records at a steady rate, by plain confluent-kafka.

Idempotent, so that the broker holds each record once and a record seen twice was seen twice.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from consumer_membership.demo.records import key_of, partition_of, value_of

#: How often a portion of records is produced.
_PORTION_S = 0.02
_FLUSH_S = 20.0


class Stream:
    """Produces from `start` to `stop`, in a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int, rate: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-stream", daemon=True)
        self._refusal: KafkaError | KafkaException | None = None
        self._acknowledged = 0
        #: How many records were handed to the producer: the numbers 0 to `produced` - 1.
        self.produced = 0

    @property
    def unacknowledged(self) -> int:
        """How many of them the broker has not acknowledged."""
        return self.produced - self._acknowledged

    @property
    def refusal(self) -> str | None:
        """Why the stream broke off or a record was not taken, None if nothing of the kind happened."""
        return None if self._refusal is None else str(self._refusal)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Produce nothing more, and wait until the broker has acknowledged all or has had ample time for it."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        """Stop at once; what the broker did not acknowledge yet is dropped. May be repeated."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(_PORTION_S):
            due = int((time.monotonic() - began) * self._rate)
            try:
                while self.produced < due and not self._stopping.is_set():
                    self._produce(self.produced)
                self._producer.poll(0)
            except KafkaException as refused:
                self._refusal = refused
                return

    def _produce(self, number: int) -> None:
        partitions = self._partitions
        try:
            self._producer.produce(
                self._topic,
                value_of(number),
                key_of(number, partitions),
                partition_of(number, partitions),
                on_delivery=self._delivered,
            )
        except BufferError:
            # The queue is full: acknowledgements that are waiting make room, and the number's turn comes again.
            self._producer.poll(_PORTION_S)
        else:
            self.produced += 1

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refusal = error
        else:
            self._acknowledged += 1
