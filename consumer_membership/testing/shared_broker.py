"""One real broker for all processes of a test session.

The first process that needs the broker starts a keeper (`broker_keeper`) as a separate process. Each process that uses
the broker holds a shared lock on a file. The keeper stops the broker when it acquires that lock exclusively, that is
when all of these processes have ended, normally or by a crash.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from consumer_membership.devbroker import BrokerUnavailableError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

#: The environment variable of `devbroker` with the address of an existing broker.
_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
#: The files of the folder: the locks of the processes that use and start the broker, and the broker's address.
USERS, STARTING, FOUND = "broker-users.lock", "broker-start.lock", "broker.json"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBroker:
    """The broker of a test session.

    Attributes:
        bootstrap_servers: The value of `bootstrap.servers`.
    """

    bootstrap_servers: str

    @contextmanager
    def topic(self, name: str, partitions: int = 1) -> Iterator[str]:
        """Create a topic for a `with` block and return its name; characters that Kafka rejects become `-`.

        Every partition has a leader inside the block, so that producers and consumers can use the topic immediately.

        Raises:
            KafkaException: the broker does not create the topic.
            TimeoutError: a partition has no leader after 30 seconds.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - it takes time to import
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

        legal = re.sub(r"[^A-Za-z0-9._-]", "-", name)
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(legal, partitions)])[legal].result(_TIMEOUT_S)
        try:
            _await_leaders(admin, legal, partitions)
            yield legal
        finally:
            with suppress(KafkaException):  # the test may have deleted it
                admin.delete_topics([legal])[legal].result(_TIMEOUT_S)


@contextmanager
def shared_broker(folder: Path) -> Iterator[SharedBroker]:
    """Use the broker of the processes that share this folder; the first process starts it.

    Raises:
        BrokerUnavailableError: neither Docker nor Java with Maven is available; the message has the reasons.
    """
    servers = os.environ.get(_VARIABLE)
    if servers:
        yield SharedBroker(bootstrap_servers=servers)
        return
    import fcntl  # noqa: PLC0415 - Windows lacks it

    with (folder / USERS).open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / STARTING).open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            found = folder / FOUND
            if not found.exists():
                _start_keeper(folder)
            answer = json.loads(found.read_text())
        if "error" in answer:
            raise BrokerUnavailableError(answer["error"])
        yield SharedBroker(bootstrap_servers=answer["bootstrap_servers"])


def _start_keeper(folder: Path) -> None:
    """Start the keeper, and wait until it has written the address of the broker."""
    command = [sys.executable, "-m", "consumer_membership.testing.broker_keeper", str(folder)]
    keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)  # noqa: S603
    ready: IO[bytes] | None = keeper.stdout
    if ready is not None:
        with ready:
            ready.read()  # the keeper closes it when the broker is ready or its start has failed
    # This process does not wait for its keeper, which outlives it.
    keeper.returncode = 0
    if not (folder / FOUND).exists():
        raise BrokerUnavailableError("the process that starts the broker ended unexpectedly; its output is above")


def _await_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until each partition has a leader: the broker confirms a topic before its metadata contains the topic."""
    from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed  # noqa: PLC0415

    def leaders() -> int:
        found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        return sum(partition.leader >= 0 for partition in found.partitions.values())

    wait = Retrying(
        retry=retry_if_result(lambda count: count < partitions),
        wait=wait_fixed(0.02),
        stop=stop_after_delay(_TIMEOUT_S),
    )
    try:
        wait(leaders)
    except RetryError:
        raise TimeoutError(f"topic {topic!r} has no leader for each partition after {_TIMEOUT_S:g} s") from None
