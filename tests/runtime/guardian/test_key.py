"""`crash.guardian.enable`."""

from __future__ import annotations

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError

LEAST = {"bootstrap.servers": "broker:9092", "group.id": "orders"}
KEY = "crash.guardian.enable"


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("false", False), (True, True), ("1", True)])
def test_guardian_is_started_only_where_it_is_asked_for(value: object, expected: object) -> None:
    """Off by default; librdkafka never hears of it."""
    config = ConsumerConfig.from_mapping({**LEAST, KEY: value})
    assert config.connection_settings().crash_guardian is expected
    assert KEY not in config.fetcher_config()


def test_environment_can_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any key: an operator may switch it on."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_CRASH_GUARDIAN_ENABLE", "true")
    assert ConsumerConfig.from_mapping(LEAST).connection_settings().crash_guardian


def test_windows_is_told_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, not ignored; to switch it off is fine everywhere."""
    monkeypatch.setattr("sys.platform", "win32")
    assert not ConsumerConfig.from_mapping({**LEAST, KEY: False}).crash_guardian_enable
    with pytest.raises(ConfigurationError, match=r"crash.guardian.enable=True: .* remove the key"):
        ConsumerConfig.from_mapping({**LEAST, KEY: True})
