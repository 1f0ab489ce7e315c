"""The Parquet sink in a bucket of a real object store: conditional writes enforce the same rules as in a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import obstore
import pytest
from pyarrow import dataset, parquet
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark import drain
from consumer_membership.spark.sinks import ParquetSink
from tests.spark.clusters import Ground
from tests.spark.sinks.builders import GROUP, batch, context, rivals, sent
from tests.spark.sinks.zombie import zombie
from tests.support.kafka import unique
from tests.support.object_store import BUCKET, ObjectStore, object_store

#: The first run on a machine builds the server.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

_WRONG = "wrong-and-secret"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """A server with a bucket."""
    with object_store() as store:
        yield store


class Place:
    """A prefix in the bucket for one test."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.prefix = unique("place")
        self.url = f"s3://{BUCKET}/{self.prefix}"

    def sink(self, **options: object) -> ParquetSink:
        """A new sink."""
        return ParquetSink(self.url, storage_options={**self.store.options, **options})

    def names(self) -> list[str]:
        """The objects, without hidden ones."""
        found = [one["path"] for page in obstore.list(self.store.at(self.prefix)) for one in page]
        return sorted(name for name in found if not name.startswith("."))

    def read(self, name: str) -> BytesIO:
        """The contents of an object."""
        return BytesIO(bytes(obstore.get(self.store.at(self.prefix), name).bytes()))

    def offsets(self) -> list[tuple[int, int]]:
        """The offsets that a reader without knowledge of the sink finds, by partition and offset."""
        options = self.store.options
        files = S3FileSystem(
            access_key=options["access_key_id"],
            secret_key=options["secret_access_key"],
            endpoint_override=options["endpoint"],
            region=options["region"],
        )
        data = dataset.dataset(f"{BUCKET}/{self.prefix}", filesystem=files, format="parquet")
        found = data.to_table(columns=["partition", "offset"])
        return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


@pytest.fixture
def place(store: ObjectStore) -> Place:
    """A new prefix."""
    return Place(store)


def give(sink: ParquetSink, parts: dict[int, range], **words: object) -> None:
    """Call a sink with these offsets."""
    sink(batch(parts), context(parts, **words))  # type: ignore[arg-type]  # untyped options


def of(partition: int, *numbers: int) -> list[tuple[int, int]]:
    """These offsets in the form that `Place.offsets` returns."""
    return [(partition, number) for number in numbers]


def test_parquet_objects_form_a_chain_with_their_fences(place: Place) -> None:
    """Objects form the same chain as files of a folder."""
    sink = place.sink()
    give(sink, {0: range(7, 10), 3: range(2)}, epoch=4, attempt=6)
    give(sink, {0: range(12, 15)}, epoch=4, attempt=6)
    assert place.names() == [
        "part-orders-0-00000000000000000000.parquet",
        "part-orders-0-00000000000000000010.parquet",
        "part-orders-3-00000000000000000000.parquet",
    ]
    found = parquet.read_metadata(place.read(place.names()[1])).metadata
    assert (found[b"consumer_membership.group"], found[b"consumer_membership.epoch"]) == (GROUP.encode(), b"4")
    assert place.offsets() == of(0, 7, 8, 9, 12, 13, 14) + of(3, 0, 1)


def test_records_written_by_an_earlier_attempt_are_skipped(place: Place) -> None:
    """The earlier attempt died before Kafka's commit, or between two partitions."""
    give(place.sink(), {0: range(6)}, attempt=1)
    sink = place.sink()
    give(sink, {0: range(4)}, attempt=2)
    give(sink, {0: range(4, 9), 1: range(2)}, attempt=2)
    assert place.offsets() == of(0, *range(9)) + of(1, 0, 1)


def test_chain_longer_than_a_listing_page_is_continued_at_its_end(place: Place) -> None:
    """The end is found beyond one page of a listing, beside topics with the same prefix."""
    elsewhere = Place(place.store)
    give(elsewhere.sink(), {0: range(1199)})
    written = elsewhere.read(elsewhere.names()[0]).read()
    files = place.store.at(place.prefix)
    for number in range(1199):
        obstore.put(files, f"part-orders-0-{number:020}.parquet", written)
    for topic in ("orders-0", "orders-00", "order", "ordersx"):
        obstore.put(files, f"part-{topic}-0-{0:020}.parquet", written)
    obstore.put(files, "part-orders-0-of-somebody/part.parquet", written)
    give(place.sink(), {0: range(1100, 1201)}, attempt=2)
    (last,) = (name for name in place.names() if name == f"part-orders-0-{1199:020}.parquet")
    assert parquet.read_table(place.read(last))["offset"].to_pylist() == [1199, 1200]


def test_replaced_writer_publishes_nothing(place: Place) -> None:
    """All partitions are checked before any object is published."""
    old, new = place.sink(), place.sink()
    give(old, {0: range(4), 1: range(2)}, epoch=5)
    give(new, {0: range(4, 6)}, epoch=6)
    with pytest.raises(FencedError, match=r"epoch 6, attempt 1\) wrote last, up to offset 6"):
        give(old, {1: range(2, 4), 0: range(4, 9)}, epoch=5)
    assert place.offsets() == of(0, *range(6)) + of(1, 0, 1)


def test_concurrent_attempts_write_each_record_once(place: Place) -> None:
    """The attempts with higher ranks write all records; lower ranks are fenced or find the records written."""

    def attempt(number: int, batches: Iterable[range]) -> None:
        sink = place.sink()
        for numbers in batches:
            give(sink, {0: numbers}, attempt=number)

    assert (3, "done") in rivals(attempt)
    assert place.offsets() == of(0, *range(60))


@pytest.mark.parametrize("point", ["before", "put"])
def test_stopped_attempt_publishes_nothing_after_its_replacement(place: Place, point: str) -> None:
    """The attempt is stopped before it writes, or before it publishes its object."""
    at = json.dumps({"folder": place.url, "storage_options": dict(place.store.options)})
    with zombie("bucket", point, at, "orders", 5, 1, 0, 4) as stopped:
        give(place.sink(), {0: range(6)}, attempt=2)
        text = stopped.go_on()
    assert text.startswith("FencedError")
    assert "'pipe-0' (epoch 5, attempt 1) was replaced: 'pipe-0' (epoch 5, attempt 2) wrote last" in text
    assert place.offsets() == of(0, *range(6))


def test_another_group_is_refused_until_forget_releases_the_prefix(place: Place) -> None:
    """After `forget`, the objects remain, and so do their offsets."""
    give(place.sink(), {0: range(4), 1: range(2)}, epoch=9)
    sink = place.sink()
    with pytest.raises(ConfigurationError, match="has records of group 'orders-group'"):
        give(sink, {0: range(4)}, group="new", epoch=1)
    assert (sink.forget("new"), sink.forget(GROUP)) == (0, 2)
    give(sink, {0: range(6)}, group="new", epoch=1)
    assert place.offsets() == of(0, *range(6)) + of(1, 0, 1)


def test_foreign_object_in_the_chain_is_named(place: Place) -> None:
    """The sink raises, because the end of a chain with a foreign object is unknown."""
    name = "part-orders-0-00000000000000000009.parquet"
    obstore.put(place.store.at(place.prefix), name, b"no Parquet")
    with pytest.raises(SinkError, match=f"{place.prefix}/{name} cannot be read"):
        give(place.sink(), {0: range(3)})


def test_object_sink_is_pickled_as_its_configuration(place: Place) -> None:
    """A sink can be pickled after use, and its repr hides the keys."""
    sink = place.sink()
    give(sink, {0: range(3)})
    copy = sent(sink)
    give(copy, {0: range(3, 5)})
    assert place.offsets() == of(0, *range(5))
    assert repr(copy) == f"ParquetSink('{place.url}')"


def test_wrong_access_key_raises_the_error_of_the_store(place: Place) -> None:
    """The error has the store's reason and the object's name, but not the key."""
    with pytest.raises(OSError, match=place.prefix) as caught:
        give(place.sink(secret_access_key=_WRONG, retry_config={"max_retries": 0}), {0: range(3)})
    assert _WRONG not in str(caught.value)


@pytest.mark.parametrize(
    ("folder", "options", "text"),
    [
        ("s3://records/x", {"nonsense": 1}, "'nonsense' is not valid"),
        ("s3://records--use1-az5--x-s3/x", {}, "must be a general purpose bucket"),
        ("/somewhere", {"region": "there"}, "are only for a folder that begins with s3://"),
    ],
)
def test_object_sink_refuses_impossible_options(folder: str, options: dict[str, Any], text: str) -> None:
    """The constructor raises on the driver."""
    with pytest.raises(ConfigurationError, match=text):
        ParquetSink(folder, storage_options=options)


class _Overwriting(BaseHTTPRequestHandler):
    """A store that accepts every condition and ignores it."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Report success."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("etag", '"1"')
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_store_that_ignores_conditional_writes_is_refused() -> None:
    """The sink raises before it writes anything to a store that overwrites objects."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Overwriting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = {"endpoint": f"http://127.0.0.1:{server.server_port}", "access_key_id": "a", "secret_access_key": "b"}
        with pytest.raises(ConfigurationError, match="honors the condition If-None-Match"):
            give(ParquetSink("s3://records/x", storage_options=options), {0: range(3)})
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.integration
def test_drain_writes_each_record_once_to_objects(kafka: Broker, spark: SparkSession, place: Place) -> None:
    """Two tasks with their own connections write each record once."""
    ground = Ground(kafka, 2, 400)
    drain(spark, ground.config, [ground.topic], ground.group, place.sink(), 2)
    assert place.offsets() == of(0, *range(200)) + of(1, *range(200))
    assert ground.committed() == [200, 200]
