"""Errors in environment variables name the variable."""

from __future__ import annotations

import os

import pytest

from consumer_membership.config.environment import PREFIX
from consumer_membership.errors import ConfigurationError
from tests.config.builders import refusal_of


def from_environment(monkeypatch: pytest.MonkeyPatch, variable: bytes, value: bytes) -> ConfigurationError:
    """Return the error of the minimal configuration when this variable is set."""
    # Python decodes such bytes of the environment in the same way.
    monkeypatch.setenv(os.fsdecode(variable), os.fsdecode(value))
    return refusal_of({})


@pytest.mark.parametrize(
    ("variable", "value", "key", "message"),
    [
        (b"CLIENT_ID", b"a\xff", "client.id", "it is not UTF-8 ('\\udcff' at position 1)"),
        (b"GROUP_INSTANCE_ID", b"x" * 40_000, "group.instance.id", "it has 40000 bytes of UTF-8"),
        (b"SESSION_TIMEOUT_MS", b"soon", "session.timeout.ms", "expected an integer"),
        (b"GROUP_PROTOCOL", b"newest", "group.protocol", "expected one of auto, consumer, classic"),
        (b"SASL_MECHANISM", b"A B", "sasl.mechanism", "use one of PLAIN"),
        (b"group_instance_id", b"x" * 40_000, "group.instance.id", "it has 40000 bytes of UTF-8"),
        (b"A\xff", b"x", "a\\udcff", "it is not UTF-8"),
        (b"LOGGER", b"x", "logger", "a logger cannot come from an environment variable; set it in the program"),
        (b"DEFAULT_TOPIC_CONFIG", b"x", "default.topic.config", "a dict of further keys cannot come from"),
        (b"ERROR_CB", b"x", "error.cb", "error_cb cannot come from an environment variable"),
        (b"ON_COMMIT", b"x", "on.commit", "on_commit cannot come from an environment variable"),
    ],
)
def test_error_of_environment_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: bytes, value: bytes, key: str, message: str
) -> None:
    """The error names the variable and the fix that applies to the environment."""
    error = from_environment(monkeypatch, PREFIX.encode() + variable, value)
    shown = (PREFIX + variable.decode(errors="surrogateescape")).encode(errors="backslashreplace").decode()
    assert error.key == key
    assert message in str(error)
    assert f"set by the environment variable {shown}; change or unset it" in str(error)


def test_error_of_environment_secret_shows_only_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable of a secret and hides its value."""
    error = from_environment(monkeypatch, b"CONSUMER_MEMBERSHIP_SASL_PASSWORD", b"geheim\xff")
    assert "geheim" not in str(error)
    assert "CONSUMER_MEMBERSHIP_SASL_PASSWORD" in str(error)


def test_error_of_program_value_does_not_mention_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's value wins, so its error does not mention the environment."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID", "fine")
    assert "environment" not in str(refusal_of({"group.instance.id": "a\0"}))
