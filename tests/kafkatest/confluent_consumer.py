"""A verifiable consumer with confluent-kafka's consumer: this package's program with the other consumer class."""

from __future__ import annotations

import sys
from typing import cast

from confluent_kafka import Consumer

from consumer_membership.kafkatest.arguments import parse
from consumer_membership.kafkatest.verifiable_consumer import ConsumerApi, run_until_signal


def _consumer(config: dict[str, str | int | bool]) -> ConsumerApi:
    return cast("ConsumerApi", Consumer(config))


if __name__ == "__main__":
    sys.exit(run_until_signal(_consumer, parse(sys.argv[1:])))
