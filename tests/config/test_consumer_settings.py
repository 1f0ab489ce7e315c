"""ConsumerSettings: the sources of its values and the values that it rejects."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

import consumer_membership
from consumer_membership import Consumer, ConsumerSettings
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.environment import PREFIX
from consumer_membership.config.model import READERS
from consumer_membership.errors import ConfigurationError
from tests.support import settings_stub

SERVERS = "localhost:1"
GIVEN = {"group.id": "g", "bootstrap.servers": SERVERS}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this package's environment variables of the test run."""
    import os  # noqa: PLC0415

    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)


def settings(**given: object) -> ConsumerSettings:
    """Return settings that have a group."""
    values: dict[str, Any] = {"group_id": "g", "bootstrap_servers": SERVERS, **given}
    return ConsumerSettings(**values)


PROGRAM = """
from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from consumer_membership import Consumer, ConsumerSettings

settings = ConsumerSettings(group_id="billing", bootstrap_servers="localhost:9092", enable_auto_commit="false")
consumer = Consumer(settings)
config: dict[str, object] = settings.as_config()
timeout_ms: int | None = settings.session_timeout_ms
from_file = ConsumerSettings(_env_file=".env", sasl_password=SecretStr("secret"), some_later_key=1)


class Orders(ConsumerSettings):
    model_config = SettingsConfigDict(env_prefix="ORDERS_")


class Application(BaseSettings):
    kafka: ConsumerSettings = Orders(group_id="orders", session_timeout_ms=6000)
"""


@pytest.mark.slow
def test_settings_pass_strict_mypy_without_pydantic_plugin(tmp_path: Path) -> None:
    """The documented form, a subclass and an application's settings field pass mypy --strict."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "wrong: str = settings.session_timeout_ms\n")
    options = ["--strict", "--config-file", "", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (found,) = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert 'expression has type "int | None", variable has type "str"' in found, done.stdout + done.stderr


def test_settings_stub_equals_generated_stub() -> None:
    """The stub equals the output of `python -m tests.support.settings_stub`."""
    assert settings_stub.STUB.read_text() == settings_stub.stub()


def test_consumer_accepts_settings() -> None:
    """A consumer accepts settings in place of a dict."""
    consumer = Consumer(settings(client_id="c"))
    assert consumer.membership().group_id == "g"
    consumer.close()


def test_settings_convert_text_to_typed_values() -> None:
    """Text becomes numbers and booleans; values of librdkafka's own keys stay as they were given."""
    made = settings(session_timeout_ms="6000", enable_auto_commit="false", queued_min_messages=5)
    assert (made.session_timeout_ms, made.enable_auto_commit, made.queued_min_messages) == (6000, False, 5)
    assert made.as_config() == {
        **GIVEN,
        "session.timeout.ms": 6000,
        "enable.auto.commit": False,
        "queued.min.messages": 5,
    }


def test_environment_configures_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables set the probes; an error in an address names the variable."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS", "0.0.0.0:8080")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_HEALTH_FILE", "/run/health.json")
    made = settings()
    assert (made.health_http_address, made.health_file) == ("0.0.0.0:8080", "/run/health.json")
    config = ConsumerConfig.from_mapping(made.as_config()).probe_settings()
    assert (str(config.address), config.file) == ("0.0.0.0:8080", "/run/health.json")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS", "8080")
    with pytest.raises(ConfigurationError, match="CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS"):
        ConsumerConfig.from_mapping(GIVEN)
    with pytest.raises(ConfigurationError, match=r"health\.http\.address='8080'"):
        settings()


def test_settings_have_field_for_each_key() -> None:
    """Each key that this package reads is a settings field."""
    assert {name for name, _ in READERS.values()} <= ConsumerSettings.model_fields.keys()


def test_settings_prefer_program_then_environment_then_file_then_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values take pydantic-settings' precedence, in which mounted secrets come last."""
    (tmp_path / ".env").write_text(f"{PREFIX}GROUP_ID=file\n{PREFIX}CLIENT_ID=file\n{PREFIX}CLIENT_RACK=file\n")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("group_id", "client_id", "client_rack", "sasl_password"):
        (secrets / f"{PREFIX.lower()}{name}").write_text("mounted")
    monkeypatch.setenv(f"{PREFIX}GROUP_ID", "variable")
    monkeypatch.setenv(f"{PREFIX}CLIENT_ID", "variable")
    made = ConsumerSettings(group_id="program", _env_file=tmp_path / ".env", _secrets_dir=secrets)
    assert (made.group_id, made.client_id, made.client_rack) == ("program", "variable", "file")
    assert made.sasl_password == SecretStr("mounted")
    config = ConsumerConfig.from_mapping(made.as_config())
    assert (config.group_id, config.client_id, config.client_rack) == ("program", "variable", "file")
    assert config.given["sasl.password"] == "mounted"


def test_settings_repr_hides_secrets() -> None:
    """repr() and str() hide secrets; the consumer receives them."""
    made = settings(sasl_password="hunter2", sasl_username="bob")  # noqa: S106
    assert "hunter2" not in repr(made) + str(made)
    assert made.as_config()["sasl.password"] == "hunter2"


@pytest.mark.parametrize(
    "given",
    [
        {"session_timeout_ms": "soon"},
        {"enable_auto_commit": "perhaps"},
        {"group_protocol": "modern"},
        {"security_protocol": "sasl"},
        {"heartbeat_interval_ms": -1},
    ],
    ids=str,
)
def test_settings_raise_same_error_as_dict(given: dict[str, object]) -> None:
    """Settings and a dict raise the same error for the same values."""
    with pytest.raises(ConfigurationError) as of_settings:
        settings(**given)
    with pytest.raises(ConfigurationError) as of_dict:
        ConsumerConfig.from_mapping({**GIVEN, **{name.replace("_", "."): value for name, value in given.items()}})
    assert str(of_settings.value) == str(of_dict.value)


def test_settings_nest_in_application_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application uses the settings as a field or with its own prefix."""

    class Own(ConsumerSettings):
        model_config = SettingsConfigDict(env_prefix="APP_KAFKA_")

    class Application(BaseSettings):
        model_config = SettingsConfigDict(env_nested_delimiter="__")
        name: str = "billing"
        kafka: Own

    monkeypatch.setenv("KAFKA__GROUP_ID", "nested")
    assert Application().kafka.group_id == "nested"  # type: ignore[call-arg]  # it is in the environment
    monkeypatch.setenv("APP_KAFKA_GROUP_ID", "own")
    assert Own().as_config() == {"group.id": "own"}


def test_settings_survive_pickling() -> None:
    """Settings survive pickling, for example on the way to Spark executors."""
    made = settings(client_id="c")
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes


def test_dir_lists_consumer_settings_without_importing_pydantic() -> None:
    """`dir()` of the package lists ConsumerSettings and does not import pydantic (PEP 562)."""
    assert "ConsumerSettings" in dir(consumer_membership)
    program = (
        "import sys, consumer_membership as c; dir(c); print([n for n in sys.modules if n.startswith('pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
