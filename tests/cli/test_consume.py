"""`consume` without a broker: record lines and errors."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import example, given
from hypothesis import strategies as st

from consumer_membership.cli.consume import ConsumeOptions, consume, json_line, text_line
from tests.support.waiting import PROCESS_S

#: An address at which no server listens: port 1 is reserved.
NOWHERE = "127.0.0.1:1"
COMMAND = [sys.executable, "-m", "consumer_membership"]


def a_message(
    key: bytes | None = b"customer-3",
    value: bytes | None = b"hello",
    headers: list[tuple[str, str | bytes | None]] | None = None,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
) -> Message:
    """Return a record as confluent-kafka delivers it."""
    return Message(topic="orders", partition=3, offset=127, key=key, value=value, headers=headers, timestamp=timestamp)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (a_message(), "key=customer-3 value=hello"),
        (a_message(key=None, value=None), "key=null value=null"),
        (a_message(value="schön 🎉".encode()), "key=customer-3 value=schön 🎉"),
        (a_message(value=b"two\nlines\x1b[31m"), r"key=customer-3 value=two\nlines\x1b[31m"),
        (a_message(value=b"\xff\x00ab"), r"key=customer-3 value=\xff\x00ab"),
        (a_message(headers=[("trace", b"7"), ("none", None)]), "key=customer-3 value=hello trace:7 none:null"),
        (a_message(headers=[("a\n\x1b[2J", b"7")]), r"key=customer-3 value=hello a\n\x1b[2J:7"),
    ],
)
def test_text_line_shows_one_record(message: Message, line: str) -> None:
    """Valid UTF-8 is shown as text, other bytes are escaped, and a record never has more than one line."""
    assert text_line(message) == f"orders[3]@127 2023-11-14T22:13:20.123Z {line}"


def test_record_lines_without_timestamp_show_dash_or_null() -> None:
    """A record without a timestamp, which brokers may store, has a dash in text and null in JSON."""
    message = a_message(timestamp=(TIMESTAMP_NOT_AVAILABLE, 0))
    assert text_line(message) == "orders[3]@127 - key=customer-3 value=hello"
    assert json.loads(json_line(message))["timestamp"] is None


def test_json_line_has_all_fields_of_record() -> None:
    """The JSON object has all fields of the record, with fixed names."""
    assert json.loads(json_line(a_message(headers=[("trace", b"\xff"), ("trace", None)]))) == {
        "topic": "orders",
        "partition": 3,
        "offset": 127,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "key": "customer-3",
        "value": "hello",
        "headers": [{"key": "trace", "value": {"base64": "/w=="}}, {"key": "trace", "value": None}],
    }


@given(value=st.one_of(st.none(), st.binary(), st.text().map(str.encode)))
@example(value="\u2028\u009b31m\x1c\ue000".encode())
def test_json_line_round_trips_any_bytes(value: bytes | None) -> None:
    """A JSON line is one printable line, from which each byte of the value can be restored."""
    line = json_line(a_message(value=value))
    assert line.isprintable()
    shown = json.loads(line)["value"]
    back = base64.b64decode(shown["base64"]) if isinstance(shown, dict) else None if shown is None else shown.encode()
    assert back == value


@given(value=st.one_of(st.binary(), st.text().map(str.encode)), name=st.text())
def test_text_line_is_one_printable_line(value: bytes, name: str) -> None:
    """No key, value or header can move the cursor or color the terminal."""
    assert text_line(a_message(key=value, value=value, headers=[(name, value)])).isprintable()


# ---- refusals -------------------------------------------------------------------------------------------------------


def refused(**config: object) -> tuple[int, str]:
    """Return exit code and stderr of a consume with this configuration."""
    out, err = io.StringIO(), io.StringIO()
    given = {"bootstrap.servers": NOWHERE, "group.id": "g", **config}
    code = consume(ConsumeOptions(topics=("t",), config=given, timeout_s=0.1), out, err)
    assert out.getvalue() == ""
    return code, err.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"no.such.key": "1"}, "no.such.key"),
        ({"group.id": ""}, "group.id"),
        ({"bootstrap.servers": None}, "bootstrap.servers"),
        ({"security.protocol": "tls"}, "security.protocol"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/file"}, "ssl.ca.location"),
        ({"auto.offset.reset": "middle"}, "auto.offset.reset"),
    ],
)
def test_consume_with_invalid_config_exits_2_with_one_line(config: dict[str, object], words: str) -> None:
    """For an invalid configuration, the only line has the key and the fix."""
    code, err = refused(**config)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("consumer-membership consume: ")
    assert words in err


@pytest.mark.slow
def test_consume_reports_unreachable_broker_every_few_seconds() -> None:
    """The command repeatedly reports why it waits, and exits with 1 because it never joined the group."""
    words = ["consume", "-b", NOWHERE, "-g", "g", "-t", "t", "--timeout", "4"]
    asked = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=PROCESS_S)
    lines = asked.stderr.splitlines()
    assert asked.returncode == 1
    assert asked.stdout == ""
    assert any("waiting for" in line and "coordinator" in line for line in lines)
    assert "UNSUBSCRIBING -> UNSUBSCRIBED" in lines[-1]
    assert len(lines) < 9, asked.stderr
