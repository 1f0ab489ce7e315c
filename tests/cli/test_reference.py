"""The reference of the command line shows the current options, exit codes and JSON keys of each command."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from consumer_membership.admin import (
    GroupListing,
    GroupReport,
    ListedGroup,
    MemberIdentity,
    PartitionProgress,
    Removal,
    RemovalOutcome,
)
from consumer_membership.cli import main
from consumer_membership.cli.command import COMMANDS
from consumer_membership.cli.consume import json_line
from consumer_membership.cli.dead_letters import DeadLetterOptions, json_of, replayed_json
from consumer_membership.cli.doctor import findings_json
from consumer_membership.cli.groups import DescribeOptions, GroupQuery, RemovalOptions, described_json, removals_json
from consumer_membership.cli.overview import ListOptions, lag_json, listed_json
from consumer_membership.health.handlers import RecordDeadLettered
from consumer_membership.membership.events import CoordinatorLost, Polled
from consumer_membership.membership.member import MemberCore
from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.rates import Rates
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.processing.dead_letter_replay import LeftOut, ReplayReport
from consumer_membership.types import BrokerAddress, TopicPartition
from tests.admin.builders import group, member, partitions
from tests.observe.builders import seen, survey
from tests.recorder.members import Recorded
from tests.support.command_line_tables import DOCUMENT, renewed
from tests.support.documents import all_blocks, section

BROKER = BrokerAddress(node_id=1, host="h", port=1)
QUERY = GroupQuery(config={}, group="g")
ONE = group(member("m", assigned=partitions(0)))
REPORT = GroupReport(
    group=ONE,
    coordinator=BROKER,
    partitions=(
        PartitionProgress(topic="t", partition=0, committed=5, end=9, lag=4, owner="m", next_owner=None, note=""),
    ),
)


def test_command_line_document_has_the_generated_regions() -> None:
    """The document has the current regions; renew them with `python -m tests.support.command_line_tables`."""
    text = DOCUMENT.read_text()
    assert text == renewed(text)


def test_command_line_document_has_a_section_for_each_command() -> None:
    """The document has a section for each command, after the sections about the common behavior."""
    headings = re.findall(r"^## ([a-z-]+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert set(headings) == {one.name for one in COMMANDS}


def consumed(_: Path) -> str:
    """Return the JSON of a record with a header that is not UTF-8."""
    return json_line(
        Message(
            topic="t",
            partition=0,
            offset=0,
            key=b"k",
            value=b"v",
            headers=[("trace", b"\xff")],
            timestamp=(TIMESTAMP_CREATE_TIME, 0),
        )
    )


def listed(_: Path) -> str:
    """Return the JSON of a list without the groups of one broker."""
    one = ListedGroup(group_id="g", protocol_type="consumer", state="Stable", kind="consumer")
    return listed_json(GroupListing(groups=(one,), errors={BROKER: "no response"}), ListOptions(config={}))


def described(_: Path) -> str:
    """Return the JSON of a described group."""
    return described_json(REPORT, DescribeOptions(query=QUERY))


def lagging(_: Path) -> str:
    """Return the JSON of a lag."""
    return lag_json(REPORT, Rates(), watches=False)


def diagnosed(_: Path) -> str:
    """Return the JSON of a diagnosis of a stalled member."""
    watched = seen(survey(ONE, {0: (5, 10)}), survey(ONE, {0: (5, 12)}, at=12.0))
    return findings_json(watched, diagnose(watched))


def removed(_: Path) -> str:
    """Return the JSON of the removal of an unknown member."""
    removal = Removal(
        requested=MemberIdentity(member_id="x"), member=None, outcome=RemovalOutcome.UNKNOWN, message="no such member"
    )
    return removals_json([removal], RemovalOptions(query=QUERY))


def checkpoint(folder: Path) -> list[str]:
    """Return the arguments of `checkpoint show` for a folder with one completed batch."""
    for name, text in {
        "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":1}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "metadata": '{"id":"1"}',
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return ["checkpoint", "show", str(folder), "--json"]


def replay(folder: Path) -> list[str]:
    """Return the arguments of `replay` for a recording that is replayed with a difference."""
    recorded = Recorded()
    recorded.join()
    recorded.tell(Polled(), CoordinatorLost(reason="broken"))
    dead = RecordDeadLettered(partition=TopicPartition("orders", 0), offset=17, attempts=10, error="ValueError")
    recorded.recorder.note_handlers(dead, recorded.now)
    recorded.written(folder / "a")
    return ["replay", str(folder / "a"), "--json", "--explain", "--step"]


def keys_of(value: object, path: str = "") -> Iterator[str]:
    """Yield the path of each key, for example `groups.state`."""
    match value:
        case dict():
            for key, inner in value.items():
                yield f"{path}{key}"
                yield from keys_of(inner, f"{path}{key}.")
        case list():
            for inner in value:
                yield from keys_of(inner, path)


def documented(name: str) -> set[str]:
    """Return the keys in the JSON of a command's section."""
    (block,) = (one for one in all_blocks(section(DOCUMENT.read_text(), name)) if one.language == "json")
    return set(keys_of(json.loads(block.code)))


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("consume", consumed),
        ("list", listed),
        ("describe", described),
        ("lag", lagging),
        ("doctor", diagnosed),
        ("remove-members", removed),
    ],
)
def test_command_line_document_shows_the_json_keys(name: str, output: Callable[[Path], str], tmp_path: Path) -> None:
    """The JSON in the section of a command has exactly the keys of its output."""
    assert set(keys_of(json.loads(output(tmp_path)))) == documented(name)


@pytest.mark.parametrize(("name", "prepare"), [("checkpoint", checkpoint), ("replay", replay)])
def test_command_line_document_shows_the_json_keys_of_files(
    name: str,
    prepare: Callable[[Path], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For commands that read a file, the JSON in the section also has exactly the keys of the output."""
    words = prepare(tmp_path)
    monkeypatch.setattr(MemberCore, "_on_coordinator_lost", lambda *_: None)
    main(words)
    assert set(keys_of(json.loads(capsys.readouterr().out))) == documented(name)


def test_command_line_document_shows_the_json_keys_of_dead_letters() -> None:
    """The section of `dead-letters` has two JSON blocks: that of `show`, and that of `replay`."""
    letter = DeadLetter.of(Message(topic="t", partition=0, offset=0, headers=[("trace", b"1")]))
    report = ReplayReport(
        replayed=Counter(orders=1), started_at={0: 1}, left_out=[LeftOut(partition=0, offset=2, reason="no topic")]
    )
    options = DeadLetterOptions(topic="t", action="replay", config={})
    outputs = (json_of(letter, with_content=True), replayed_json(report, options))
    blocks = [one for one in all_blocks(section(DOCUMENT.read_text(), "dead-letters")) if one.language == "json"]
    assert [set(keys_of(json.loads(block.code))) for block in blocks] == [
        set(keys_of(json.loads(output))) for output in outputs
    ]
