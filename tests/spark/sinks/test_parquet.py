"""The Parquet sink: each record is in one file, even if an attempt dies, pauses or is late."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message
from pyarrow import dataset, parquet
from pyspark.sql import SparkSession

from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark import BatchFormat
from consumer_membership.spark.batches import record_batch, schema, to_format
from consumer_membership.spark.sinks import ParquetSink
from consumer_membership.spark.sinks import parquet as parquet_sink
from consumer_membership.spark.sinks.files import FolderDraft
from tests.spark.sinks.builders import GROUP, TOPIC, batch, context, rivals, sent, use
from tests.spark.sinks.zombie import zombie


def give(sink: ParquetSink, parts: dict[int, range], **words: object) -> None:
    """Call a sink with these offsets."""
    sink(batch(parts), context(parts, **words))  # type: ignore[arg-type]  # untyped options


def offsets(folder: Path) -> list[tuple[int, int]]:
    """The offsets that a reader of the folder finds, by partition and offset."""
    found = dataset.dataset(folder, format="parquet").to_table(columns=["partition", "offset"])
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def of(partition: int, *numbers: int) -> list[tuple[int, int]]:
    """These offsets in the form that `offsets` returns."""
    return [(partition, number) for number in numbers]


def names(folder: Path, *, are_hidden: bool = False) -> list[str]:
    """The files of the folder."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".") is are_hidden)


# ---- files ----


def test_parquet_files_form_a_chain_with_their_fences(tmp_path: Path) -> None:
    """Each file begins where the previous one ended; the first one is named 0, whatever its first record."""
    sink = ParquetSink(tmp_path / "new" / "folder")
    give(sink, {0: range(7, 10), 3: range(2)}, epoch=4, attempt=6)
    give(sink, {0: range(12, 15)}, epoch=4, attempt=6)
    folder = tmp_path / "new" / "folder"
    assert names(folder) == [
        "part-orders-0-00000000000000000000.parquet",
        "part-orders-0-00000000000000000010.parquet",
        "part-orders-3-00000000000000000000.parquet",
    ]
    assert names(folder, are_hidden=True) == []
    found = parquet.read_metadata(folder / "part-orders-0-00000000000000000010.parquet").metadata
    ours = {k.decode(): v.decode() for k, v in found.items() if k.startswith(b"consumer_membership.")}
    assert ours == {
        "consumer_membership.group": GROUP,
        "consumer_membership.first": "12",
        "consumer_membership.next_offset": "15",
        "consumer_membership.records": "3",
        "consumer_membership.epoch": "4",
        "consumer_membership.attempt": "6",
        "consumer_membership.writer": "pipe-0",
    }


@pytest.mark.parametrize("batch_format", list(BatchFormat))
def test_every_format_makes_the_same_files(tmp_path: Path, batch_format: BatchFormat) -> None:
    """Each batch format writes the columns of Arrow batches, with nulls, headers and timestamps."""
    parts = {0: range(5), 1: range(3, 6)}
    ParquetSink(tmp_path)(to_format(batch(parts), batch_format), context(parts, batch_format=batch_format))
    found = dataset.dataset(tmp_path, format="parquet").to_table().sort_by([("partition", "ascending")])
    assert found.schema.remove_metadata() == schema()
    assert found.to_pylist() == record_batch(batch(parts)).to_pylist()


def test_spark_reads_the_folder_as_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """The table omits hidden drafts of dead attempts, but includes a topic whose name begins with an underscore."""
    sink = ParquetSink(tmp_path)
    sink(batch({0: range(4)}, "_schemas"), context({0: range(4)}, topic="_schemas"))
    give(sink, {0: range(5), 1: range(2)})
    (tmp_path / ".part-orders-0-00000000000000000005.parquet.5.1").write_bytes(b"half")
    read = spark.read.parquet(str(tmp_path))
    assert read.columns == schema().names
    counted = {
        (row["topic"], row["partition"]): row["count"] for row in read.groupBy("topic", "partition").count().collect()
    }
    assert counted == {("_schemas", 0): 4, ("orders", 0): 5, ("orders", 1): 2}
    (first,) = read.where("topic = 'orders' and partition = 0 and offset = 1").collect()
    assert (bytes(first["value"]), [tuple(h) for h in first["headers"]]) == (b"0:1", [("h", b"1"), ("h", b"2")])


def test_topics_with_a_common_prefix_are_kept_apart(tmp_path: Path) -> None:
    """Partition 1 of topic `a` and topic `a-1` have separate chains."""
    sink = ParquetSink(tmp_path)
    for topic in ("a", "a-1", "a.1"):
        for partition in (0, 1):
            parts = {partition: range(2)}
            sink(batch(parts, topic), context(parts, topic=topic))
    found = dataset.dataset(tmp_path, format="parquet").to_table()
    assert (
        found.group_by(["topic", "partition"]).aggregate([("offset", "count")])["offset_count"].to_pylist() == [2] * 6
    )


# ---- the rule ----


def test_records_written_by_an_earlier_attempt_are_skipped(tmp_path: Path) -> None:
    """The earlier attempt died between the sink's commit and Kafka's; the next one gets the same records and more."""
    give(ParquetSink(tmp_path), {0: range(6)}, attempt=1)
    sink = ParquetSink(tmp_path)
    give(sink, {0: range(4)}, attempt=2)
    give(sink, {0: range(4, 9), 1: range(2)}, attempt=2)
    assert offsets(tmp_path) == of(0, *range(9)) + of(1, 0, 1)


def test_file_missing_after_a_dead_attempt_is_written_by_the_next(tmp_path: Path) -> None:
    """Each partition is a unit: the next attempt writes only the missing file."""
    give(ParquetSink(tmp_path), {0: range(4)}, attempt=1)
    give(ParquetSink(tmp_path), {0: range(4), 1: range(3)}, attempt=2)
    assert offsets(tmp_path) == of(0, *range(4)) + of(1, *range(3))


def test_replaced_writer_publishes_nothing(tmp_path: Path) -> None:
    """All partitions are checked before any file is published."""
    old, new = ParquetSink(tmp_path), ParquetSink(tmp_path)
    give(old, {0: range(4), 1: range(2)}, epoch=5)
    give(new, {0: range(4, 6)}, epoch=6)
    with pytest.raises(FencedError, match=r"epoch 6, attempt 1\) wrote last, up to offset 6") as caught:
        give(old, {1: range(2, 4), 0: range(4, 9)}, epoch=5)
    assert f"call forget({GROUP!r})" in str(caught.value)
    assert offsets(tmp_path) == of(0, *range(6)) + of(1, 0, 1)
    assert names(tmp_path, are_hidden=True) == []


def test_owner_continues_after_the_last_file_of_a_slow_predecessor(tmp_path: Path) -> None:
    """Records that the predecessor published last are skipped, and the remaining records follow."""
    new, old = ParquetSink(tmp_path), ParquetSink(tmp_path)
    give(new, {0: range(4)}, epoch=5)
    give(old, {0: range(4, 7)}, epoch=5)
    give(new, {0: range(4, 9)}, epoch=6)
    assert offsets(tmp_path) == of(0, *range(9))


def test_concurrent_attempts_write_each_record_once(tmp_path: Path) -> None:
    """The attempts with higher ranks write all records; lower ranks are fenced or find the records written."""

    def attempt(number: int, batches: Iterable[range]) -> None:
        sink = ParquetSink(tmp_path)
        for numbers in batches:
            give(sink, {0: numbers}, attempt=number)

    assert (3, "done") in rivals(attempt)
    assert offsets(tmp_path) == of(0, *range(60))
    assert names(tmp_path, are_hidden=True) == []


def test_drafts_of_lower_ranks_are_removed_by_the_next_attempt(tmp_path: Path) -> None:
    """Only drafts of the same partition with a lower rank are removed; a draft of a higher rank is in use."""
    stem = ".part-orders-0-00000000000000000000.parquet"
    kept = [f"{stem}.5.3", f"{stem}.6.0", ".part-orders-1-00000000000000000000.parquet.1.1", ".part-other"]
    for name in (*kept, f"{stem}.5.1", f"{stem}.4.9"):
        (tmp_path / name).touch()
    give(ParquetSink(tmp_path), {0: range(2)}, epoch=5, attempt=2)
    assert names(tmp_path, are_hidden=True) == sorted(kept)


def test_attempt_whose_draft_was_removed_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later attempt has begun and removed the draft, so the earlier attempt publishes nothing."""
    publish = FolderDraft.publish

    def after_the_next_one_began(draft: FolderDraft) -> bool:
        draft.path.unlink()
        return publish(draft)

    monkeypatch.setattr(FolderDraft, "publish", after_the_next_one_began)
    with pytest.raises(FencedError, match="a later attempt removed its unfinished file"):
        give(ParquetSink(tmp_path), {0: range(2)})
    assert names(tmp_path) == []


def test_publish_accepts_its_own_link_without_an_answer(tmp_path: Path) -> None:
    """Over NFS a link may be requested twice: an existing name that links to the draft counts as published."""
    draft, file = tmp_path / ".draft", tmp_path / "file"
    draft.write_bytes(b"data")
    file.hardlink_to(draft)
    assert FolderDraft(draft, file).publish()
    assert (file.read_bytes(), draft.exists()) == (b"data", False)


# ---- groups ----


def test_another_group_is_refused_until_forget_releases_the_folder(tmp_path: Path) -> None:
    """After `forget`, the files remain, and so do their offsets."""
    give(ParquetSink(tmp_path), {0: range(4), 1: range(2)}, epoch=9)
    sink = ParquetSink(tmp_path)
    with pytest.raises(ConfigurationError, match="has records of group 'orders-group'"):
        give(sink, {0: range(4)}, group="new", epoch=1)
    assert (sink.forget("new"), sink.forget(GROUP)) == (0, 2)
    give(sink, {0: range(6)}, group="new", epoch=1)
    assert offsets(tmp_path) == of(0, *range(6)) + of(1, 0, 1)
    with pytest.raises(ConfigurationError, match="has records of group 'new'"):
        give(ParquetSink(tmp_path), {0: range(6, 8)}, epoch=9)


def test_check_use_refuses_the_folder_of_another_group(tmp_path: Path) -> None:
    """The driver finds the group whose records the folder holds before a job starts, without writing anything."""
    sink = ParquetSink(tmp_path / "out")
    assert sink.check_use(use()).endswith("has records of 0 of the first 2 partitions")
    assert not (tmp_path / "out").exists()
    give(sink, {1: range(3)})
    assert sink.check_use(use()).endswith("has records of 1 of the first 2 partitions")
    with pytest.raises(ConfigurationError, match=f"has records of group '{GROUP}', and group 'other'"):
        sink.check_use(use(group="other"))
    assert sink.check_use(use(group="other", is_on_driver=False)) == ""


def test_check_use_raises_not_a_directory_error_for_a_file(tmp_path: Path) -> None:
    """`check_use` does not turn this error into a refusal, since tasks may have another file system."""
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError):
        ParquetSink(tmp_path / "out" / "below").check_use(use())


def test_recreated_group_continues_after_forget(tmp_path: Path) -> None:
    """After `forget`, the old fences no longer count, but new ones do."""
    give(ParquetSink(tmp_path), {0: range(4)}, epoch=9)
    sink = ParquetSink(tmp_path)
    with pytest.raises(FencedError):
        give(sink, {0: range(4, 6)}, epoch=1)
    assert sink.forget(GROUP) == 1
    give(sink, {0: range(4, 6)}, epoch=1)
    give(ParquetSink(tmp_path), {0: range(6, 8)}, epoch=2)
    with pytest.raises(FencedError):
        give(sink, {0: range(6, 8)}, epoch=1)
    assert offsets(tmp_path) == of(0, *range(8))


# ---- stopped attempts, and bad input ----


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before", "link"])
def test_stopped_attempt_publishes_nothing_after_its_replacement(tmp_path: Path, point: str) -> None:
    """The attempt is stopped before it writes, or before it links its file."""
    with zombie("parquet", point, tmp_path, TOPIC, 5, 1, 0, 4) as stopped:
        give(ParquetSink(tmp_path), {0: range(6)}, attempt=2)
        text = stopped.go_on()
    assert text.startswith("FencedError")
    assert "'pipe-0' (epoch 5, attempt 1) was replaced: 'pipe-0' (epoch 5, attempt 2) wrote last" in text
    assert offsets(tmp_path) == of(0, *range(6))
    assert names(tmp_path, are_hidden=True) == []


def test_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised unchanged, and the next call works like the first."""
    sink = ParquetSink(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            give(sink, {0: range(3)})
    assert (names(tmp_path), names(tmp_path, are_hidden=True)) == ([], [])
    give(sink, {0: range(3)})
    assert offsets(tmp_path) == of(0, 0, 1, 2)


@pytest.mark.parametrize("folder", ["s3://", "gs://bucket/folder", "file:/somewhere", "hdfs://there"])
def test_parquet_sink_refuses_unsupported_addresses(folder: str) -> None:
    """The error names the address and the supported stores."""
    with pytest.raises(ConfigurationError, match="or a path of a file system with hard links"):
        ParquetSink(folder)


def foreign(path: Path) -> None:
    """A Parquet file without the sink's metadata."""
    parquet.write_table(pa.table({"a": [1]}), path)


@pytest.mark.parametrize("make", [foreign, lambda path: path.write_bytes(b"no Parquet")])
def test_foreign_file_in_the_chain_is_named(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """The sink raises and names the file, because the end of a chain with a foreign file is unknown."""
    name = "part-orders-0-00000000000000000009.parquet"
    make(tmp_path / name)
    with pytest.raises(SinkError, match=name):
        give(ParquetSink(tmp_path), {0: range(3)})


def test_file_that_does_not_follow_its_predecessor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied or renamed files break the chain, which raises an error."""
    monkeypatch.setattr(parquet_sink, "_GROWN_S", 0.2)
    give(ParquetSink(tmp_path), {0: range(3)})
    for copy in (3, 9):
        shutil.copy(tmp_path / names(tmp_path)[0], tmp_path / f"part-orders-0-{copy:020}.parquet")
    with pytest.raises(SinkError, match="does not continue it: files were removed, copied or renamed"):
        give(ParquetSink(tmp_path), {0: range(3, 5)})


def test_parquet_sink_is_pickled_as_its_configuration(tmp_path: Path) -> None:
    """A sink can be pickled after use."""
    sink = ParquetSink(tmp_path)
    give(sink, {0: range(3)})
    copy = sent(sink)
    give(copy, {0: range(3, 5)})
    assert offsets(tmp_path) == of(0, *range(5))
    assert repr(copy) == repr(sink)


def test_batch_without_records_writes_no_file(tmp_path: Path) -> None:
    """Offsets without records make no file."""
    nothing: list[Message] = []
    ParquetSink(tmp_path)(nothing, context({0: range(3)}))
    assert names(tmp_path) == []
