"""The three fenced sinks together: the same records, each in its own group's run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
from confluent_kafka import Message
from pyarrow import dataset

from consumer_membership.spark.sinks import KafkaSink, OutRecord, ParquetSink, PostgresSink
from tests.spark.clusters import Ground, SessionProcess, a_run, reported
from tests.spark.hosts.site import Site
from tests.support.kafka import create_topic, produce, read_committed, unique

#: How often each record was written, by its value, which is unique.
Counts = Counter[int]


class FencedSinks:
    """A sink of each kind, and the contents of its output."""

    def __init__(self, site: Site, ground: Ground, folder: Path) -> None:
        self.topic = ground.topic
        self._bootstrap = ground.bootstrap
        self._conninfo = site.conninfo
        self._folder = folder / "parquet"
        self._table = unique("t").replace("-", "_")
        self._out = create_topic(ground.bootstrap, unique("out"), 1)
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self._table} (value int)")
        self.sinks = {
            "postgres": PostgresSink.rows(self._conninfo, self._table, ["value"], _row),
            "parquet": ParquetSink(self._folder),
            "kafka": KafkaSink(ground.config, partial(_copies, self._out)),  # type: ignore[arg-type]  # values of valid types
        }
        self.grounds = {name: ground.another_group() for name in self.sinks}

    def counts(self) -> dict[str, Counts]:
        """How often each record is in each output, by the name of the sink."""
        return {name: read() for name, read in self._readers().items()}

    def has(self, name: str, size: int) -> bool:
        """Return whether the output has this number of records."""
        return self._readers()[name]().total() >= size

    def _readers(self) -> dict[str, Callable[[], Counts]]:
        return {"postgres": self._rows, "parquet": self._files, "kafka": self._records}

    def _rows(self) -> Counts:
        with psycopg.connect(self._conninfo) as connection:
            return Counter(value for (value,) in connection.execute(f"SELECT value FROM {self._table}"))  # noqa: S608

    def _files(self) -> Counts:
        written = dataset.dataset(self._folder, format="parquet") if self._folder.exists() else None
        # The sink creates the folder before its first file; without a file there is no column.
        if written is None or not written.files:
            return Counter()
        return Counter(map(int, written.to_table()["value"].to_pylist()))

    def _records(self) -> Counts:
        return Counter(int(message.value() or b"") for message in read_committed(self._bootstrap, self._out))


def _row(message: Message) -> tuple[int]:
    return (int(message.value() or b""),)


def _copies(topic: str, message: Message) -> list[OutRecord]:
    return [OutRecord(topic=topic, value=message.value())]


@contextmanager
def runs(session: SessionProcess, sinks: FencedSinks) -> Iterator[None]:
    """Start a run with two members for each sink; the runs end with the block."""
    with ExitStack() as stack:
        for name, sink in sinks.sinks.items():
            stack.enter_context(a_run(session, sinks.grounds[name], sink, batch_size=200))
        yield


def is_shared(session: SessionProcess, ground: Ground) -> bool:
    """Return whether both members of a run have partitions."""
    return [len(member.owned) for member in session.ask(reported, ground.group)] == [2, 2]


def produced(ground: Ground, first: int, count: int) -> set[int]:
    """Write records with values from this number on; return the values."""
    values = range(first, first + count)
    produce(ground.bootstrap, ground.topic, [(None, str(value)) for value in values])
    return set(values)
