"""The list of known keys, and the suggestion for an unknown key."""

from __future__ import annotations

import pytest

from consumer_membership.config.keys import KEYS, guess
from consumer_membership.config.model import READERS


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("home", "no known key is similar; remove it"),
        ("group.ids", "did you mean group.id?"),
        ("boostrap.servers", "did you mean bootstrap.servers?"),
        ("GROUP_INSTANCE_ID", "did you mean group.instance.id?"),
        ("log.level", "did you mean log_level?"),
        ("group.instance.pool", "did you mean group.instance.id.pool?"),
    ],
)
def test_guess_suggests_nearest_known_key(key: str, suggestion: str) -> None:
    """An unknown key suggests the nearest known key, if one is near enough."""
    assert guess(key) == suggestion


def test_known_keys_include_all_keys_of_this_package() -> None:
    """The list of known keys contains every key that this package reads."""
    assert READERS.keys() <= set(KEYS)
