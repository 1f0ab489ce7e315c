"""`timeline` and `doctor` as commands, on the real broker."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition

from consumer_membership.cli import main
from consumer_membership.cli.groups import Asking
from consumer_membership.cli.timeline import TimelineOptions, draw_timeline
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique


@pytest.mark.integration
@pytest.mark.slow
def test_page_is_written_of_what_was_seen(kafka: Broker, tmp_path: Path) -> None:
    """Also where Ctrl-C ends it early; a page that cannot be written is one line and exit code 1."""
    servers = kafka.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    produce(servers, topic, 10)
    consumer = RawConsumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[Partition(topic, 0, 2)], asynchronous=False)
    consumer.close()

    def end(_: float) -> None:
        raise KeyboardInterrupt

    asking = Asking(config={"bootstrap.servers": servers}, group=group)
    page = tmp_path / "group.html"
    out, err = io.StringIO(), io.StringIO()
    options = TimelineOptions(asking=asking, output=page)
    assert draw_timeline(options, out, err, end) == 0
    assert out.getvalue() == f"{page}: 1 looks, 0 changes\n"
    assert f'"{topic}[0]"' in page.read_text()
    nowhere = TimelineOptions(asking=asking, output=tmp_path / "no" / "where.html")
    assert draw_timeline(nowhere, out, err, end) == 1
    assert "No such file or directory" in err.getvalue()


@pytest.mark.integration
@pytest.mark.slow
def test_doctor_ends_with_1_where_something_is_not_read(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """A group that is not there is critical, and takes one look."""
    group = unique("nobody")
    assert main(["doctor", "-b", kafka.bootstrap_servers, "-g", group, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["looks"], [one["cause"] for one in told["findings"]]) == (1, ["no_such_group"])
