"""A member in its own process that can be suspended while it has buffered records (`-m tests.support.sleeper`).

Its argument is JSON: the configuration, the topic, and the client ("ours" or "confluent-kafka"). It consumes small
batches. It prints one JSON value per line: for each batch the number of records and the time (monotonic clock), and the
name of each rebalance callback, all in order.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TypeAlias

import confluent_kafka

from consumer_membership import Consumer

BATCH = 10
#: The duration of the application's work for a batch, so that other threads run and the buffer stays full.
_WORK_S = 0.001
AnyConsumer: TypeAlias = "Consumer | confluent_kafka.Consumer"


def write_line(value: object) -> None:
    """Print one line."""
    os.write(1, (json.dumps(value) + "\n").encode())


def main(config: dict[str, object], topic: str, client: str) -> None:
    """Consume until the parent process ends this one."""
    consumer: AnyConsumer = Consumer(config) if client == "ours" else confluent_kafka.Consumer(config)
    consumer.subscribe(
        [topic],
        on_assign=lambda *_: write_line("assign"),
        on_revoke=lambda *_: write_line("revoke"),
        on_lost=lambda *_: write_line("lost"),
    )
    while True:
        batch = consumer.consume(BATCH, 0.1)
        if batch:
            write_line([len(batch), time.monotonic()])
            time.sleep(_WORK_S)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
