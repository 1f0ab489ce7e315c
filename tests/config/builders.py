"""Configurations, accepted and refused."""

from __future__ import annotations

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError

LEAST: dict[str, object] = {"bootstrap.servers": "broker:9092", "group.id": "orders"}


def refusal_of(config: dict[str, object]) -> ConfigurationError:
    """The refusal of the least configuration with these keys on top."""
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping({**LEAST, **config})
    return caught.value


def refused(**keys: object) -> ConfigurationError:
    """The same, with underscores for dots."""
    return refusal_of({key.replace("_", "."): value for key, value in keys.items()})


def accepted(**keys: object) -> ConsumerConfig:
    """The least configuration with these keys on top."""
    return ConsumerConfig.from_mapping({**LEAST, **{key.replace("_", "."): value for key, value in keys.items()}})
