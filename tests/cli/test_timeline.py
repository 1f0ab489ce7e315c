# both kinds of consumers
"""The commands `timeline` and `doctor` on a real broker."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from consumer_membership import Consumer
from consumer_membership.admin import GroupDescription, GroupHistory, ReadingProgress
from consumer_membership.admin.group_log import TOPIC, OffsetRecorded, partition_of
from consumer_membership.admin.history import HistoryQuery, history_of
from consumer_membership.cli import main
from consumer_membership.cli.groups import GroupQuery
from consumer_membership.cli.timeline import REPORT_INTERVAL_S, ReadingReporter, TimelineOptions, draw_timeline
from consumer_membership.config import ConsumerConfig
from consumer_membership.devbroker import Broker
from consumer_membership.observe.history import surveys_of
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.group_client import Cluster
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.integration.partners import Partner
from tests.observe.incidents import Stage, application
from tests.recorder.members import Recorded
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.compaction import EAGER_CLEANER
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import BIDIRECTIONAL
from tests.support.partners.life import Client, Lifetime
from tests.support.waiting import PATIENCE_S, wait_until

SET = AlterConfigOpType.SET


@pytest.mark.integration
@pytest.mark.slow
def test_timeline_writes_page_after_ctrl_c(kafka: Broker, tmp_path: Path) -> None:
    """After Ctrl-C, the command writes a page with all samples."""
    servers = kafka.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    produce(servers, topic, 10)
    consumer = RawConsumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[Partition(topic, 0, 2)], asynchronous=False)
    consumer.close()

    def end(_: float) -> None:
        raise KeyboardInterrupt

    query = GroupQuery(config={"bootstrap.servers": servers}, group=group)
    page = tmp_path / "group.html"
    out, err = io.StringIO(), io.StringIO()
    options = TimelineOptions(query=query, output=page)
    assert draw_timeline(options, out, err, end) == 0
    assert out.getvalue() == f"wrote {page}: 1 sample, 0 changes\n"
    assert f'"{topic}[0]"' in page.read_text()


@pytest.mark.integration
def test_timeline_reports_missing_group_immediately(kafka: Broker, tmp_path: Path) -> None:
    """A missing group is reported before the first pause; if it does not appear later, the exit code is 1."""
    group, err = unique("group"), io.StringIO()
    query = GroupQuery(config={"bootstrap.servers": kafka.bootstrap_servers}, group=group)
    errors: list[str] = []
    now = 0.0

    def wait(pause_s: float) -> None:
        nonlocal now
        errors.append(err.getvalue())
        now += pause_s

    options = TimelineOptions(query=query, output=tmp_path / "page.html", seconds=1.0, interval_s=0.6)
    assert draw_timeline(options, io.StringIO(), err, wait, lambda: now) == 1
    words = f"The group could not be described: Group {group} not found."
    assert errors[0] == f"consumer-membership timeline: {words}\n"
    assert err.getvalue() == errors[0]


def test_timeline_with_unwritable_output_exits_2_before_sampling(tmp_path: Path) -> None:
    """The command prints one line and sends no request."""
    (tmp_path / "file").touch()
    for output, why in (
        (tmp_path / "no" / "where.html", "No such file or directory"),
        (tmp_path / "file" / "page.html", "Not a directory"),
        (tmp_path, "Is a directory"),
    ):
        err = io.StringIO()
        options = TimelineOptions(query=GroupQuery(config={}, group="g"), output=output)
        assert draw_timeline(options, io.StringIO(), err) == 2
        words = f"--output={str(output)!r}: the file cannot be written ({why})"
        assert err.getvalue() == f"consumer-membership timeline: {words}\n"


def shown(page: Path) -> dict[str, Any]:
    """Return the data of a page."""
    found = re.search(r"const data = (.*);\n", page.read_text())
    assert found is not None
    embedded: dict[str, Any] = json.loads(found[1])
    return embedded


def lives(kind: Any, servers: str, group: str, topic: str, protocol: str) -> list[Any]:
    """Run two members; the second one joins and stays when the first one leaves. Return both, closed."""
    config = {"group_protocol": protocol, "auto_commit_interval_ms": 100}
    with application(kind, servers, group, topic, client_id="one", **config) as one:
        one.has(2)
        with application(kind, servers, group, topic, client_id="two", **config) as two:
            one.has(1)
            two.has(1)
            one.stop()
            two.has(2)
    return [one.consumer, two.consumer]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("kind", [RawConsumer, Consumer], ids=["librdkafka", "ours"])
def test_timeline_last_shows_past_of_closed_members(kafka: Broker, tmp_path: Path, kind: Any, protocol: str) -> None:
    """The page shows ownership, joins and leaves afterwards, and the recordings of this package's members."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 2)
    produce(servers, topic, 10)
    members = lives(kind, servers, group, topic, protocol)
    page = tmp_path / "group.html"
    words = ["timeline", "-b", servers, "-g", group, "--last", "5m", "-o", str(page)]
    if kind is Consumer:
        words += ["--recording", *(str(one.dump(tmp_path)) for one in members)]
    assert main(words) == 0
    data = shown(page)
    names = [name.split()[0] for name in data["members"]]
    assert sorted(names)[:2] == ["one", "two"]
    for _, owners, _, _ in data["partitions"]:
        had = [names[one] for one in owners[1::2] if one >= 0]
        assert (had[0], had[-1], owners[-1]) == ("one", "two", -1)
    events = [text for _, text, is_exact in data["events"] if is_exact]
    text = " ".join(events)
    for name in ("one", "two"):
        assert re.search(rf"\b{name} \([^)]*\) joined", text), events
        assert re.search(rf"\b{name} \([^)]*\) left", text), events
    if kind is Consumer:
        assert sum(" assigned " in one and " after a wait of " in one for one in events) >= 3
        assert all(still for _, _, still, _ in data["partitions"])


@pytest.mark.integration
@pytest.mark.slow
def test_timeline_last_shows_past_of_java_members(kafka: Broker, tmp_path: Path) -> None:
    """The records are the coordinator's, so the page works for every client."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 2)
    life = Lifetime(
        client=Client.JAVA, bootstrap_servers=servers, group=group, topic=topic, client_id="java", protocol="consumer"
    )
    with Partner(life, tmp_path) as partner:
        partner.wait(lambda one: len(one.owned) == 2, "its partitions")
        partner.leave()
    page = tmp_path / "group.html"
    assert main(["timeline", "-b", servers, "-g", group, "--last", "5m", "-o", str(page)]) == 0
    data = shown(page)
    assert [owners[1::2] for _, owners, _, _ in data["partitions"]] == [[-1, 0, -1]] * 2
    assert [re.sub(r" \(.*\)", "", text) for _, text, _ in data["events"]] == ["java joined", "java left"]


@pytest.mark.integration
@pytest.mark.slow
def test_history_of_converted_group_equals_its_descriptions(broker_pool: RunBrokers) -> None:
    """The history equals the descriptions in both directions of a conversion, from any start of the period."""
    servers, group = broker_pool.shared(properties=BIDIRECTIONAL).bootstrap_servers, unique("group")
    stage, began = Stage(servers), time.time()
    topic = stage.topic(4, 10)
    described: list[tuple[float, GroupDescription]] = []

    def settled(*members: ConsumerThread[Any]) -> None:
        for one in members:
            one.has(4 // len(members))
        stage.settled(group, len(members))
        described.append((time.time(), stage.admin.describe(group).group))

    def member(name: str, protocol: str) -> ConsumerThread[Any]:
        return application(RawConsumer, servers, group, topic, client_id=name, group_protocol=protocol)

    with member("old", "classic") as old, member("late", "classic") as late:
        settled(old, late)
        with member("new", "consumer") as new:
            late.stop()
            settled(old, new)
            old.stop()
            settled(new)
            with member("back", "classic") as back:
                settled(new, back)
                new.stop()
                settled(back)
    kinds = [(one.protocol.value, sorted(member.protocol.value for member in one.members)) for _, one in described]
    assert kinds == [
        ("classic", ["classic", "classic"]),
        ("consumer", ["classic", "consumer"]),
        ("consumer", ["consumer"]),
        ("consumer", ["classic", "consumer"]),
        ("classic", ["classic"]),
    ]
    past = list(surveys_of(stage.admin.history(group, began), 0.05))
    for at, group_then in described:
        seen = [survey.group for survey in past if survey.at <= at][-1]
        begun = next(iter(surveys_of(stage.admin.history(group, at), 60.0))).group
        assert [known(seen), known(begun)] == [known(group_then)] * 2


def known(group: GroupDescription | None) -> object:
    """Return the attributes that descriptions and records share: all except the assignor and the subscriptions."""
    assert group is not None
    members = [replace(one, topics=frozenset()) for one in sorted(group.members, key=lambda one: one.member_id)]
    return group.protocol, group.state, group.epoch, group.assignment_epoch, members


@pytest.mark.integration
@pytest.mark.slow
def test_history_reads_log_back_only_as_far_as_needed(broker_pool: RunBrokers) -> None:
    """If the log has many commits, only a part of it is read, and the group's members and commits are known."""
    with broker_pool.own(properties={"offsets.topic.num.partitions": "1"}) as broker:
        servers, group = broker.bootstrap_servers, unique("group")
        stage = Stage(servers)
        topic, wide = stage.topic(2, 10), stage.topic(500)
        with application(RawConsumer, servers, group, topic, client_id="one", group_protocol="consumer") as one:
            one.has(2)
            stage.caught_up(group)
            commit_often(servers, unique("other"), wide, 500, 240)
            since = time.time()
            stage.write(topic)
            stage.caught_up(group)
            reports: list[ReadingProgress] = []
            history = stage.admin.history(group, since, on_progress=reports.append)
        (first, *_) = surveys_of(history, 60.0)
        assert first.group is not None
        assert {m.client_id: {p.partition for p in m.assignment} for m in first.group.members} == {"one": {0, 1}}
        # For each partition that was committed later again, the earlier commit is known.
        assert sum(one.offset for one in first.committed.values() if isinstance(one, OffsetAndMetadata)) == 10
        reports.clear()
        quiet = stage.admin.history(group, time.time(), on_progress=reports.append)
        assert (quiet.notes, quiet.records) == ((), ())
        assert reports[-1].done * 2 < reports[-1].most
        (now, *_) = surveys_of(quiet, 60.0)
        assert now.group is not None
        assert now.committed.keys() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


@pytest.mark.integration
@pytest.mark.slow
def test_history_includes_records_behind_open_transaction(kafka: Broker) -> None:
    """The history includes records after the last stable offset of the coordinator's partition, and has a note."""
    servers, group = kafka.bootstrap_servers, unique("group")
    stage, began = Stage(servers), time.time() - 60.0
    topic = stage.topic(1, 10)
    stage.commit(group, (topic, 0, 1))
    count = len(AdminClient({"bootstrap.servers": servers}).list_topics(TOPIC, PATIENCE_S).topics[TOPIC].partitions)
    names = map(unique, repeat("other"))
    other = next(name for name in names if partition_of(name, count) == partition_of(group, count))
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("transaction")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    outsider = RawConsumer({"bootstrap.servers": servers, "group.id": other})
    producer.send_offsets_to_transaction([Partition(topic, 0, 5)], outsider.consumer_group_metadata(), PATIENCE_S)
    try:
        stage.commit(group, (topic, 0, 2))
        history = stage.admin.history(group, began)
    finally:
        producer.abort_transaction(PATIENCE_S)
        outsider.close()
    assert committed_in(history) == [1, 2]
    assert any("is open in the coordinator's partition" in note for note in history.notes), history.notes
    after = stage.admin.history(other, began)
    assert committed_in(after) == []


def committed_in(history: GroupHistory) -> list[int]:
    """Return the committed offsets in order."""
    facts = (record.fact for record in history.records)
    return [one.committed.offset for one in facts if isinstance(one, OffsetRecorded) and one.committed is not None]


@pytest.mark.integration
@pytest.mark.slow
def test_cancelled_history_ends_its_reading_thread(kafka: Broker) -> None:
    """After a cancellation, such as Ctrl-C, the reading thread, for which asyncio waits, ends after its batch."""
    servers, group = kafka.bootstrap_servers, unique("group")
    began = time.time() - 60.0
    commit_often(servers, group, Stage(servers).topic(100), 100, 400)
    reports: list[ReadingProgress] = []

    async def read() -> None:
        checked = ConsumerConfig.from_mapping({"bootstrap.servers": servers, "group.id": group})
        settings, is_over = checked.connection_settings(), threading.Event()
        loop, cluster = asyncio.get_running_loop(), Cluster(settings, ConnectionSecurity(settings))

        def cancel(progress: ReadingProgress) -> None:
            reports.append(progress)
            loop.call_soon_threadsafe(reading.cancel)
            assert is_over.wait(PATIENCE_S)

        question = HistoryQuery(group_id=group, since=began, on_progress=cancel)
        reading = asyncio.create_task(history_of(cluster, checked.cluster_config(), question, PATIENCE_S))
        reading.add_done_callback(lambda _: is_over.set())
        with suppress(asyncio.CancelledError):
            await reading
        assert reading.cancelled()
        await cluster.close()

    asyncio.run(read())
    (only,) = reports
    assert only.done < only.most


def commit_often(servers: str, group: str, topic: str, partitions: int, times: int) -> None:
    """Commit all of these partitions this many times."""
    consumer = RawConsumer({"bootstrap.servers": servers, "group.id": group})
    for offset in range(times):
        consumer.commit(offsets=[Partition(topic, one, offset) for one in range(partitions)], asynchronous=False)
    consumer.close()


@pytest.mark.integration
@pytest.mark.slow
def test_timeline_reports_unreadable_past(broker_pool: RunBrokers, tmp_path: Path) -> None:
    """The page and stderr report the missing authorization, and the page shows the present."""
    with broker_pool.own(properties=AUTHORIZER) as broker:
        servers, group = broker.bootstrap_servers, unique("group")
        topic = create_topic(servers, unique("topic"), 1)
        Stage(servers).commit(group, (topic, 0, 0))
        forbid(servers, ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)
        page, err = tmp_path / "group.html", io.StringIO()
        query = GroupQuery(config={"bootstrap.servers": servers}, group=group)
        options = TimelineOptions(query=query, output=page, seconds=0.0, last_s=60.0)
        assert draw_timeline(options, io.StringIO(), err) == 0
        assert "READ on that topic" in err.getvalue()
        (note,) = shown(page)["notes"]
        assert note.startswith("The past is not shown: __consumer_offsets may not be read")


@pytest.mark.integration
@pytest.mark.slow
def test_timeline_counts_compacted_records(broker_pool: RunBrokers, tmp_path: Path) -> None:
    """If the log was compacted, the current state is complete, older changes are lost, and a note reports the loss."""
    properties = EAGER_CLEANER | {"offsets.topic.num.partitions": "1"}
    with broker_pool.own(properties=properties) as broker:
        servers, group = broker.bootstrap_servers, unique("group")
        topic = create_topic(servers, unique("topic"), 1)
        stage = Stage(servers)
        stage.commit(group, (topic, 0, 0))
        config = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            "__consumer_offsets",
            incremental_configs=[ConfigEntry(key, value, incremental_operation=SET) for key, value in config.items()],
        )
        admin = AdminClient({"bootstrap.servers": servers})
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        page = tmp_path / "group.html"
        query = GroupQuery(config={"bootstrap.servers": servers}, group=group)
        options = TimelineOptions(query=query, output=page, seconds=0.0, last_s=600.0)

        def noted() -> list[str]:
            stage.commit(group, (topic, 0, 1))
            assert draw_timeline(options, io.StringIO(), io.StringIO()) == 0
            notes: list[str] = shown(page)["notes"]
            return notes

        (note,) = wait_until(noted, "the note")
        assert "they were compacted" in note


def test_reading_reporter_reports_long_reading_periodically() -> None:
    """A long reading reports its progress and that Ctrl-C ends it; a short one reports nothing."""
    written: list[str] = []
    clock = iter([0.0, REPORT_INTERVAL_S / 2, REPORT_INTERVAL_S, REPORT_INTERVAL_S, REPORT_INTERVAL_S * 1.5]).__next__
    tell = ReadingReporter(written.append, clock)
    for done in (1_000, 2_000, 3_000):
        tell(ReadingProgress(partition=7, done=done, most=1_000_000))
    (words,) = written
    assert words.startswith("reading __consumer_offsets[7]: 2,000 of at most 1,000,000 offsets")
    assert "Ctrl-C" in words


@pytest.mark.integration
@pytest.mark.slow
def test_timeline_of_unknown_group_exits_1(kafka: Broker, tmp_path: Path) -> None:
    """For a group without records and members, the exit code is 1, also if the period begins before the log."""
    Stage(kafka.bootstrap_servers).commit(unique("other"), (Stage(kafka.bootstrap_servers).topic(), 0, 0))
    page, group = tmp_path / "group.html", unique("nobody")
    words = ["timeline", "-b", kafka.bootstrap_servers, "-g", group, "-o", str(page), "--last"]
    for last in ("1m", "30d", "366d"):
        assert main([*words, last]) == 1
        # Records of other groups may have been compacted meanwhile, which adds a note.
        first, second = shown(page)["notes"][-2:]
        assert first.startswith("The coordinator has no records of this group")
        assert second == f"The group could not be described: Group {group} not found."


def test_timeline_with_invalid_recording_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording that is missing, invalid or of another group is rejected before any request."""
    words = ["timeline", "-b", "h:1", "-g", "g", "-o", str(tmp_path / "o"), "--recording"]
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("hello")
    member = Recorded()
    member.join()
    member.written(other)
    refusals = (
        (tmp_path / "none", "No such file"),
        (text, "is not a recording"),
        (other, "of a member of group 'orders-group'"),
    )
    for path, why in refusals:
        assert main([*words, str(path)]) == 2
        printed = capsys.readouterr().err
        assert "--recording" in printed
        assert why in printed


@pytest.mark.integration
@pytest.mark.slow
def test_doctor_of_missing_group_exits_1(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """For a missing group, the command takes only one sample, reports the missing group, and exits with 1."""
    group = unique("nobody")
    assert main(["doctor", "-b", kafka.bootstrap_servers, "-g", group, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["samples"], [one["cause"] for one in document["findings"]]) == (1, ["group_not_found"])
