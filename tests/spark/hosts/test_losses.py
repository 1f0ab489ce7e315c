"""Hosts of a worker or the driver that are lost permanently, or until Spark has replaced them."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.spark.clusters import SPARK_S, Ground, started, stopped
from tests.spark.hosts.sinks import FencedSinks, is_shared, produced, runs
from tests.spark.hosts.site import Site, kill
from tests.spark.recorders import Recorder
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.hosts]

FIRST, MORE = 2000, 1000
#: Spark removes an executor that has sent nothing for this time; the default is two minutes.
IMPATIENT = {
    "spark__network__timeout": "20s",
    "spark__network__timeoutInterval": "5s",
    "spark__executor__heartbeatInterval": "2s",
}


@pytest.mark.parametrize("loss", ["cable", "power"])
def test_lost_worker_is_replaced_and_writes_nothing_after_its_return(
    site: Site, ground: Ground, tmp_path: Path, loss: str
) -> None:
    """The lost tasks restart on the other host and take over their members; the worker that returns writes nothing."""
    sinks = FencedSinks(site, ground, tmp_path)
    worker = site.workers[0]
    expected = set(range(FIRST))
    with site.session(**IMPATIENT) as session, runs(session, sinks):
        wait_until(
            lambda: all(sinks.has(name, FIRST) for name in sinks.sinks), "the first records in each sink", SPARK_S
        )
        wait_until(
            lambda: all(is_shared(session, one) for one in sinks.grounds.values()),
            "two partitions with each member",
            SPARK_S,
        )
        site.network.pull(worker)
        pulled = time.monotonic()
        if loss == "power":
            kill(worker)
        expected |= produced(ground, FIRST, MORE)
        for name in sinks.sinks:
            wait_until(partial(sinks.has, name, len(expected)), "the sink's records", SPARK_S)
            print(f"{loss} lost: {name} had all records after {time.monotonic() - pulled:.1f} s")
        site.network.plug(worker)
        expected |= produced(ground, FIRST + MORE, MORE)
        wait_until(
            lambda: all(sinks.has(name, len(expected)) for name in sinks.sinks), "all records in each sink", SPARK_S
        )
        wait_until(
            lambda: all(is_shared(session, one) for one in sinks.grounds.values()),
            "two partitions with each member",
            SPARK_S,
        )
        for one in sinks.grounds.values():
            assert session.ask(stopped, one.group) is not None
    assert sinks.counts() == {name: Counter(expected) for name in sinks.sinks}
    assert [one.members() for one in sinks.grounds.values()] == [[]] * 3


def test_tasks_of_a_lost_driver_commit_and_leave_the_group(site: Site, ground: Ground, tmp_path: Path) -> None:
    """The tasks try to reach their driver for two minutes, then commit their batches and leave the group."""
    recorder = Recorder(tmp_path)
    with site.session() as session:
        session.ask(started, ground.config, ground.topic, ground.group, recorder)
        wait_until(lambda: len(recorder.counts()) == FIRST, "the first records", SPARK_S)
        wait_until(lambda: is_shared(session, ground), "two partitions with each member", SPARK_S)
        site.network.pull(site.driver)
        kill(site.driver)
        lost = time.monotonic()
        wait_until(lambda: ground.members() == [], "a group without members", 300)
        print(f"driver lost: its tasks have left after {time.monotonic() - lost:.1f} s")
    assert set(recorder.counts().values()) == {1}
    assert sum(ground.committed()) == len(recorder.counts())
