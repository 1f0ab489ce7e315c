"""Spark sessions for the tests: each test process has one, as a user's driver does."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from consumer_membership.membership.consumer import claim
from tests.spark.clusters import CONNECT, a_connect_server, session_of
from tests.support.waiting import PATIENCE_S

MASTER = "local[2,3]"
ROOT = Path(__file__).resolve().parent.parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the sockets that Py4J leaves to the garbage collector; the tests do not cause them."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            # pyspark 4.3 warns about pandas 3, but the tests give it only Arrow data.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully:FutureWarning"))
            item.add_marker(pytest.mark.slow)
            # A session takes half a minute to start on a busy machine, and so does a broker.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two slots and three attempts per task; workers find this interpreter, the package and the tests.

    With `--connect` it is a Spark Connect session, whose server is its own process. Each JVM works in its own folder,
    because Spark 4.0 creates its folder `artifacts` in the current folder.
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


@pytest.fixture(autouse=True)
def late_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise `NEWEST_FOR_S` for members of this process: on a busy machine a join can take longer than its 2 s.

    This is safe, because a test starts the newest holder last. Members in Spark's workers keep the 2 s.
    """
    monkeypatch.setattr(claim, "NEWEST_FOR_S", PATIENCE_S)


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session; Py4J's sockets are garbage-collected before the test ends, because it ignores their warnings."""
    yield spark_session
    gc.collect()
