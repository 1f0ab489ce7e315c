"""A member in its own process that can be stopped while it has buffered records (`-m tests.support.sleeper`).

Its argument is JSON: the configuration, the topic, and whose client it is ("ours", "confluent-kafka"). It consumes in
small batches and prints, as one JSON value per line and in order, the number of records and the time (monotonic clock)
of each batch, and the calls.
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
#: What the application takes for a batch: it lets other threads run, and keeps its buffer full.
_WORK_S = 0.001
AnyConsumer: TypeAlias = "Consumer | confluent_kafka.Consumer"


def say(what: object) -> None:
    """Print one line."""
    os.write(1, (json.dumps(what) + "\n").encode())


def main(config: dict[str, object], topic: str, client: str) -> None:
    """Consume until the parent process ends this one."""
    consumer: AnyConsumer = Consumer(config) if client == "ours" else confluent_kafka.Consumer(config)
    consumer.subscribe(
        [topic],
        on_assign=lambda *_: say("assign"),
        on_revoke=lambda *_: say("revoke"),
        on_lost=lambda *_: say("lost"),
    )
    while True:
        batch = consumer.consume(BATCH, 0.1)
        if batch:
            say([len(batch), time.monotonic()])
            time.sleep(_WORK_S)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
