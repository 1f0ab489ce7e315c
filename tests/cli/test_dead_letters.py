"""`dead-letters` without a broker: arguments, text and JSON."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from consumer_membership.cli import dead_letters as command
from consumer_membership.cli import main
from consumer_membership.cli.dead_letters import (
    DeadLetterOptions,
    json_of,
    listed_text,
    replayed_text,
    shown_text,
)
from consumer_membership.devbroker.tcp_ports import draw_ports
from consumer_membership.processing.dead_letter_headers import DeadLetter, headers_of
from consumer_membership.processing.dead_letter_replay import LeftOut, ReplayReport
from consumer_membership.processing.dead_letter_topic import LetterSelection

WHEN_MS = 1_700_000_000_123


def letter(value: bytes | None = b"value", message: str = "no funds") -> DeadLetter:
    """Return a dead letter as it is read."""
    original = Message(
        topic="orders",
        partition=1,
        offset=17,
        key=b"key",
        value=value,
        headers=[("trace", b"\xff")],
        timestamp=(TIMESTAMP_CREATE_TIME, WHEN_MS),
    )
    return DeadLetter.of(
        Message(
            topic="orders.dlq",
            partition=0,
            offset=5,
            key=b"key",
            value=value,
            headers=list(headers_of(original, ValueError(message), 3, "billing")),
            timestamp=(TIMESTAMP_CREATE_TIME, WHEN_MS + 1_000),
        )
    )


BARE = DeadLetter.of(Message(topic="orders.dlq", partition=0, offset=6, value=b"\xff"))


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> DeadLetterOptions:
    """Return the options with which this command line calls `dead_letters`."""
    calls: list[DeadLetterOptions] = []
    monkeypatch.setattr(command, "dead_letters", lambda options, *_: calls.append(options) or 0)
    assert main(["dead-letters", *words]) == 0
    return calls[0]


# ---- arguments ------------------------------------------------------------------------------------------------------


def test_arguments_set_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option sets its field; without options everything is selected."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:1")
    config = {"bootstrap.servers": "env:1"}
    assert called(monkeypatch, "t", "list") == DeadLetterOptions(topic="t", action="list", config=config)
    words = (
        "t show --partition 0 --partition 2 --offsets 10-20 --exception E --original-topic o -n 3 --json --timeout 2"
    )
    assert called(monkeypatch, *words.split()) == DeadLetterOptions(
        topic="t",
        action="show",
        config=config,
        selection=LetterSelection(
            partitions=frozenset({0, 2}),
            first_offset=10,
            last_offset=20,
            exception="E",
            original_topic="o",
            most=3,
        ),
        is_json=True,
        timeout_s=2.0,
    )


def test_arguments_of_replay_set_group_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options set the group and the target topic; the default group contains the topic's name."""
    assert called(monkeypatch, "t", "replay").replay_group == "t.replay"
    chosen = called(monkeypatch, "t", "replay", "--to", "other", "-g", "again", "--dry-run")
    assert (chosen.to, chosen.replay_group, chosen.is_dry_run) == ("other", "again", True)


@pytest.mark.parametrize(
    ("given", "expected"), [("17", (17, 17)), ("10-20", (10, 20)), ("10-", (10, None)), ("3-3", (3, 3))]
)
def test_offsets_are_a_number_or_a_range(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: tuple[int, int | None]
) -> None:
    """Both ends of a range are included; an open range ends at the end of the partition."""
    selection = called(monkeypatch, "t", "list", "--offsets", given).selection
    assert (selection.first_offset, selection.last_offset) == expected


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("t", "required: ACTION"),
        ("t drop", "invalid choice: 'drop'"),
        ("t list --offsets x", "invalid value 'x': an offset or a range such as 10-20 is required"),
        ("t list --offsets 5-x", "invalid value '5-x'"),
        ("t list --offsets 20-10", "the range ends before it begins"),
        ("t list --partition -1", "expected one argument|less than 0"),
        ("t list -n 0", "0 is less than 1"),
        ("t list --to other", "argument --to: only replay accepts it"),
        ("t show --group g", "argument --group: only replay accepts it"),
        ("t show --dry-run", "argument --dry-run: only replay accepts it"),
    ],
)
def test_invalid_arguments_of_dead_letters_exit_2(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For an invalid argument, the exit code is 2, and the last line has the argument and the reason."""
    with pytest.raises(SystemExit, match="2"):
        main(["dead-letters", *words.split()])
    error = capsys.readouterr().err.splitlines()[-1]
    assert any(one in error for one in complaint.split("|")), error


def test_command_without_broker_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a broker, the command exits with 1, and stderr has only one line, with the reason."""
    words = ["dead-letters", "t", "list", "-b", f"127.0.0.1:{draw_ports(1)[0]}", "--timeout", "0.2"]
    assert main(words) == 1
    assert capsys.readouterr().err.startswith(
        "consumer-membership dead-letters: topic 't' cannot be looked up: Failed to get metadata: "
    )


# ---- output ---------------------------------------------------------------------------------------------------------


def test_list_has_a_row_for_each_letter() -> None:
    """Columns without any value are omitted; a letter without headers has dashes."""
    assert [line.split() for line in listed_text([letter(), BARE])] == [
        ["PARTITION", "OFFSET", "TIME", "ORIGINAL", "GROUP", "ATTEMPTS", "KEY", "EXCEPTION", "MESSAGE"],
        ["0", "5", "2023-11-14T22:13:21.123Z", "orders[1]@17", "billing", "3", "key", "ValueError", "no", "funds"],
        ["0", "6", *"-------"],
    ]
    assert list(listed_text([])) == ["No dead letters."]


def test_show_has_all_content() -> None:
    """Bytes that are not UTF-8 are escaped, and the stack has its own lines."""
    lines = list(shown_text([letter(), BARE]))
    assert lines[0] == "orders.dlq[0]@5"
    assert [line for line in lines if line.startswith(("  original", "  value", "  message", "    trace"))] == [
        "  original       orders[1]@17",
        "  original time  2023-11-14T22:13:20.123Z",
        "  message        no funds",
        "  value          value",
        r"    trace: \xff",
        r"  value          \xff",
    ]
    assert "    ValueError: no funds" in lines
    assert lines[lines.index("orders.dlq[0]@6") - 1] == ""
    assert list(shown_text([])) == ["No dead letters."]


def test_message_of_several_lines_stays_in_its_cell() -> None:
    """`list` shows the beginning of a long message; control characters are escaped when the line is written."""
    (_, row) = listed_text([letter(message="x" * 500)])
    assert row.endswith("x" * 40 + "...")


def test_json_of_list_is_that_of_show_without_the_content() -> None:
    """`show` adds the value, the headers and the stack; unknown values are null."""
    shown, listed = (json.loads(json_of(letter(), with_content=shows)) for shows in (True, False))
    assert shown == {
        **listed,
        "value": "value",
        "headers": [{"key": "trace", "value": {"base64": "/w=="}}],
        "stack": "ValueError: no funds\n",
    }
    bare = json.loads(json_of(BARE, with_content=True))
    assert (bare["original_topic"], bare["value"], bare["headers"]) == (None, {"base64": "/w=="}, [])


def test_replay_reports_numbers_and_reasons() -> None:
    """The first line has the number and the group; a dry run states that nothing was written."""
    options = DeadLetterOptions(topic="t", action="replay", config={})
    report = ReplayReport(
        replayed=Counter(b=1, a=2),
        replayed_before=4,
        started_at={1: 9},
        left_out=[LeftOut(partition=0, offset=52, reason="no topic")],
    )
    assert list(replayed_text(report, options)) == [
        "t: 3 dead letters replayed, group t.replay",
        "Replayed earlier: 4",
        "Replayed earlier: all before offset 9 of t[1]",
        "",
        "TOPIC  RECORDS",
        "a            2",
        "b            1",
        "",
        "Not replayed: t[0]@52: no topic",
    ]
    dry = DeadLetterOptions(topic="t", action="replay", config={}, is_dry_run=True)
    assert next(replayed_text(ReplayReport(replayed=Counter(a=1)), dry)) == (
        "t: 1 dead letter would be replayed (dry run: no record was written), group t.replay"
    )


@pytest.mark.parametrize(
    ("exception", "is_selected"),
    [("ValueError", True), ("tests.Other", False), ("Value", False), ("KeyError", False)],
)
def test_selection_by_exception_compares_class_names(exception: str, is_selected: bool) -> None:  # noqa: FBT001
    """The class name matches with or without its module, never a part of it."""
    assert LetterSelection(exception=exception).includes(letter()) is is_selected
