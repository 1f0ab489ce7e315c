"""`watch`: its keys, its picture on 80 columns, and the command in a terminal on a real group."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition
from rich.console import Console

from consumer_membership.admin import GroupReport, PartitionProgress
from consumer_membership.cli import main
from consumer_membership.cli.overview import positions
from consumer_membership.cli.watch import WatchView, chosen, keys_of, picture, rows_in
from consumer_membership.devbroker import Broker
from consumer_membership.observe.rates import Rates
from consumer_membership.types import BrokerAddress
from tests.admin.builders import group, member, partitions
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S


def report(*lags: int) -> GroupReport:
    """Return a report on a member with these lags, which is to release partition 0."""
    rows = tuple(
        PartitionProgress(
            topic="t", partition=number, committed=100, end=100 + lag, lag=lag, owner="m", next_owner=None
        )
        for number, lag in enumerate(lags)
    )
    holder = member("m", assigned=partitions(*range(len(lags))), target=partitions(*range(1, len(lags))))
    return GroupReport(group=group(holder), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)


def test_watch_keys_sort_and_filter() -> None:
    """The filter cycles, and an unknown key has no effect."""
    view = WatchView()
    assert view.after("x") == view
    assert view.after("o").sort == "owner"
    assert [view.shown, (view := view.after("f")).shown, view.after("f").shown] == ["all", "with lag", "stalled"]
    rates, now = Rates(), report(3, 0, 9)
    rates.add(0.0, positions(now))
    rates.add(4.0, positions(now))
    order = {sort: [one.partition for one in chosen(now, rates, WatchView(sort=sort))] for sort in ("lag", "partition")}
    assert order == {"lag": [2, 0, 1], "partition": [0, 1, 2]}
    kept = {
        shown: [one.partition for one in chosen(now, rates, WatchView(shown=shown))] for shown in ("stalled", "moving")
    }
    assert kept == {"stalled": [2, 0], "moving": []}


def test_watch_picture_fits_width_and_height() -> None:
    """The picture has members, moving partitions, as many partitions as fit, and the keys."""
    out, rates, now = StringIO(), Rates(), report(*range(50))
    rates.add(0.0, positions(now))
    rates.add(4.0, positions(now))
    Console(file=out, width=80, height=24).print(picture(now, rates, WatchView(), 24, 80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert lines[0].startswith("Group g: consumer, Stable, epoch 6")
    assert any("-t[0]" in line for line in lines)
    assert any(line.lstrip().startswith("t[49]") and "4 s" in line for line in lines)
    assert "q quit" in lines[-1]


@pytest.mark.parametrize(
    ("width", "name"), [(80, "t"), (40, "t"), (80, "of-a-team." * 9 + "t"), (40, "of-a-team." * 9 + "t")]
)
def test_watch_picture_keeps_partition_number_at_each_width(width: int, name: str) -> None:
    """At each width, the partition number, the lag and the stalled time are shown; rates and owners need more width."""
    out, rates, now = StringIO(), Rates(), report(*range(12))
    now = replace(now, partitions=tuple(replace(one, topic=name, owner="a" * 50) for one in now.partitions))
    rates.add(0.0, positions(now))
    rates.add(4.0, positions(now))
    Console(file=out, width=width, height=24).print(picture(now, rates, WatchView(), 24, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    worst = next(line for line in lines if "t[11]" in line)
    assert worst.split()[1] == "11"
    assert "4 s" in worst
    assert ("a" * 12 in worst) is (width == 80)


def many(members: int, count: int) -> GroupReport:
    """Return a report on this many members and partitions, whose lag is their number."""
    rows = tuple(
        PartitionProgress(
            topic="t",
            partition=number,
            committed=0,
            end=number,
            lag=number,
            owner=f"m-{number % members}",
            next_owner=None,
        )
        for number in range(count)
    )
    holders = (member(f"m-{index:03}", assigned=partitions(*range(index, count, members))) for index in range(members))
    return GroupReport(group=group(*holders), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)


def drawn(now: GroupReport, rates: Rates, view: WatchView) -> list[str]:
    """Return the lines of the screen."""
    out = StringIO()
    Console(file=out, width=80, height=24).print(picture(now, rates, view, 24, 80))
    return out.getvalue().splitlines()


def test_watch_scrolls_through_partitions() -> None:
    """Scrolling works by line, by page and to the end; another order begins at the top."""
    rates, now = Rates(), many(3, 1_000)
    rates.add(0.0, positions(now))
    view = WatchView(sort="partition")
    shown = {}
    for key in ("", "j", " ", "b", "G", "k", "g"):
        view = view.after(key, rows_in(now, 24)).within(1_000, rows_in(now, 24), 3)
        lines = drawn(now, rates, view)
        assert (len(lines) <= 24, max(map(len, lines)) <= 80) == (True, True)
        shown[key] = next(line.split()[0] for line in lines if line.lstrip().startswith("t["))
    assert shown == {"": "t[0]", "j": "t[1]", " ": "t[13]", "b": "t[1]", "G": "t[988]", "k": "t[987]", "g": "t[0]"}
    assert view.after("G").after("l").first == 0
    assert any("1,000 partitions (all), sorted by partition, 1 to 12" in line for line in drawn(now, rates, view))


def test_watch_scrolls_through_members() -> None:
    """After m, the scroll keys apply to the members."""
    rates, now = Rates(), many(20, 40)
    view = WatchView().after("m").after(" ", 10)
    lines = drawn(now, rates, view)
    assert any("11 to 18 of 20 members" in line for line in lines)
    assert any("13 to 20 of 20 members" in line for line in drawn(now, rates, view.after("G")))
    assert len(lines) <= 24


def test_watch_decodes_arrow_and_page_keys() -> None:
    """Several keys may arrive in one read; the end of the input is an empty key."""
    assert keys_of("\x1b[B\x1b[B\x1b[6~q") == ["j", "j", " ", "q"]
    assert keys_of("") == [""]


def test_watch_without_terminal_exits_2_and_names_alternative(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names `lag --watch --json`, and stdout stays empty."""
    assert main(["watch", "-b", "h:1", "-g", "g"]) == 2
    assert "lag --watch --json" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.slow
def test_watch_draws_real_group_in_pty(kafka: Broker) -> None:
    """The group is drawn, f filters, and q exits with 0 and restores the terminal."""
    servers = kafka.bootstrap_servers
    topic, name = create_topic(servers, unique("t"), 2), unique("g")
    produce(servers, topic, 20)
    consumer = RawConsumer({"bootstrap.servers": servers, "group.id": name})
    consumer.commit(offsets=[Partition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "consumer_membership", "watch", "-b", servers, "-g", name, "--interval", "0.2"]
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = ""

        def until(text: str) -> None:
            nonlocal shown
            while text not in shown:
                shown += os.read(ours, 65_536).decode(errors="replace")

        until("lag 6")
        until(topic)
        os.write(ours, b"f")
        until("1 partition (with lag)")
        os.write(ours, b"ml\x1b[B\x1b[6~")
        until("1 partition (with lag)")
        os.write(ours, b"q")
        until("\x1b[?1049l")
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
