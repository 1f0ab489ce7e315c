"""Every kind of job with driver, tasks and brokers on their own hosts, and the findings of `check` there."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import py4j
import pyspark
import pytest

from tests.spark.clusters import SPARK_S, Ground, SessionProcess, a_run, drained, reported, stopped
from tests.spark.hosts.questions import checked, networks_of_tasks, read, sourced, streamed
from tests.spark.hosts.site import Site
from tests.spark.recorders import Recorder
from tests.support.kafka import produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.hosts]

ONCE = Counter({(partition, offset): 1 for partition in range(4) for offset in range(500)})


@pytest.fixture(scope="module")
def session(site: Site) -> Iterator[SessionProcess]:
    """A driver on its host, with half of the slots."""
    with site.session(spark__cores__max="8", spark__executor__cores="4") as session:
        yield session


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """The recorder, in a folder that all hosts share."""
    return Recorder(tmp_path)


def test_run_works_over_several_hosts(session: SessionProcess, ground: Ground, recorder: Recorder) -> None:
    """A run has a member on each host, consumes new records, and its tasks receive the driver's stop order."""
    assert len(session.ask(networks_of_tasks, 8)) == 2
    with a_run(session, ground, recorder):
        wait_until(
            lambda: [len(member.owned) for member in session.ask(reported, ground.group)] == [2, 2],
            "two partitions with each member",
            SPARK_S,
        )
        at_work = [member.pid for member in session.ask(reported, ground.group)]
        assert len({Path(f"/proc/{pid}/ns/net").readlink() for pid in at_work}) == 2
        produce(ground.bootstrap, ground.topic, 400)
        wait_until(lambda: len(recorder.counts()) == 2400, "all records", SPARK_S)
        assert session.ask(stopped, ground.group) is not None
    assert set(recorder.counts().values()) == {1}
    assert (ground.committed(), ground.members()) == ([600] * 4, [])


def test_drain_delivers_each_record_once_over_several_hosts(
    session: SessionProcess, ground: Ground, recorder: Recorder
) -> None:
    """A drain delivers each record once and leaves no member."""
    assert session.ask(drained, ground.config, ground.topic, ground.group, recorder).records == 2000
    assert {offset[1:] for offset in recorder.counts()} == set(ONCE)
    assert (ground.committed(), ground.members()) == ([500] * 4, [])


def test_read_group_works_over_several_hosts(session: SessionProcess, ground: Ground) -> None:
    """The driver holds the member, and the tasks read the records."""
    assert session.ask(read, ground.config, ground.topic, ground.group) == ONCE
    assert ground.committed() == [500] * 4


def test_kafka_group_source_works_over_several_hosts(session: SessionProcess, ground: Ground, tmp_path: Path) -> None:
    """A batch read and a stream of `kafka-group` work over several hosts."""
    assert session.ask(sourced, ground.bootstrap, ground.topic) == ONCE
    assert session.ask(streamed, ground.bootstrap, ground.topic, ground.group, str(tmp_path)) == ONCE


def errors(session: SessionProcess, ground: Ground) -> list[tuple[str, str]]:
    """Subject and text of each error."""
    found = session.ask(checked, ground.config, ground.topic, ground.group)
    return [(subject, words) for severity, subject, words in found if severity == "error"]


def test_check_finds_a_broker_that_one_host_cannot_reach(site: Site, session: SessionProcess, ground: Ground) -> None:
    """The driver and the other host reach the broker, so only a task on the cut host can find the error."""
    assert errors(session, ground) == []
    site.network.cut(site.workers[1], site.broker)
    try:
        ((subject, words),) = errors(session, ground)
    finally:
        site.network.join(site.workers[1], site.broker)
    assert subject == f"broker {ground.bootstrap}"
    assert words.startswith("cannot be reached from")


def put(program: Path, *lines: str) -> None:
    """Write an executable shell script with these lines."""
    program.parent.mkdir(parents=True)
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)


def test_check_finds_a_host_without_the_package_and_a_skewed_clock(site: Site, ground: Ground, tmp_path: Path) -> None:
    """The interpreter has the same path on each host, but is another program."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(
        "import time\nread = time.time\ntime.time = lambda: read() + 90\n"
    )
    (tmp_path / "bare").mkdir()
    for package in (pyspark, py4j):
        (tmp_path / "bare" / package.__name__).symlink_to(Path(str(package.__file__)).parent)
    early, bare = (site.folder / "bin" / worker.address / "task-python" for worker in site.workers)
    put(early, f'export PYTHONPATH={tmp_path}/clock:$PYTHONPATH\nexec {sys.executable} "$@"')
    put(bare, f'export PYTHONPATH={tmp_path}/bare\nexec {Path(sys.executable).resolve()} -S "$@"')
    with site.session(
        spark__cores__max="2", spark__executor__cores="1", spark__pyspark__python="task-python"
    ) as session:
        findings = session.ask(checked, ground.config, ground.topic, ground.group)
    found = {subject: words for _, subject, words in findings}
    assert found["consumer_membership"].startswith("cannot be imported on")
    (clock,) = (words for subject, words in found.items() if subject.startswith("clock of"))
    assert clock.endswith("ahead of the driver's")
