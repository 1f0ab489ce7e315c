"""A Spark application for tests of a driver that is interrupted or killed.

    python -m tests.spark.application BOOTSTRAP TOPIC GROUP FOLDER

It prints `ready` when records arrive and, after an interrupt, a line of JSON when the run has stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from consumer_membership.spark import RunHandle, run
from tests.spark.clusters import session_of
from tests.spark.recorders import Recorder


def main() -> None:
    """Run until an interrupt."""
    bootstrap, topic, group, folder = sys.argv[1:]
    spark = session_of("local[2]", {})
    watch(run(spark, {"bootstrap.servers": bootstrap}, [topic], group, Recorder(Path(folder)), 2, batch_size=200))
    spark.stop()


def watch(handle: RunHandle) -> None:
    """Print `ready` when records arrive, and wait for an interrupt."""
    while not sum(member.records for member in handle.progress()):
        handle.wait(0.05)
    try:
        # The `with` block stops the run, wherever in it the interrupt arrives.
        with handle:
            print("ready", flush=True)
            handle.wait()
    except KeyboardInterrupt:
        print(json.dumps({"stopped": True}), flush=True)


if __name__ == "__main__":
    main()
