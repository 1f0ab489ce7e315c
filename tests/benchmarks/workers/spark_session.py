"""The Spark session of the Spark workers; its output does not mix with the reports of a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_PROJECT = str(Path(__file__).parents[3])


def session(master: str, jars: Sequence[str] = ()) -> SparkSession:
    """Return a session whose Python workers run this interpreter and can import the package and the benchmarks."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to import

    _keep_stdout_for_reports()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_PROJECT, os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.jars": ",".join(jars),
        "spark.log.level": "OFF",
        "spark.task.maxFailures": "100",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master).appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _keep_stdout_for_reports() -> None:
    """Let the JVM inherit stderr as its stdout: the parent process reads each line of the worker's stdout as JSON."""
    reports = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(reports, "w")
