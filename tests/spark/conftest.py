"""Spark sessions for the tests: one in each test process, as a user's driver has one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.clusters import CONNECT, a_connect_server, session_of

MASTER = "local[2,3]"
ROOT = Path(__file__).resolve().parent.parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Py4J leaves sockets to the garbage collector; that is no failure of a test that has a session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            # Of pyspark 4.3, which is given Arrow only.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully:FutureWarning"))
            item.add_marker(pytest.mark.slow)
            # A session takes half a minute to start on a busy machine, and so does a broker.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two slots, and three attempts for each task; workers run this interpreter and find the package and the tests.

    With `--connect` it is a session of Spark Connect, whose server is a process of its own.

    Either JVM works in a folder of its own: Spark 4.0 makes its folder `artifacts` wherever it was started.
    """
    if request.config.getoption("--connect"):
        with a_connect_server(tmp_path_factory.mktemp("server"), MASTER) as server:
            session = session_of(f"{CONNECT}{server}", {"spark.sql.shuffle.partitions": "2"})
            yield session
            session.stop()
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = (
        SparkSession.builder.master(MASTER)
        .appName("tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
    )
    with chdir(tmp_path_factory.mktemp("session")):
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session; what Py4J left behind is collected within the test that allows it."""
    yield spark_session
    gc.collect()
