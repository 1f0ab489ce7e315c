"""Networks that are cut for a while, between an executor and the broker and between an executor and its driver."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from tests.spark.clusters import SPARK_S, Ground, SessionProcess, stopped
from tests.spark.hosts.sinks import FencedSinks, is_shared, produced, runs
from tests.spark.hosts.site import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.hosts]

FIRST, MORE = 2000, 1000


@pytest.fixture(scope="module")
def session(site: Site) -> Iterator[SessionProcess]:
    """A driver on its host, with all slots."""
    with site.session() as session:
        yield session


@pytest.mark.parametrize("seconds", [5, 30, 60])
@pytest.mark.parametrize("end", ["broker", "driver"])
def test_network_cut_neither_loses_nor_duplicates_records(
    site: Site, session: SessionProcess, ground: Ground, tmp_path: Path, end: str, seconds: int
) -> None:
    """Whether or not the cut exceeds the session timeout of 45 s, each sink has each record once."""
    sinks = FencedSinks(site, ground, tmp_path)
    worker, other = site.workers[0], getattr(site, end)
    expected = set(range(FIRST))
    with runs(session, sinks):
        wait_until(
            lambda: all(sinks.has(name, FIRST) for name in sinks.sinks), "the first records in each sink", SPARK_S
        )
        wait_until(
            lambda: all(is_shared(session, one) for one in sinks.grounds.values()),
            "two partitions with each member",
            SPARK_S,
        )
        site.network.cut(worker, other)
        try:
            expected |= produced(ground, FIRST, MORE)
            Event().wait(seconds)
            before = {name: found.total() for name, found in sinks.counts().items()}
        finally:
            site.network.join(worker, other)
        expected |= produced(ground, FIRST + MORE, MORE)
        joined = time.monotonic()
        for name in sinks.sinks:
            wait_until(partial(sinks.has, name, len(expected)), "the sink's records", SPARK_S)
            print(f"{end} cut off for {seconds} s: {name} had {before[name]} of {FIRST + MORE} records then,", end=" ")
            print(f"and all after another {time.monotonic() - joined:.1f} s")
        for one in sinks.grounds.values():
            assert session.ask(stopped, one.group) is not None
    assert sinks.counts() == {name: Counter(expected) for name in sinks.sinks}
    assert [one.members() for one in sinks.grounds.values()] == [[]] * 3
