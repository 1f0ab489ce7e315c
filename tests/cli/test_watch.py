"""`watch`: what its keys do, what stands on 80 columns, and the command in a terminal on a real group."""

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
from consumer_membership.cli.watch import WatchView, chosen, keys_of, picture, room_of
from consumer_membership.devbroker import Broker
from consumer_membership.observe.rates import Rates
from consumer_membership.types import BrokerAddress
from tests.admin.builders import group, member, partitions
from tests.support.kafka import create_topic, produce, unique


def report(*lags: int) -> GroupReport:
    """A member that has these, and is to give up partition 0."""
    rows = tuple(
        PartitionProgress(
            topic="t", partition=number, committed=100, end=100 + lag, lag=lag, owner="m", next_owner=None
        )
        for number, lag in enumerate(lags)
    )
    holder = member("m", assigned=partitions(*range(len(lags))), target=partitions(*range(1, len(lags))))
    return GroupReport(group=group(holder), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)


def test_keys_sort_and_filter() -> None:
    """The filter goes round; a key that means nothing changes nothing."""
    view = WatchView()
    assert view.after("x") == view
    assert view.after("o").sort == "owner"
    assert [view.shown, (view := view.after("f")).shown, view.after("f").shown] == ["all", "behind", "still"]
    rates, now = Rates(), report(3, 0, 9)
    rates.look(0.0, positions(now))
    rates.look(4.0, positions(now))
    order = {sort: [one.partition for one in chosen(now, rates, WatchView(sort=sort))] for sort in ("lag", "partition")}
    assert order == {"lag": [2, 0, 1], "partition": [0, 1, 2]}
    kept = {
        shown: [one.partition for one in chosen(now, rates, WatchView(shown=shown))] for shown in ("still", "moving")
    }
    assert kept == {"still": [2, 0], "moving": []}


def test_picture_fits_80_columns_and_the_height() -> None:
    """Members, what moves, the partitions that there is room for, and the keys."""
    out, rates, now = StringIO(), Rates(), report(*range(50))
    rates.look(0.0, positions(now))
    rates.look(4.0, positions(now))
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
def test_partition_is_told_by_its_number_on_every_width(width: int, name: str) -> None:
    """Its lag and how long it stands stay, too; rates and owners need more room."""
    out, rates, now = StringIO(), Rates(), report(*range(12))
    now = replace(now, partitions=tuple(replace(one, topic=name, owner="a" * 50) for one in now.partitions))
    rates.look(0.0, positions(now))
    rates.look(4.0, positions(now))
    Console(file=out, width=width, height=24).print(picture(now, rates, WatchView(), 24, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    worst = next(line for line in lines if "t[11]" in line)
    assert worst.split()[1] == "11"
    assert "4 s" in worst
    assert ("a" * 12 in worst) is (width == 80)


def many(members: int, count: int) -> GroupReport:
    """So many members, and partitions with as much lag as their number."""
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
    """The screen."""
    out = StringIO()
    Console(file=out, width=80, height=24).print(picture(now, rates, view, 24, 80))
    return out.getvalue().splitlines()


def test_more_partitions_than_lines_are_scrolled_through() -> None:
    """By line, by page and to the end, which is as far as it goes; another order begins at the top."""
    rates, now = Rates(), many(3, 1_000)
    rates.look(0.0, positions(now))
    view = WatchView(sort="partition")
    shown = {}
    for key in ("", "j", " ", "b", "G", "k", "g"):
        view = view.after(key, room_of(now, 24)).within(1_000, room_of(now, 24), 3)
        lines = drawn(now, rates, view)
        assert (len(lines) <= 24, max(map(len, lines)) <= 80) == (True, True)
        shown[key] = next(line.split()[0] for line in lines if line.lstrip().startswith("t["))
    assert shown == {"": "t[0]", "j": "t[1]", " ": "t[13]", "b": "t[1]", "G": "t[988]", "k": "t[987]", "g": "t[0]"}
    assert view.after("G").after("l").first == 0
    assert any("1000 partitions, all, by partition, 1 to 12" in line for line in drawn(now, rates, view))


def test_more_members_than_lines_are_scrolled_through() -> None:
    """After m, by the same keys."""
    rates, now = Rates(), many(20, 40)
    view = WatchView().after("m").after(" ", 10)
    lines = drawn(now, rates, view)
    assert any("11 to 18 of 20 members" in line for line in lines)
    assert any("13 to 20 of 20 members" in line for line in drawn(now, rates, view.after("G")))
    assert len(lines) <= 24


def test_keys_without_a_letter_scroll_too() -> None:
    """Arrows, pages, home and end, however many came at once; the end of the input is a key of its own."""
    assert keys_of("\x1b[B\x1b[B\x1b[6~q") == ["j", "j", " ", "q"]
    assert keys_of("") == [""]


def test_without_a_terminal_it_says_what_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and nothing on stdout."""
    assert main(["watch", "-b", "h:1", "-g", "g"]) == 2
    assert "lag --watch --json" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.slow
def test_screen_of_a_real_group(kafka: Broker) -> None:
    """Through a pty: the group is drawn, f shows less, q ends it with 0 and gives the terminal back."""
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
        until("1 partitions, behind")
        os.write(ours, b"ml\x1b[B\x1b[6~")
        until("1 partitions, behind")
        os.write(ours, b"q")
        until("\x1b[?1049l")
        assert process.wait(30) == 0
    os.close(ours)
