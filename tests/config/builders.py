"""Builders of accepted and rejected configurations."""

from __future__ import annotations

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError

LEAST: dict[str, object] = {"bootstrap.servers": "broker:9092", "group.id": "orders"}


def refusal_of(config: dict[str, object]) -> ConfigurationError:
    """Return the error that the minimal configuration raises with these keys added."""
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping({**LEAST, **config})
    return caught.value


def refused(**keys: object) -> ConfigurationError:
    """Return the error that these keys raise; underscores stand for dots."""
    return refusal_of({key.replace("_", "."): value for key, value in keys.items()})


def accepted(**keys: object) -> ConsumerConfig:
    """Return the minimal configuration with these keys added; underscores stand for dots."""
    return ConsumerConfig.from_mapping({**LEAST, **{key.replace("_", "."): value for key, value in keys.items()}})
