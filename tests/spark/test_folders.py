"""`CheckpointFolder` on a Hadoop file system: `viewfs://` exposes a local folder through Hadoop's shared code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark import CheckpointFolder, register
from tests.spark.builders import CLIENT
from tests.support.kafka import create_topic, produce, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_membership.devbroker import Broker

pytestmark = [pytest.mark.classic, pytest.mark.integration]


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A `viewfs` path that exposes this test's folder."""
    key = f"fs.viewfs.mounttable.{tmp_path.name.replace('_', '-')}.link./data"
    configuration = spark._jsc.hadoopConfiguration()
    configuration.set(key, tmp_path.as_uri())
    yield f"viewfs://{tmp_path.name.replace('_', '-')}/data"
    configuration.unset(key)


def test_checkpoint_folder_moves_a_query_on_any_file_system_of_the_session(
    kafka: Broker, spark: SparkSession, mounted: str, tmp_path: Path
) -> None:
    """A Spark checkpoint on `viewfs` is read, moved to a group, and rewritten, with valid checksums."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    produce(kafka.bootstrap_servers, topic, 4)
    register(spark)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "group.id": group}
    records = spark.readStream.format("kafka-group").options(**options, startingOffsets="earliest").load()

    def run_query() -> None:
        writing = records.writeStream.format("noop").option("checkpointLocation", f"{mounted}/c")
        writing.trigger(availableNow=True).start().awaitTermination()

    run_query()
    folder, other = CheckpointFolder(f"{mounted}/c", spark), unique("other")
    found = folder.read()
    assert (found.batch_id, found.sources[0].group, found.sources[0].offsets) == (0, group, {(topic, 0): 4})
    assert folder.to_group(config, other).offsets == {(topic, 0): 4}
    produce(kafka.bootstrap_servers, topic, 2)
    run_query()
    assert folder.to_kafka(config) == (0, 1)
    assert folder.to_kafka(config) == ()
    assert (tmp_path / "c" / "offsets" / "1").read_text().endswith(f'\n{{"{topic}":{{"0":6}}}}')
    assert f'"group": "{group}"' in (tmp_path / "c" / "offsets-kafka-group" / "1").read_text()
    # Hadoop reads the result and compares checksums; then Spark continues the query from it.
    assert [each.offsets for each in CheckpointFolder(f"{mounted}/c", spark).read().sources] == [{(topic, 0): 6}]
    produce(kafka.bootstrap_servers, topic, 1)
    run_query()
    assert folder.read().sources[0].offsets == {(topic, 0): 7}
    made = CheckpointFolder(f"{mounted}/made", spark)
    assert made.from_group(config, other) == {(topic, 0): 4}
    assert made.read().sources[0].offsets == {(topic, 0): 4}
    with pytest.raises(ConfigurationError, match="the path already exists and is not an empty folder"):
        made.from_group(config, other)


def test_checkpoint_folder_refuses_paths_that_spark_cannot_open(spark: SparkSession, tmp_path: Path) -> None:
    """Unknown file systems, folders without a checkpoint, and sessions without Hadoop's file systems raise an error."""
    with pytest.raises(ConfigurationError, match=r"Spark cannot use it: .*No FileSystem for scheme"):
        CheckpointFolder("unknown://bucket/checkpoint", spark)
    with pytest.raises(ConfigurationError, match="give the checkpointLocation of a streaming query"):
        CheckpointFolder(tmp_path.as_uri(), spark).read()
    with pytest.raises(ConfigurationError, match="Spark Connect has no access"):
        CheckpointFolder("s3a://bucket/checkpoint", CLIENT)  # type: ignore[arg-type]  # enough of a session
