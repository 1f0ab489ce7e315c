"""Environment variables as a source of configuration.

`CONSUMER_MEMBERSHIP_GROUP_ID` sets `group.id`: the prefix, then the key in capitals with underscores for dots. Any key
can be set this way, also those that only librdkafka knows. Keys that the program sets take precedence.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import contextmanager

from consumer_membership.errors import ConfigurationError
from consumer_membership.text import excerpt, speakable

PREFIX = "CONSUMER_MEMBERSHIP_"
#: librdkafka's only textual key with an underscore in its name.
_UNDERSCORED = {"log.level": "log_level"}

#: Keys that only a program can set, by the names that their variables would have (for oauth_cb see `checks`).
_NO_TEXT = {
    "logger": "a logger",
    "default.topic.config": "a dict of further keys",
    "error.cb": "error_cb",
    "stats.cb": "stats_cb",
    "throttle.cb": "throttle_cb",
    "on.commit": "on_commit",
}


def variable_of(key: str) -> str:
    """Return the environment variable of a key."""
    return PREFIX + key.replace(".", "_").upper()


def is_from_environment(key: str, value: str) -> bool:
    """Return whether the environment sets a key to this value."""
    return os.environ.get(variable_of(key)) == value


def _key_of(variable: str) -> str:
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


@contextmanager
def naming_variables(in_program: Container[str]) -> Iterator[None]:
    """Add the environment variable to a `ConfigurationError` raised inside, if the key came from one."""
    try:
        yield
    except ConfigurationError as refused:
        variable = next((name for name in _variables() if speakable(_key_of(name)) == refused.key), None)
        if refused.key in in_program or variable is None:
            raise
        origin = (
            f"set by the environment variable {speakable(variable)}; change or unset it: every variable that "
            f"begins with {PREFIX} sets a key"
        )
        raise type(refused)(refused.key, refused.value, f"{refused.remedy} ({origin})") from refused


def _variables() -> Iterator[str]:
    return (name for name in os.environ if name.startswith(PREFIX) and len(name) > len(PREFIX))


def from_environment() -> dict[str, object]:
    """Return the keys and values of the variables with the prefix; librdkafka checks keys that are unknown here.

    Raises:
        ConfigurationError: a variable sets a key whose value cannot be text.
    """
    found: dict[str, object] = {_key_of(name): os.environ[name] for name in _variables()}
    for key, meant in _NO_TEXT.items():
        if key in found:
            remedy = f"{meant} cannot come from an environment variable; set it in the program"
            raise ConfigurationError(key, excerpt(str(found[key])), remedy)
    return found
