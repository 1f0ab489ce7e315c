"""The destinations of the fenced sinks in the Spark figures, and the records that they contain afterwards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer as Reader
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.spark_run import KAFKA, PARQUET
from tests.support.kafka import create_topic, unique

_READ_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The destination of a sink, and how to read its records' numbers back."""

    place: str
    conninfo: str
    numbers: Callable[[], list[int]]


@contextmanager
def store_of(sink: str, bootstrap: str, partitions: int) -> Iterator[Store]:
    """Create a store: a folder, a table, or a topic with this number of partitions.

    Raises:
        WorkerFailedError: The store cannot be created.
    """
    if sink == PARQUET:
        with tempfile.TemporaryDirectory(prefix="bench-parquet-") as folder:
            yield Store(place=folder, conninfo="", numbers=lambda: _numbers_in_folder(folder))
        return
    if sink == KAFKA:
        topic = create_topic(bootstrap, unique("bench-out"), partitions)
        yield Store(place=topic, conninfo="", numbers=lambda: _numbers_in_topic(bootstrap, topic, partitions))
        return
    from tests.support.postgres import postgres  # noqa: PLC0415 - needs an extra

    with ExitStack() as stack:
        try:
            conninfo = stack.enter_context(postgres())
        except RuntimeError as missing:
            raise WorkerFailedError(str(missing)) from missing
        yield _table(conninfo)


def _numbers_in_folder(folder: str) -> list[int]:
    from pyarrow import dataset  # noqa: PLC0415 - an extra

    values = dataset.dataset(folder, format="parquet").to_table(columns=["value"])["value"].to_pylist()
    return [_number(value) for value in values]


def _numbers_in_topic(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Return the numbers of committed records, read by confluent-kafka without those of open transactions."""
    reader = Reader(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("bench-reader"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    numbers: list[int] = []
    unread = set(range(partitions))
    give_up_at = time.monotonic() + _READ_S
    try:
        reader.assign([TopicPartition(topic, partition, 0) for partition in unread])
        while unread:
            if time.monotonic() > give_up_at:
                raise WorkerFailedError(f"{topic}: partitions {sorted(unread)} were not read within {_READ_S:.0f} s")
            for message in reader.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    numbers.append(_number(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise WorkerFailedError(f"{topic} cannot be read: {error}") from KafkaException(error)
    finally:
        reader.close()
    return numbers


def _table(conninfo: str) -> Store:
    """Create a table without a key, because a key would hide duplicates."""
    import psycopg  # noqa: PLC0415 - an extra

    name = unique("numbers").replace("-", "_")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (number bigint)")

    def numbers() -> list[int]:
        with psycopg.connect(conninfo) as connection:
            return [number for (number,) in connection.execute(f"SELECT number FROM {name}").fetchall()]  # noqa: S608

    return Store(place=name, conninfo=conninfo, numbers=numbers)


def _number(value: bytes | None) -> int:
    number: int = NUMBER_AND_TIME.unpack_from(value or b"")[0]
    return number
