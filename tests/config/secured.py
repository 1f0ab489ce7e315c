"""TLS and SASL configurations, and an application's oauth_cb."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.errors import ConfigurationError

Keys = Mapping[str, object]

LEAST: Keys = {"bootstrap.servers": "127.0.0.1:1", "group.id": "orders"}
SSL: Keys = {"security.protocol": "ssl"}
SASL: Keys = {"security.protocol": "sasl_plaintext"}
ACCOUNT: Keys = {"sasl.username": "me", "sasl.password": "hunter2"}
PLAIN: Keys = {**SASL, **ACCOUNT, "sasl.mechanism": "PLAIN"}
BEARER: Keys = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
CLIENT_CERTIFICATE: Keys = {"ssl.certificate.location": "/cert.pem", "ssl.key.location": "/key.pem"}


def config(*keys: Keys) -> ConsumerConfig:
    """Return the minimal configuration with these keys added."""
    together: dict[str, object] = dict(LEAST)
    for more in keys:
        together.update(more)
    return ConsumerConfig.from_mapping(together)


def refusal(*keys: Keys) -> ConfigurationError:
    """Return the error that these keys raise."""
    with pytest.raises(ConfigurationError) as caught:
        config(*keys)
    return caught.value


class Callback:
    """An oauth_cb that returns the given values in turn and then repeats the last one."""

    def __init__(self, secret: str = "", *returned: object) -> None:
        self._returned = list(returned) or [(secret, 4e9)]
        self.calls: list[object] = []

    def __call__(self, text: str | None) -> object:
        self.calls.append(text)
        returned = self._returned[0] if len(self._returned) == 1 else self._returned.pop(0)
        if isinstance(returned, BaseException):
            raise returned
        return returned

    def __repr__(self) -> str:
        return f"Callback({self._returned})"


def source(made: ConsumerConfig) -> SharedTokens:
    """Return the wrapper that librdkafka receives."""
    wrapper = made.fetcher_config()["oauth_cb"]
    assert isinstance(wrapper, SharedTokens)
    return wrapper
