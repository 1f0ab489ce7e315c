"""The configuration key `crash.guardian.enable`."""

from __future__ import annotations

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError

LEAST = {"bootstrap.servers": "broker:9092", "group.id": "orders"}
KEY = "crash.guardian.enable"


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("false", False), (True, True), ("1", True)])
def test_crash_guardian_enable_is_off_by_default(value: object, expected: object) -> None:
    """The key is off by default, and librdkafka never receives it."""
    config = ConsumerConfig.from_mapping({**LEAST, KEY: value})
    assert config.connection_settings().crash_guardian is expected
    assert KEY not in config.fetcher_config()


def test_crash_guardian_enable_may_be_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may set the key by an environment variable, as any other key."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_CRASH_GUARDIAN_ENABLE", "true")
    assert ConsumerConfig.from_mapping(LEAST).connection_settings().crash_guardian


def test_crash_guardian_enable_raises_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, True raises ConfigurationError and is not ignored; False is accepted everywhere."""
    monkeypatch.setattr("sys.platform", "win32")
    assert not ConsumerConfig.from_mapping({**LEAST, KEY: False}).crash_guardian_enable
    with pytest.raises(ConfigurationError, match=r"crash.guardian.enable=True: .* remove the key"):
        ConsumerConfig.from_mapping({**LEAST, KEY: True})
