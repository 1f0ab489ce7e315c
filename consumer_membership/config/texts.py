"""Keys and values as text that Kafka and librdkafka can take; checked first of all, whichever way they came in.

What confluent-kafka cannot turn into UTF-8 it drops, or aborts the process (group.id, any key); what stands behind a
NUL it drops, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.config.keys import guess
from consumer_membership.config.refusals import is_secret
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.text import LONGEST_ID_PREFIX, LONGEST_STRING, excerpt, problem_of, speakable

#: What goes into Kafka's requests, and how many bytes of UTF-8 it may have there.
_LONGEST: Mapping[str, int] = {
    "group.id": LONGEST_STRING,
    "group.instance.id": LONGEST_ID_PREFIX,
    "group.remote.assignor": LONGEST_STRING,
    "client.id": LONGEST_ID_PREFIX,
    "client.rack": LONGEST_STRING,
}
#: Objects, or lists that are checked one by one where they are read.
_NO_TEXTS = frozenset({"oauth_cb", "partition.assignment.strategy", "group.instance.id.pool"})


def checked_keys(config: object) -> Mapping[str, object]:
    """The same configuration, all of whose keys are text that can name something.

    Raises:
        ArgumentTypeError: it is no mapping.
        ConfigurationError: a key is no text, or text that no key can be.
    """
    if not isinstance(config, Mapping):
        remedy = "the configuration is a dict of keys and values, such as {'bootstrap.servers': 'localhost:9092'}"
        raise ArgumentTypeError("config", config, remedy)
    for key, value in config.items():
        problem = _problem_of_key(key)
        if problem is not None:
            name = key if isinstance(key, str) else repr(key)
            raise ConfigurationError(speakable(name), "***" if is_secret(name.lower()) else value, problem)
    return config


def _problem_of_key(key: object) -> str | None:
    if not isinstance(key, str):
        kind = type(key).__name__
        return f'No such configuration property: "{key!a}"; a key is text, such as "client.id", and no {kind}'
    if key.startswith("_") or key != key.lower():  # pydantic-settings would take them for its own, or for another key
        return f'No such configuration property: "{speakable(key)}"; {guess(key)}'
    return problem_of(key, None)


def refuse_texts(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first value that is not UTF-8, has a NUL, or is too long for its place.

    Raises:
        ArgumentTypeError: a value cannot be turned into text at all.
    """
    for key, value in given.items():
        if key in _NO_TEXTS and not isinstance(value, str):
            continue
        text = _text_of(key, value)
        problem = problem_of(text, _LONGEST.get(key), is_secret=is_secret(key))
        if problem is not None:
            raise ConfigurationError(key, "***" if is_secret(key) else excerpt(text), problem)


def _text_of(key: str, value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        remedy = f"expected configuration property value as type unicode string; its str() raised {error!r}"
        raise ArgumentTypeError(key, f"<{type(value).__name__}>", remedy) from error
