"""The list of keys, and the guess which one was meant."""

from __future__ import annotations

import pytest

from consumer_membership.config.keys import KEYS, guess
from consumer_membership.config.model import READERS


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("home", "no key resembles it; remove it"),
        ("group.ids", "did you mean group.id?"),
        ("boostrap.servers", "did you mean bootstrap.servers?"),
        ("GROUP_INSTANCE_ID", "did you mean group.instance.id?"),
        ("log.level", "did you mean log_level?"),
        ("group.instance.pool", "did you mean group.instance.id.pool?"),
    ],
)
def test_unknown_key_is_guessed(key: str, said: str) -> None:
    """Where one is near enough."""
    assert guess(key) == said


def test_every_key_of_the_configuration_can_be_guessed() -> None:
    """The table lacks none that this package reads."""
    assert READERS.keys() <= set(KEYS)
