"""The command line without a broker: arguments, lines, narration, refusals."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

import consumer_membership.cli.command as cli
from consumer_membership import MembershipView, MemberState, __version__
from consumer_membership.cli import main
from consumer_membership.cli.consume import ConsumeOptions, consume, json_line, text_line
from consumer_membership.cli.narration import Narration, named
from consumer_membership.demo.run import DemoOptions
from consumer_membership.devbroker import Way
from consumer_membership.membership.view import Transition
from consumer_membership.types import BrokerAddress, BrokerError, GroupProtocol
from consumer_membership.types import TopicPartition as Partition

#: Nobody listens on it: port 1 is reserved.
NOWHERE = "127.0.0.1:1"
COMMAND = [sys.executable, "-m", "consumer_membership"]


# ---- arguments ------------------------------------------------------------------------------------------------------


def parsed_consume(monkeypatch: pytest.MonkeyPatch, *words: str) -> ConsumeOptions:
    """What `consume` is called with for this command line."""
    calls: list[ConsumeOptions] = []
    monkeypatch.setattr(cli, "consume", lambda options, *_: calls.append(options) or 0)
    assert main(["consume", *words]) == 0
    return calls[0]


def test_consume_takes_its_arguments_into_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option ends in the place that honours it."""
    words = "-b h:1 -g g -t a -t ^b --instance-id i -c client.rack=r -c x=y=z --json --from-beginning -n 5 --timeout 2"
    assert parsed_consume(monkeypatch, *words.split()) == ConsumeOptions(
        topics=("a", "^b"),
        config={
            "bootstrap.servers": "h:1",
            "group.id": "g",
            "group.instance.id": "i",
            "auto.offset.reset": "earliest",
            "client.rack": "r",
            "x": "y=z",
        },
        is_json=True,
        max_records=5,
        timeout_s=2.0,
    )


def test_consume_takes_the_broker_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA_BOOTSTRAP_SERVERS, unless -b or -c names one."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:1")
    words = ("-g", "g", "-t", "t")
    assert parsed_consume(monkeypatch, *words).config["bootstrap.servers"] == "env:1"
    assert parsed_consume(monkeypatch, *words, "-b", "b:1").config["bootstrap.servers"] == "b:1"
    assert parsed_consume(monkeypatch, *words, "-c", "bootstrap.servers=c:1").config["bootstrap.servers"] == "c:1"


def test_demo_takes_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are, and its defaults."""
    calls: list[DemoOptions] = []
    monkeypatch.setattr(cli, "run_demo", lambda options, _: calls.append(options) or 1)
    words = "--version 4.0.0 --partitions 24 --rate 9 --seconds 1.5 --way mock --plain"
    assert main(["demo"]) == 1
    assert main(["demo", *words.split()]) == 1
    assert calls == [
        DemoOptions(),
        DemoOptions(way="mock", version="4.0.0", partitions=24, rate=9, hold_s=1.5, is_plain=True),
    ]


def test_broker_takes_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code is the command's."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(cli, "run_foreground", lambda *words, **named: calls.append((*words[:3], named)) or 7)
    words = "--version 4.1.1 --nodes 3 --port 9092 --way jvm -p a.b=c -p d="
    assert main(["broker", *words.split()]) == 7
    assert calls == [("4.1.1", 3, {"a.b": "c", "d": ""}, {"port": 9092, "way": Way.JVM})]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "required: COMMAND"),
        ("consume -t t", "required: -g/--group"),
        ("consume -g g", "required: -t/--topic"),
        ("consume -g g -t t -c key", "'key' is not KEY=VALUE"),
        ("consume -g g -t t -c =value", "'=value' is not KEY=VALUE"),
        ("consume -g g -t t -n 0", "0 is less than 1"),
        ("consume -g g -t t -n many", "'many' is not a number"),
        ("consume -g g -t t --timeout -1", "expected one argument|less than 0"),
        ("demo --partitions 2", "2 is less than 3"),
        ("demo --version 3.9.0", "invalid choice: '3.9.0'"),
        ("demo --way magic", "invalid choice: 'magic'"),
        ("broker --nodes 0", "0 is less than 1"),
    ],
)
def test_wrong_arguments_are_named(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the last line says what is wrong."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert re.search(complaint, capsys.readouterr().err.splitlines()[-1])


def test_help_fits_a_terminal_and_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a new user sees first."""
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["--help"], ["demo", "--help"], ["consume", "--help"], ["broker", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        if words == ["--help"]:
            assert all(command in shown for command in ("demo", "consume", "broker"))


@pytest.mark.slow
def test_module_is_the_command() -> None:
    """`python -m consumer_membership --version`."""
    asked = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert asked.stdout == f"consumer-membership {__version__}\n"


# ---- records --------------------------------------------------------------------------------------------------------


def a_message(
    key: bytes | None = b"customer-3",
    value: bytes | None = b"hello",
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
) -> Message:
    """A record as confluent-kafka delivers it."""
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
    ],
)
def test_text_line_shows_one_record(message: Message, line: str) -> None:
    """Bytes as UTF-8 where they are, escaped where they are not; never more than one line."""
    assert text_line(message) == f"orders[3]@127 2023-11-14T22:13:20.123Z {line}"


def test_record_without_a_timestamp() -> None:
    """Brokers may store none."""
    message = a_message(timestamp=(TIMESTAMP_NOT_AVAILABLE, 0))
    assert text_line(message) == "orders[3]@127 - key=customer-3 value=hello"
    assert json.loads(json_line(message))["timestamp"] is None


def test_json_line_shows_one_record() -> None:
    """All of it, by fixed names."""
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
def test_json_line_gives_back_any_bytes(value: bytes | None) -> None:
    """Nothing is lost, and a line is one printable line."""
    line = json_line(a_message(value=value))
    assert line.isprintable()
    shown = json.loads(line)["value"]
    back = base64.b64decode(shown["base64"]) if isinstance(shown, dict) else None if shown is None else shown.encode()
    assert back == value


@given(value=st.one_of(st.binary(), st.text().map(str.encode)))
def test_text_line_is_one_printable_line(value: bytes) -> None:
    """No record can move the cursor or colour the terminal."""
    assert text_line(a_message(key=value, value=value)).isprintable()


# ---- narration ------------------------------------------------------------------------------------------------------

VIEW = MembershipView(
    state=MemberState.JOINING,
    protocol=GroupProtocol.CONSUMER,
    group_id="g",
    member_id="m",
    instance_id=None,
    member_epoch=0,
    owned={},
    target=frozenset(),
    unresolved=0,
    pending_revocation=frozenset(),
    waits_for=None,
    waits_since=None,
    waits_until=None,
    coordinator=None,
    heartbeat_interval_s=None,
    session_timeout_s=None,
    last_heartbeat_at=None,
    last_error=None,
    transitions=(),
)


def told(err: io.StringIO) -> list[str]:
    """The lines without the times of day."""
    lines = err.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line) for line in lines)
    return [line[13:] for line in lines]


def test_narration_tells_each_transition_once() -> None:
    """However often it looks."""
    err = io.StringIO()
    narration = Narration(err)
    joins = Transition(at=1.0, old=MemberState.UNSUBSCRIBED, new=MemberState.JOINING, reason="it polls")
    takes = Transition(at=2.0, old=MemberState.JOINING, new=MemberState.RECONCILE, reason="it was answered")
    narration.look(replace(VIEW, transitions=(joins,)), 1.0)
    narration.look(replace(VIEW, transitions=(joins,)), 1.5)
    narration.look(replace(VIEW, transitions=(joins, takes), member_epoch=4), 2.0)
    assert told(err) == ["UNSUBSCRIBED -> JOINING: it polls", "JOINING -> RECONCILE, epoch 4: it was answered"]


def test_narration_says_what_is_waited_for_every_few_seconds() -> None:
    """Not at once, since a join always waits a little; and not at every look."""
    err = io.StringIO()
    narration = Narration(err)
    waiting = replace(
        VIEW,
        waits_for="the group's coordinator to be found",
        waits_since=10.0,
        last_error=BrokerError(code=-195, name="_TRANSPORT", message="refused"),
    )
    for now in range(10, 18):
        narration.look(waiting, float(now))
    words = "the group's coordinator to be found (last error: _TRANSPORT: refused)"
    assert told(err) == [f"waiting for {seconds} s for {words}" for seconds in (2, 5)]


def test_narration_says_when_a_settled_member_lost_its_coordinator() -> None:
    """It still owns its partitions, and nothing comes."""
    err = io.StringIO()
    words = "the group's coordinator to be found"
    searching = replace(VIEW, state=MemberState.STABLE, member_epoch=3, waits_for=words, waits_since=0.0)
    Narration(err).look(searching, 4.0)
    assert told(err) == [f"waiting for 4 s for {words}"]


def test_narration_says_when_nothing_can_be_fetched() -> None:
    """A settled member whose partitions wait for a broker."""
    err = io.StringIO()
    reading = replace(
        VIEW,
        state=MemberState.STABLE,
        member_epoch=3,
        owned={Partition("t", 0): 3},
        coordinator=BrokerAddress(node_id=1, host="h", port=1),
        waits_for="a broker that librdkafka can fetch from",
        waits_since=0.0,
    )
    Narration(err).look(reading, 4.0)
    assert told(err) == ["waiting for 4 s for a broker that librdkafka can fetch from"]


def test_narration_tells_repeated_errors_once() -> None:
    """A broker that is away must not flood the terminal; librdkafka's figures do not make it another error."""
    err = io.StringIO()
    narration = Narration(err)
    for took_ms in range(50):
        text = f"Connect to h:1 failed: Connection refused (after {took_ms}ms in state CONNECT)"
        narration.error(KafkaError(KafkaError._TRANSPORT, text))
        narration.error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert told(err) == [
        "error: _TRANSPORT: Connect to h:1 failed: Connection refused",
        "error: _ALL_BROKERS_DOWN: 1/1 brokers are down",
    ]


def test_narration_wonders_once_about_a_member_without_partitions() -> None:
    """Silence would look like a fault."""
    err = io.StringIO()
    narration = Narration(err)
    idle = replace(
        VIEW,
        state=MemberState.STABLE,
        member_epoch=3,
        coordinator=BrokerAddress(node_id=1, host="h", port=1),
        waits_for="partitions",
        waits_since=0.0,
    )
    for now in range(10):
        narration.look(idle, float(now))
    narration.look(replace(idle, owned={Partition("t", 0): 3}, waits_for=None, waits_since=None), 10.0)
    assert len(told(err)) == 1
    assert told(err)[0].startswith("in the group and without partitions: the group may have more members")


def test_narration_names_the_topics_that_do_not_exist() -> None:
    """A wrong name is the commonest reason."""
    err = io.StringIO()
    narration = Narration(err)
    idle = replace(VIEW, state=MemberState.STABLE, member_epoch=3, missing_topics=frozenset({"orders", "^typo"}))
    for now in range(10):
        narration.look(idle, float(now))
    words = "in the group and without partitions: no topic matches ^typo, topic orders does not exist"
    assert told(err)[-1] == words


def test_narration_goes_on_where_nobody_reads_it() -> None:
    """`2>&1 | head` closes stderr."""

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    Narration(Closed()).tell("something")


def test_partitions_are_named_as_ranges() -> None:
    """By topic, neighbours joined, sorted."""
    places = [TopicPartition("b", 1), *(TopicPartition("a", number) for number in (7, 0, 2, 1, 4, 5))]
    assert named(places) == "a[0-2,4-5,7] b[1]"


# ---- refusals -------------------------------------------------------------------------------------------------------


def refused(**config: object) -> tuple[int, str]:
    """Exit code and stderr of a consume with this configuration."""
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
def test_bad_configuration_is_one_clear_line(config: dict[str, object], words: str) -> None:
    """Exit code 2; key and remedy, no traceback."""
    code, err = refused(**config)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("consumer-membership consume: ")
    assert words in err


@pytest.mark.slow
def test_unreachable_broker_is_told_and_does_not_flood() -> None:
    """What is waited for, every few seconds; exit code 1, since the group never took the member in."""
    words = ["consume", "-b", NOWHERE, "-g", "g", "-t", "t", "--timeout", "4"]
    asked = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60)
    lines = asked.stderr.splitlines()
    assert asked.returncode == 1
    assert asked.stdout == ""
    assert any("waiting for" in line and "coordinator" in line for line in lines)
    assert "UNSUBSCRIBING -> UNSUBSCRIBED" in lines[-1]
    assert len(lines) < 9, asked.stderr
