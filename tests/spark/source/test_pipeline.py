"""The declarative pipeline in `examples/spark_pipeline`, run by the command of the newest pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.admin import GroupAdmin
from tests.spark.clusters import port_of_own_servers
from tests.support.kafka import create_topic, produce, unique
from tests.support.newest_pyspark import connect_libraries, newest_pyspark

if TYPE_CHECKING:
    from consumer_membership.devbroker import Broker

ROOT = Path(__file__).resolve().parent.parent.parent.parent
#: A program that counts the rows of a table; it needs its own process, because pytest's has the oldest pyspark.
COUNT = "import sys; import pyarrow.dataset as ds; print(ds.dataset(sys.argv[1]).count_rows())"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_declarative_pipeline_reads_each_record_once(kafka: Broker, tmp_path: Path) -> None:
    """Each record is in its table once, and the group has no lag."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 3), unique("group")
    produce(kafka.bootstrap_servers, topic, 300)
    project = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "spark_pipeline", project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/orders-pipeline" in text
    spec.write_text(text.replace("file:///tmp/orders-pipeline", f"file://{tmp_path}/storage"))
    (tmp_path / "storage").mkdir()
    home = newest_pyspark() / "pyspark"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (home.parent, connect_libraries(), ROOT))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA_TOPIC": topic,
        "KAFKA_GROUP": group,
    }
    command = [str(home / "bin" / "spark-pipelines"), "run"]
    with port_of_own_servers():
        run = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    # The exit code is useless: pyspark 4.3.0 ends with UNKNOWN_RESPONSE after every pipeline with a Python source.
    assert "Run is COMPLETED" in run.stdout + run.stderr, run.stderr
    for table, rows in {"orders": 300, "orders_by_partition": 3}.items():
        folder = project / "spark-warehouse" / table
        counted = subprocess.run([sys.executable, "-c", COUNT, str(folder)], capture_output=True, text=True, check=True)
        assert int(counted.stdout) == rows
    report = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).describe(group)
    assert (report.group.state, report.lag) == ("Empty", 0)
