"""Environment variables as a source of configuration.

`CONSUMER_MEMBERSHIP_GROUP_ID` is `group.id`: the prefix, then the dotted key in capitals with underscores. Any key can
be given this way, those that only librdkafka knows too; what the program itself gives wins.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import contextmanager

from consumer_membership.errors import ConfigurationError
from consumer_membership.text import excerpt, speakable

PREFIX = "CONSUMER_MEMBERSHIP_"
#: The one textual key of librdkafka that has an underscore of its own.
_UNDERSCORED = {"log.level": "log_level"}

#: What only a program can give, under the names that variables would have (for oauth_cb see `checks`).
_NO_TEXT = {
    "logger": "a logger",
    "default.topic.config": "a dict of further keys",
    "error.cb": "error_cb",
    "stats.cb": "stats_cb",
    "throttle.cb": "throttle_cb",
    "on.commit": "on_commit",
}


def variable_of(key: str) -> str:
    """The environment variable that stands for a key."""
    return PREFIX + key.replace(".", "_").upper()


def is_from_environment(key: str, value: str) -> bool:
    """Whether the environment gives a key this value."""
    return os.environ.get(variable_of(key)) == value


def _key_of(variable: str) -> str:
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


@contextmanager
def naming_variables(in_program: Container[str]) -> Iterator[None]:
    """A refusal in here names the environment variable, where its key came from one and not from the program."""
    try:
        yield
    except ConfigurationError as refused:
        variable = next((name for name in _variables() if speakable(_key_of(name)) == refused.key), None)
        if refused.key in in_program or variable is None:
            raise
        origin = (
            f"it comes from the environment variable {speakable(variable)}; change it, or unset it: each one that "
            f"begins with {PREFIX} is taken for a key"
        )
        raise type(refused)(refused.key, refused.value, f"{refused.remedy} ({origin})") from refused


def _variables() -> Iterator[str]:
    return (name for name in os.environ if name.startswith(PREFIX) and len(name) > len(PREFIX))


def from_environment() -> dict[str, object]:
    """What the variables with the prefix say, under dotted names: keys that no table knows are librdkafka's to judge.

    Raises:
        ConfigurationError: one stands for what is no text.
    """
    found: dict[str, object] = {_key_of(name): os.environ[name] for name in _variables()}
    for key, meant in _NO_TEXT.items():
        if key in found:
            remedy = f"{meant} cannot come from an environment variable; give it in the program"
            raise ConfigurationError(key, excerpt(str(found[key])), remedy)
    return found
