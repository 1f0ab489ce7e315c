"""The arguments of all commands, the help, and texts that arguments reject."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import consumer_membership.cli.command as cli
from consumer_membership import __version__
from consumer_membership.cli import main
from consumer_membership.cli.consume import ConsumeOptions
from consumer_membership.cli.groups import DescribeOptions, GroupQuery, RemovalOptions
from consumer_membership.demo.run import DemoOptions
from consumer_membership.devbroker import Backend
from consumer_membership.installation import install_command
from tests.support.waiting import PROCESS_S

COMMAND = [sys.executable, "-m", "consumer_membership"]


def parsed_consume(monkeypatch: pytest.MonkeyPatch, *words: str) -> ConsumeOptions:
    """Return the options with which this command line calls `consume`."""
    calls: list[ConsumeOptions] = []
    monkeypatch.setattr(cli, "consume", lambda options, *_: calls.append(options) or 0)
    assert main(["consume", *words]) == 0
    return calls[0]


def test_consume_arguments_set_options_and_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option sets its field or its configuration key."""
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


def test_consume_reads_bootstrap_servers_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA_BOOTSTRAP_SERVERS applies unless -b or -c sets the servers."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:1")
    words = ("-g", "g", "-t", "t")
    assert parsed_consume(monkeypatch, *words).config["bootstrap.servers"] == "env:1"
    assert parsed_consume(monkeypatch, *words, "-b", "b:1").config["bootstrap.servers"] == "b:1"
    assert parsed_consume(monkeypatch, *words, "-c", "bootstrap.servers=c:1").config["bootstrap.servers"] == "c:1"


def test_demo_arguments_set_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options have the given or their default values."""
    calls: list[DemoOptions] = []
    monkeypatch.setattr(cli, "run_demo", lambda options, _: calls.append(options) or 1)
    words = "--version 4.0.0 --partitions 24 --rate 9 --seconds 1.5 --backend mock --plain"
    assert main(["demo"]) == 1
    assert main(["demo", *words.split()]) == 1
    assert calls == [
        DemoOptions(),
        DemoOptions(backend="mock", version="4.0.0", partitions=24, rate=9, hold_s=1.5, is_plain=True),
    ]


def test_broker_arguments_set_options_and_exit_code_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command returns the exit code of the foreground broker."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(cli, "run_foreground", lambda *words, **named: calls.append((*words, named)) or 7)
    words = "--version 4.1.2 --nodes 3 --port 9092 --backend jvm -p a.b=c -p d="
    assert main(["broker", *words.split()]) == 7
    streams = (sys.stdout, sys.stderr)
    assert calls == [("4.1.2", 3, {"a.b": "c", "d": ""}, *streams, {"port": 9092, "backend": Backend.JVM})]


def test_broker_that_cannot_start_is_reported_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is on stderr, because programs read the broker's address from stdout."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert main(["broker", "--backend", "existing"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith("consumer-membership broker: ")) == ("", True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "required: COMMAND"),
        ("consume -t t", "required: -g/--group"),
        ("consume -g g", "required: -t/--topic"),
        ("consume -g g -t t -c key", "invalid value 'key': KEY=VALUE is required"),
        ("consume -g g -t t -c =value", "invalid value '=value': KEY=VALUE is required"),
        ("consume -g g -t t -n 0", "0 is less than 1"),
        ("consume -g g -t t -n many", "'many' is not a number"),
        ("consume -g g -t t --timeout -1", "expected one argument|less than 0"),
        ("demo --partitions 2", "2 is less than 3"),
        ("demo --version 3.9.0", "invalid choice: '3.9.0'"),
        ("demo --backend magic", "invalid choice: 'magic'"),
        ("broker --nodes 0", "0 is less than 1"),
        ("list --state Bogus", "unknown group state 'Bogus': choose from Assigning, .*, Stable"),
    ],
)
def test_invalid_arguments_exit_2_with_reason(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2, and the last line states the reason."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert re.search(complaint, capsys.readouterr().err.splitlines()[-1])


def test_help_fits_80_columns_and_lists_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help, which is the first output for a new user, has at most 80 columns and lists the commands."""
    monkeypatch.setenv("COLUMNS", "80")
    names = [one.name for one in cli.COMMANDS]
    for words in ([], *([name] for name in names)):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        # An example is one line, so that it can be copied.
        shown, _, _ = capsys.readouterr().out.partition("\nexamples:\n")
        assert max(map(len, shown.splitlines())) <= 80
        if not words:
            assert all(name in shown for name in names)


@pytest.mark.slow
def test_python_m_runs_the_command() -> None:
    """`python -m consumer_membership --version` prints the version."""
    asked = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert asked.stdout == f"consumer-membership {__version__}\n"


# ---- describe and remove-members ------------------------------------------------------------------------------------


def test_describe_arguments_set_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default `describe` shows both tables; an option selects one of them."""
    calls: list[DescribeOptions] = []
    monkeypatch.setattr(cli, "describe", lambda options, *_: calls.append(options) or 0)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:1")
    assert main(["describe", "-g", "g"]) == 0
    assert (
        main(["describe", "-g", "g", "-b", "h:1", "-c", "client.id=me", "--json", "--timeout", "2", "--members"]) == 0
    )
    assert main(["describe", "-g", "g", "--offsets"]) == 0
    assert calls == [
        DescribeOptions(query=GroupQuery(config={"bootstrap.servers": "env:1"}, group="g")),
        DescribeOptions(
            query=GroupQuery(
                config={"client.id": "me", "bootstrap.servers": "h:1"}, group="g", is_json=True, timeout_s=2.0
            ),
            shows_offsets=False,
        ),
        DescribeOptions(query=GroupQuery(config={"bootstrap.servers": "env:1"}, group="g"), shows_members=False),
    ]


def test_remove_members_arguments_set_options_and_exit_code_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command accepts several ids of both kinds, or --all."""
    calls: list[RemovalOptions] = []
    monkeypatch.setattr(cli, "remove_members", lambda options, *_: calls.append(options) or 1)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    words = "-g g --instance-id i --instance-id j --member-id m --dry-run --reason why"
    assert main(["remove-members", *words.split()]) == 1
    assert main(["remove-members", "-g", "g", "--all"]) == 1
    query = GroupQuery(config={}, group="g")
    assert calls == [
        RemovalOptions(query=query, instance_ids=("i", "j"), member_ids=("m",), reason="why", is_dry_run=True),
        RemovalOptions(query=query, all_members=True),
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("describe", "required: -g/--group"),
        ("describe -g g --members --offsets", "--offsets: not allowed with argument --members"),
        ("describe -g g --timeout 0", "0 is less than 0.001"),
        ("doctor -g g --seconds inf", "inf is more than 366 days"),
        ("doctor -g g --seconds nan", "nan is less than 0.1"),
        ("lag -g g --watch --interval 1e12", "1e12 is more than 366 days"),
        ("describe -g g -c key", "invalid value 'key': KEY=VALUE is required"),
        ("timeline -g g -o o --last 0", "--last: 0 is less than 0.1"),
        ("timeline -g g -o o --last 10y", "--last: '10y' is not a number"),
        ("timeline -g g -o o --last 1e400d", "--last: 1e400d is more than 366 days"),
        ("remove-members -g g", "one of --instance-id, --member-id, --static-member and --all is required"),
        ("remove-members -g g --dry-run", "one of --instance-id, --member-id, --static-member and --all is required"),
        ("remove-members -g g --all --member-id m", "--all: not allowed with ids of members"),
        ("remove-members --all", "required: -g/--group"),
    ],
)
def test_invalid_arguments_of_query_commands_exit_2_with_reason(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, the last line states the reason, and no request is sent."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


# ---- texts ----------------------------------------------------------------------------------------------------------


#: An argument with an invalid byte, as Python decodes it.
BAD = os.fsdecode(b"a\xff")
GROUP = ("-b", "127.0.0.1:1", "-g", "g")


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the stderr of a command line that exits with 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (("consume", "-b", "h:1", "-t", "t", "-g", BAD), "-g/--group"),
        (("consume", "-b", BAD, "-t", "t", "-g", "g"), "-b/--bootstrap-servers"),
        (("consume", *GROUP, "-t", BAD), "-t/--topic"),
        (("consume", *GROUP, "-t", "t", "--instance-id", BAD), "--instance-id"),
        (("consume", *GROUP, "-t", "t", "-c", f"client.id={BAD}"), "-c/--config"),
        (("consume", *GROUP, "-t", "t", "-c", f"{BAD}=x"), "-c/--config"),
        (("describe", "-b", "h:1", "-g", BAD), "-g/--group"),
        (("describe", *GROUP, "-c", f"sasl.password={BAD}"), "-c/--config"),
        (("remove-members", *GROUP, "--member-id", BAD), "--member-id"),
        (("remove-members", *GROUP, "--instance-id", "fine", "--instance-id", BAD), "--instance-id"),
        (("remove-members", *GROUP, "--all", "--reason", BAD), "--reason"),
        (("broker", "-p", f"a={BAD}"), "-p/--property"),
    ],
)
def test_argument_with_invalid_utf8_exits_2_and_names_argument(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], argument: str
) -> None:
    """For an argument that is not UTF-8, the command prints an ASCII error that names the argument."""
    message = complaint(capsys, *words)
    assert f"error: argument {argument}: " in message
    assert "it is not UTF-8" in message
    assert message.isascii()


def test_error_of_config_argument_hides_value(capsys: pytest.CaptureFixture[str]) -> None:
    """The error for a `-c` argument does not contain its value, which may be a password."""
    message = complaint(capsys, "describe", *GROUP, "-c", f"sasl.password=geheim{BAD}")
    assert "argument -c/--config: invalid value of 'sasl.password': it is not UTF-8: " in message
    assert "geheim" not in message


def test_bootstrap_servers_of_environment_are_checked_like_argument(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA_BOOTSTRAP_SERVERS replaces the argument, so its value is checked like the argument's."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", BAD)
    assert "argument -b/--bootstrap-servers: invalid value 'a\\udcff': " in complaint(capsys, "describe", "-g", "g")


@pytest.mark.parametrize("command", [("describe",), ("consume", "-t", "t"), ("remove-members", "--all")])
def test_too_long_group_id_exits_2_with_limit(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    """For a group id that is too long, the error has the limit and a shortened group id."""
    message = complaint(capsys, *command, "-b", "127.0.0.1:1", "-g", "g" * 40_000)
    assert "it has 40000 bytes of UTF-8, and Kafka accepts at most 32767" in message
    assert len(message) < 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "variable"),
    [("consume", b"CONSUMER_MEMBERSHIP_HOME"), ("describe", b"CONSUMER_MEMBERSHIP_CLIENT_ID")],
)
def test_environment_variable_with_invalid_utf8_exits_2_and_names_it(command: str, variable: bytes) -> None:
    """For a variable that is not UTF-8, a command in its own process prints one line that names the variable."""
    words = ["-m", "consumer_membership", command, *GROUP, *(["-t", "t"] if command == "consume" else [])]
    environment = {**os.environb, variable: b"/opt/\xff"}
    ran = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=PROCESS_S, env=environment
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"consumer-membership {command}: ")
    assert f"environment variable {variable.decode()}; change or unset it" in line


@pytest.mark.slow
@pytest.mark.parametrize("command", [b"consume", b"describe"])
def test_invalid_bytes_from_shell_exit_2_without_traceback(command: bytes) -> None:
    """For an argument with bytes that are not UTF-8, as a shell passes them, the command prints no traceback."""
    words = [b"-m", b"consumer_membership", command, b"-b", b"127.0.0.1:1", b"-g", b"a\xff"]
    words += [b"-t", b"t"] if command == b"consume" else []
    ran = subprocess.run(
        [os.fsencode(sys.executable), *words], check=False, capture_output=True, text=True, timeout=PROCESS_S
    )
    assert ran.returncode == 2
    assert "argument -g/--group: invalid value 'a\\udcff': it is not UTF-8" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_watch_without_rich_prints_the_command_that_adds_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the extra `cli`, the command fails with one line that names the remedy."""
    monkeypatch.delitem(sys.modules, "consumer_membership.cli.watch", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["watch", "-b", "h:1", "-g", "g"]) == 1
    expected = f"consumer-membership watch: the library rich is missing; run: {install_command('cli')}\n"
    assert capsys.readouterr().err == expected
