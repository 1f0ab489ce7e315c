"""`describe` and `remove-members` without a real broker: tables, JSON, refusals and exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest

from consumer_membership.admin import GroupReport, MemberIdentity, PartitionProgress, Removal, RemovalOutcome
from consumer_membership.cli import main
from consumer_membership.cli.groups import (
    Asking,
    DescribeOptions,
    RemovalOptions,
    answered,
    describe,
    described_json,
    described_text,
    removals_json,
    removals_text,
    table,
)
from consumer_membership.types import BrokerAddress, GroupProtocol
from tests.admin.builders import group, member, partitions
from tests.admin.coordinator import TOPICS, TWO, leaves, scripted
from tests.support.scripted_broker import ScriptedBroker
from tests.wire.groups import fetch_answer_v9

COMMAND = [sys.executable, "-m", "consumer_membership"]
ASKING = Asking(config={}, group="g")
ALL = DescribeOptions(asking=ASKING)


def test_configuration_that_cannot_work_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """One line with key, value and remedy; exit code 2."""
    assert main(["describe", "-b", "h:1", "-g", "g", "-c", "security.protocol=tls"]) == 2
    assert main(["remove-members", "-b", "h:1", "-g", "g", "--instance-id", ""]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("consumer-membership describe: security.protocol='tls': ")
    assert second.startswith("consumer-membership remove-members: instance_ids=")


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_table_is_aligned_and_leaves_out_what_nobody_has() -> None:
    """Texts to the left, numbers to the right, a dash where one row lacks what another has."""
    rows = [{"NAME": "long name", "N": "1", "NEVER": ""}, {"NAME": "b", "N": "100", "X": "x"}, {"NAME": "c"}]
    assert table(rows, frozenset({"N"})) == [
        "NAME         N  X",
        "long name    1  -",
        "b          100  x",
        "c            -  -",
    ]


def progress(number: int, **fields: object) -> PartitionProgress:
    """A partition's row."""
    values: dict[str, object] = {"committed": None, "end": None, "lag": None, "owner": None, "next_owner": None}
    return PartitionProgress(topic="t", partition=number, **{**values, **fields})  # type: ignore[arg-type]


REPORT = GroupReport(
    group=group(
        member("m-1", "i", assigned=partitions(0, 1, 2), target=partitions(0, 1)),
        member("m-2", epoch=4, target=partitions(2)),
        member("m-3", "j", epoch=-2),
    ),
    coordinator=BrokerAddress(node_id=1, host="h", port=9092),
    partitions=(
        progress(0, committed=1_000, end=3_500, lag=2_500, owner="m-1"),
        progress(1, committed=7, end=7, lag=0, owner="m-1"),
        progress(2, end=5, owner="m-1", next_owner="m-2", note="nothing committed"),
    ),
)


HEADLINE = "Group g: consumer protocol (KIP-848), Stable, epoch 6, assignor uniform, coordinator h:9092 (id 1)"
KEEPS = "keeps its partitions until its session ends"


def test_group_is_shown_with_its_members_and_partitions() -> None:
    """First what it is in one line, then who has what, then how far."""
    assert list(described_text(REPORT, ALL)) == [
        f"{HEADLINE}, 3 members, lag 2,500 (unknown in 1 of 3 partitions)",
        "",
        "MEMBER ID  INSTANCE ID  CLIENT ID  HOST      EPOCH  ASSIGNED  TARGET  SUBSCRIBED  NOTE",
        "m-1        i            c          10.0.0.1      5  t[0-2]    t[0-1]  t           -",
        "m-2        -            c          10.0.0.1      4  -         t[2]    t           -",
        f"m-3        j            c          10.0.0.1   away  -         -       t           {KEEPS}",
        "",
        "TOPIC  PARTITION  COMMITTED    END    LAG  OWNER  NEXT OWNER  NOTE",
        "t              0      1,000  3,500  2,500  m-1    -           -",
        "t              1          7      7      0  m-1    -           -",
        "t              2          -      5      -  m-1    m-2         nothing committed",
    ]


def test_one_table_alone() -> None:
    """--members and --offsets; without offsets there is no lag to be said."""
    members = list(described_text(REPORT, DescribeOptions(asking=ASKING, shows_offsets=False)))
    offsets = list(described_text(REPORT, DescribeOptions(asking=ASKING, shows_members=False)))
    assert (len(members), "lag" in members[0]) == (6, False)
    assert (len(offsets), "lag" in offsets[0]) == (6, True)


def test_empty_classic_group_says_that_there_is_nothing() -> None:
    """No headings over nothing, and no epoch where there is none."""
    report = GroupReport(group=group(protocol=GroupProtocol.CLASSIC), coordinator=REPORT.coordinator, partitions=())
    assert list(described_text(report, ALL)) == [
        "Group g: classic protocol, Stable, assignor uniform, coordinator h:9092 (id 1), no members",
        "",
        "Nothing is committed, and nobody has partitions.",
    ]


def test_group_in_migration_shows_which_members_are_classic() -> None:
    """The column is there only where members differ from their group."""
    migrating = group(member("a"), member("b", protocol=GroupProtocol.CLASSIC))
    report = GroupReport(group=migrating, coordinator=REPORT.coordinator, partitions=(progress(0),))
    headline, _, head, first, second, *_ = described_text(report, ALL)
    assert headline.endswith("2 members, lag unknown")
    assert "PROTOCOL" in head
    assert ["classic" in line for line in (first, second)] == [False, True]


def test_group_as_json() -> None:
    """Everything that the tables say, as values; null for what is not known."""
    told = json.loads(described_json(REPORT, ALL))
    assert {key: value for key, value in told.items() if key not in ("members", "partitions")} == {
        "group_id": "g",
        "protocol": "consumer",
        "protocol_type": "consumer",
        "state": "Stable",
        "epoch": 6,
        "assignment_epoch": 6,
        "assignor": "uniform",
        "coordinator": {"id": 1, "host": "h", "port": 9092},
        "lag": 2500,
    }
    assert told["members"][0] == {
        "member_id": "m-1",
        "instance_id": "i",
        "rack_id": None,
        "client_id": "c",
        "host": "10.0.0.1",
        "epoch": 5,
        "is_away": False,
        "protocol": "consumer",
        "topics": ["t"],
        "pattern": None,
        "assignment": [{"topic": "t", "partition": number} for number in (0, 1, 2)],
        "target": [{"topic": "t", "partition": number} for number in (0, 1)],
        "note": None,
    }
    assert told["partitions"][2] == {
        "topic": "t",
        "partition": 2,
        "committed": None,
        "end": 5,
        "lag": None,
        "owner": "m-1",
        "next_owner": "m-2",
        "note": "nothing committed",
    }


REMOVALS = (
    Removal(
        asked=MemberIdentity(instance_id="i"),
        member=member("m-1", "i"),
        outcome=RemovalOutcome.REMOVED,
        message="alive",
    ),
    Removal(
        asked=MemberIdentity(member_id="m-2"), member=member("m-2"), outcome=RemovalOutcome.REMOVED, message="alive"
    ),
    Removal(asked=MemberIdentity(member_id="x"), member=None, outcome=RemovalOutcome.UNKNOWN, message="who?"),
)


def test_removals_are_shown_each_with_its_result() -> None:
    """What follows is said once for all whom it concerns."""
    assert list(removals_text(REMOVALS, RemovalOptions(asking=ASKING))) == [
        "Group g: 2 of 3 removed",
        "",
        "ASKED FOR  RESULT   MEMBER ID  INSTANCE ID  CLIENT ID  HOST      EPOCH",
        "i          removed  m-1        i            c          10.0.0.1  5",
        "m-2        removed  m-2        -            c          10.0.0.1  5",
        "x          unknown  -          -            -          -         -",
        "",
        "i, m-2: alive",
        "x: who?",
    ]


def test_dry_run_and_nobody_say_so_in_the_first_line() -> None:
    """Nobody takes a dry run for the real one."""
    dry = RemovalOptions(asking=ASKING, is_dry_run=True)
    assert next(removals_text(REMOVALS, dry)) == "Group g: 2 of 3 would be removed (dry run, nothing was done)"
    assert list(removals_text((), dry)) == ["Group g: no members, nobody to remove"]


def test_removals_as_json() -> None:
    """One object with a result for each."""
    told = json.loads(removals_json(REMOVALS, RemovalOptions(asking=ASKING)))
    assert (told["group_id"], told["dry_run"]) == ("g", False)
    first, _, last = told["results"]
    assert first["member"]["member_id"] == "m-1"
    assert {key: first[key] for key in ("asked", "outcome", "succeeded", "message")} == {
        "asked": {"member_id": None, "instance_id": "i"},
        "outcome": "removed",
        "succeeded": True,
        "message": "alive",
    }
    assert last == {
        "asked": {"member_id": "x", "instance_id": None},
        "outcome": "unknown",
        "succeeded": False,
        "message": "who?",
        "member": None,
    }


# ---- the commands ---------------------------------------------------------------------------------------------------


def test_commands_against_a_coordinator(capsys: pytest.CaptureFixture[str]) -> None:
    """From the arguments to the exit code: 0, and 1 as soon as one member could not be removed."""
    with ScriptedBroker(scripted(describe=TWO, leave=leaves, fetch=fetch_answer_v9({})), topics=TOPICS) as broker:
        where = ["-b", broker.bootstrap_servers, "-g", "g"]
        assert main(["describe", *where]) == 0
        assert main(["remove-members", *where, "--all", "--json"]) == 0
        assert main(["remove-members", *where, "--member-id", "d", "--member-id", "x"]) == 1
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("Group g: consumer protocol (KIP-848), Stable, epoch 6 (assignment of 5), ")
    assert "Group g: 1 of 2 removed\n" in said.out
    assert "'x'; its member ids: d, s" in said.out


@pytest.mark.slow
def test_unreachable_cluster_is_one_line() -> None:
    """No traceback and no log for what the network does; exit code 1."""
    words = [*COMMAND, "describe", "-b", "127.0.0.1:1", "-g", "g", "--timeout", "2"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"consumer-membership describe: No broker can be reached: .*127\.0\.0\.1:1.*\n", done.stderr)


def test_interrupted_question_ends_as_shells_expect() -> None:
    """Ctrl-C: no traceback, 128 + SIGINT."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    err = io.StringIO()
    assert (answered("describe", interrupted, io.StringIO(), err), err.getvalue()) == (130, "")  # type: ignore[arg-type]  # it raises


def test_reader_that_has_seen_enough_is_no_failure() -> None:
    """`| head -1` closes the pipe."""
    read, write = os.pipe()
    os.close(read)
    with ScriptedBroker(scripted(describe=TWO)) as broker, os.fdopen(write, "w") as out:
        asking = Asking(config={"bootstrap.servers": broker.bootstrap_servers}, group="g")
        assert describe(DescribeOptions(asking=asking, shows_offsets=False), out, io.StringIO()) == 0
