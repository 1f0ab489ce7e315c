"""Run one partner until SIGTERM: `python -m tests.support.partners LIFE`."""

from __future__ import annotations

import importlib
import logging
import sys

from tests.support.partners.life import Client, Lifetime
from tests.support.partners.stop import die_with_parent

#: A process imports only its client's module, so that it starts fast.
_MODULES = {
    Client.OURS: "confluent",
    Client.CONFLUENT: "confluent",
    Client.KAFKA_PYTHON: "kafka_python",
    Client.AIOKAFKA: "aio_kafka",
    Client.JAVA: "java",
}


def main() -> None:
    """Run the partner that the command line describes."""
    live(Lifetime.from_json(sys.argv[1]))


def live(life: Lifetime) -> None:
    """Run this partner until SIGTERM or until the parent process ends."""
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    importlib.import_module(f"tests.support.partners.{_MODULES[life.client]}").live(life)


if __name__ == "__main__":
    main()
