"""`describe` and `remove-members` without a real broker: tables, JSON, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from consumer_membership.admin import GroupReport, MemberIdentity, PartitionProgress, Removal, RemovalOutcome
from consumer_membership.cli import main
from consumer_membership.cli.groups import (
    DescribeOptions,
    GroupQuery,
    RemovalOptions,
    describe,
    described_json,
    described_text,
    removals_json,
    removals_text,
    run_query,
    table,
)
from consumer_membership.types import BrokerAddress, GroupProtocol
from tests.admin.builders import group, member, partitions
from tests.admin.coordinator import TOPICS, TWO, leaves, scripted
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import PROCESS_S
from tests.wire.groups import fetch_answer_v9

COMMAND = [sys.executable, "-m", "consumer_membership"]
QUERY = GroupQuery(config={}, group="g")
ALL = DescribeOptions(query=QUERY)


def test_query_command_with_invalid_config_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    """For an invalid configuration, the commands print one line with the key, the value and the fix."""
    assert main(["describe", "-b", "h:1", "-g", "g", "-c", "security.protocol=tls"]) == 2
    assert main(["remove-members", "-b", "h:1", "-g", "g", "--instance-id", ""]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("consumer-membership describe: security.protocol='tls': ")
    assert second.startswith("consumer-membership remove-members: instance_ids=")


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_table_aligns_columns_and_omits_empty_ones() -> None:
    """Text is left-aligned and numbers are right-aligned; a dash marks a missing value."""
    rows = [{"NAME": "long name", "N": "1", "NEVER": ""}, {"NAME": "b", "N": "100", "X": "x"}, {"NAME": "c"}]
    assert table(rows, frozenset({"N"})) == [
        "NAME         N  X",
        "long name    1  -",
        "b          100  x",
        "c            -  -",
    ]


def progress(number: int, **fields: object) -> PartitionProgress:
    """Return a partition's row."""
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


def test_described_text_has_headline_members_and_partitions() -> None:
    """One headline precedes the table of members and the table of partitions."""
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


def test_described_text_shows_one_table_alone() -> None:
    """With --members or --offsets only one table is shown; without offsets, no lag is shown."""
    members = list(described_text(REPORT, DescribeOptions(query=QUERY, shows_offsets=False)))
    offsets = list(described_text(REPORT, DescribeOptions(query=QUERY, shows_members=False)))
    assert (len(members), "lag" in members[0]) == (6, False)
    assert (len(offsets), "lag" in offsets[0]) == (6, True)


def test_described_text_of_empty_classic_group_has_no_tables() -> None:
    """An empty group has no headings, and a classic group has no epoch."""
    report = GroupReport(group=group(protocol=GroupProtocol.CLASSIC), coordinator=REPORT.coordinator, partitions=())
    assert list(described_text(report, ALL)) == [
        "Group g: classic protocol, Stable, assignor uniform, coordinator h:9092 (id 1), no members",
        "",
        "The group has no committed offsets and no assigned partitions.",
    ]


def test_described_text_shows_protocol_of_members_during_migration() -> None:
    """The protocol column appears only if members differ from their group."""
    migrating = group(member("a"), member("b", protocol=GroupProtocol.CLASSIC))
    report = GroupReport(group=migrating, coordinator=REPORT.coordinator, partitions=(progress(0),))
    headline, _, head, first, second, *_ = described_text(report, ALL)
    assert headline.endswith("2 members, lag unknown")
    assert "PROTOCOL" in head
    assert ["classic" in line for line in (first, second)] == [False, True]


def test_describe_shows_offsets_that_are_finished_beyond_the_committed_offset() -> None:
    """The column appears only for a group that has such offsets; the JSON has the oldest unfinished offset."""
    rows = (progress(0, committed=7, end=19, lag=12, finished_beyond=10), progress(1, committed=7, end=9, lag=2))
    report = replace(REPORT, partitions=rows)
    assert list(described_text(report, DescribeOptions(query=QUERY, shows_members=False)))[2:] == [
        "TOPIC  PARTITION  COMMITTED  END  LAG  FINISHED BEYOND",
        "t              0          7   19   12               10",
        "t              1          7    9    2                -",
    ]
    shown = json.loads(described_json(report, ALL))["partitions"]
    assert [(one["finished_beyond_committed"], one["oldest_unfinished_offset"]) for one in shown] == [
        (10, 7),
        (0, None),
    ]


def test_described_json_has_all_values() -> None:
    """The JSON has all values of the tables, and null for unknown ones."""
    document = json.loads(described_json(REPORT, ALL))
    assert {key: value for key, value in document.items() if key not in ("members", "partitions")} == {
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
    assert document["members"][0] == {
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
        "target_assignment": [{"topic": "t", "partition": number} for number in (0, 1)],
        "note": None,
    }
    assert document["partitions"][2] == {
        "topic": "t",
        "partition": 2,
        "committed_offset": None,
        "end_offset": 5,
        "lag": None,
        "finished_beyond_committed": 0,
        "oldest_unfinished_offset": None,
        "owner": "m-1",
        "next_owner": "m-2",
        "note": "nothing committed",
    }


REMOVALS = (
    Removal(
        requested=MemberIdentity(instance_id="i"),
        member=member("m-1", "i"),
        outcome=RemovalOutcome.REMOVED,
        message="alive",
    ),
    Removal(
        requested=MemberIdentity(member_id="m-2"), member=member("m-2"), outcome=RemovalOutcome.REMOVED, message="alive"
    ),
    Removal(requested=MemberIdentity(member_id="x"), member=None, outcome=RemovalOutcome.UNKNOWN, message="who?"),
)


def test_removals_text_shows_result_of_each_member() -> None:
    """A message that applies to several members appears once."""
    assert list(removals_text(REMOVALS, RemovalOptions(query=QUERY))) == [
        "Group g: 2 of 3 members removed",
        "",
        "REQUESTED ID  RESULT   MEMBER ID  INSTANCE ID  CLIENT ID  HOST      EPOCH",
        "i             removed  m-1        i            c          10.0.0.1  5",
        "m-2           removed  m-2        -            c          10.0.0.1  5",
        "x             unknown  -          -            -          -         -",
        "",
        "i, m-2: alive",
        "x: who?",
    ]


def test_removals_text_headline_states_dry_run_and_empty_group() -> None:
    """The first line marks a dry run, so that it is not mistaken for a real removal."""
    dry = RemovalOptions(query=QUERY, is_dry_run=True)
    summary = "Group g: 2 of 3 members would be removed (dry run: no member was removed)"
    assert next(removals_text(REMOVALS, dry)) == summary
    assert list(removals_text((), dry)) == ["Group g: the group has no members"]


def test_removals_json_has_result_of_each_member() -> None:
    """The JSON is one object with a result for each member."""
    document = json.loads(removals_json(REMOVALS, RemovalOptions(query=QUERY)))
    assert (document["group_id"], document["dry_run"]) == ("g", False)
    first, _, last = document["results"]
    assert first["member"]["member_id"] == "m-1"
    assert {key: first[key] for key in ("requested", "outcome", "succeeded", "message")} == {
        "requested": {"member_id": None, "instance_id": "i"},
        "outcome": "removed",
        "succeeded": True,
        "message": "alive",
    }
    assert last == {
        "requested": {"member_id": "x", "instance_id": None},
        "outcome": "unknown",
        "succeeded": False,
        "message": "who?",
        "member": None,
    }


# ---- the commands ---------------------------------------------------------------------------------------------------


def test_describe_and_remove_members_return_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0, or 1 if one member could not be removed."""
    with ScriptedBroker(scripted(describe=TWO, leave=leaves, fetch=fetch_answer_v9({})), topics=TOPICS) as broker:
        where = ["-b", broker.bootstrap_servers, "-g", "g"]
        assert main(["describe", *where]) == 0
        assert main(["remove-members", *where, "--all", "--json"]) == 0
        assert main(["remove-members", *where, "--member-id", "d", "--member-id", "x"]) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("Group g: consumer protocol (KIP-848), Stable, epoch 6 (assignment epoch 5), ")
    assert "Group g: 1 of 2 members removed\n" in printed.out
    assert "'x'; existing member ids: d, s" in printed.out


@pytest.mark.slow
def test_describe_of_unreachable_cluster_exits_1_with_one_line() -> None:
    """A network failure causes neither a traceback nor log output."""
    words = [*COMMAND, "describe", "-b", "127.0.0.1:1", "-g", "g", "--timeout", "2"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PROCESS_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"consumer-membership describe: No broker can be reached: .*127\.0\.0\.1:1.*\n", done.stderr)


def test_interrupted_query_command_exits_130() -> None:
    """Ctrl-C causes no traceback and exit code 128 + SIGINT."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    err = io.StringIO()
    assert (run_query("describe", interrupted, io.StringIO(), err), err.getvalue()) == (130, "")  # type: ignore[arg-type]  # it raises


def test_describe_into_closed_pipe_exits_0() -> None:
    """If stdout is a closed pipe, as after `| head -1`, the exit code is 0."""
    read, write = os.pipe()
    os.close(read)
    with ScriptedBroker(scripted(describe=TWO)) as broker, os.fdopen(write, "w") as out:
        query = GroupQuery(config={"bootstrap.servers": broker.bootstrap_servers}, group="g")
        assert describe(DescribeOptions(query=query, shows_offsets=False), out, io.StringIO()) == 0
