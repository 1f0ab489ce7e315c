"""A Spark application for tests that need a cluster, or a driver that may be interrupted or killed.

    python -m tests.spark.application MASTER BOOTSTRAP TOPIC GROUP FOLDER drain|run VICTIM

It prints `ready` when records come, and what it did as JSON at its end. VICTIM: worker, executor, or nobody.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from consumer_membership.spark import RunHandle, drain, run
from tests.spark.recorders import Killer, Recorder

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Drain, or run until it is told to stop."""
    master, bootstrap, topic, group, folder, mode, victim = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    recorder = Recorder(Path(folder))
    sink = recorder if victim == "nobody" else Killer(recorder, victim=victim)
    config = {"bootstrap.servers": bootstrap}
    if mode == "drain":
        result = drain(spark, config, [topic], group, sink, 2, batch_size=200)
        print(json.dumps({"records": result.records}), flush=True)
    else:
        watch(run(spark, config, [topic], group, sink, 2, batch_size=200))
    spark.stop()


def watch(handle: RunHandle) -> None:
    """Say when records came, and wait."""
    while not sum(member.records for member in handle.progress()):
        handle.wait(0.05)
    try:
        # The context stops the run wherever the interrupt comes.
        with handle:
            print("ready", flush=True)
            handle.wait()
    except KeyboardInterrupt:
        print(json.dumps({"stopped": True}), flush=True)


if __name__ == "__main__":
    main()
