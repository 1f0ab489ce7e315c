"""Arguments with bytes that are not UTF-8, or too long for Kafka: one line that names the argument, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from consumer_membership.cli import main

#: As Python decodes an argument of such bytes.
BAD = os.fsdecode(b"a\xff")
GROUP = ("-b", "127.0.0.1:1", "-g", "g")


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command line says of these arguments before it exits with 2."""
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
def test_stray_byte_is_one_line_that_names_the_argument(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], argument: str
) -> None:
    """Instead of a traceback, or of a process that aborts."""
    said = complaint(capsys, *words)
    assert f"error: argument {argument}: " in said
    assert "it is not UTF-8" in said
    assert said.isascii()


def test_value_of_a_key_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be a password."""
    said = complaint(capsys, "describe", *GROUP, "-c", f"sasl.password=geheim{BAD}")
    assert "argument -c/--config: 'sasl.password' cannot be set so: it is not UTF-8: " in said
    assert "geheim" not in said


def test_servers_of_the_environment_are_held_to_it_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in for an argument."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", BAD)
    assert "argument -b/--bootstrap-servers: 'a\\udcff' " in complaint(capsys, "describe", "-g", "g")


@pytest.mark.parametrize("command", [("describe",), ("consume", "-t", "t"), ("remove-members", "--all")])
def test_group_that_is_too_long_is_told_so(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    """With the bound, and not all of it."""
    said = complaint(capsys, *command, "-b", "127.0.0.1:1", "-g", "g" * 40_000)
    assert "it has 40000 bytes of UTF-8, and Kafka has room for 32767" in said
    assert len(said) < 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "variable"),
    [("consume", b"CONSUMER_MEMBERSHIP_HOME"), ("describe", b"CONSUMER_MEMBERSHIP_CLIENT_ID")],
)
def test_variable_that_cannot_be_is_one_line_that_names_it(command: str, variable: bytes) -> None:
    """In a process of its own, with the bytes as a shell has them."""
    words = ["-m", "consumer_membership", command, *GROUP, *(["-t", "t"] if command == "consume" else [])]
    environment = {**os.environb, variable: b"/opt/\xff"}
    ran = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=60, env=environment
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"consumer-membership {command}: ")
    assert f"environment variable {variable.decode()}; change it, or unset it" in line


@pytest.mark.slow
@pytest.mark.parametrize("command", [b"consume", b"describe"])
def test_real_bytes_end_neither_in_a_signal_nor_in_a_traceback(command: bytes) -> None:
    """As a shell hands them over."""
    words = [b"-m", b"consumer_membership", command, b"-b", b"127.0.0.1:1", b"-g", b"a\xff"]
    words += [b"-t", b"t"] if command == b"consume" else []
    ran = subprocess.run([os.fsencode(sys.executable), *words], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "argument -g/--group: 'a\\udcff' cannot be told to Kafka: it is not UTF-8" in ran.stderr
    assert "Traceback" not in ran.stderr
