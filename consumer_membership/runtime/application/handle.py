"""Makes librdkafka's handle, and keeps the user's callbacks out of its calls.

librdkafka runs `error_cb`, `stats_cb` and `throttle_cb` inside the call that fetches. An exception in one of them would
throw away the records of that very call, and one that waits for another thread would wait with the fair_lock held. So
the handle gets callbacks that only note what happened; the session calls the user's after the fetch, without the
fair_lock, still on the thread that polls.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, ThrottleEvent

from consumer_membership.config.contradictions import shown
from consumer_membership.config.keys import guess
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.errors import AuthenticationError, ConfigurationError

#: librdkafka's words for a key that it does not know, whatever that is.
_UNKNOWN_KEY = re.compile(r'No such configuration property: "(.*)"', re.DOTALL)
#: How librdkafka names a key: as a property, else in quotes, or at the beginning of what OpenSSL says of it.
_NAMED_KEYS = (
    re.compile(r'configuration property ["`]([^"`]+)["`]', re.IGNORECASE),
    re.compile(r'["`]([a-z][a-z0-9._]*)["`]|\b(ssl\.[a-z.]+) failed'),
    re.compile(r"\(plugin .*\)", re.DOTALL),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleCallbacks:
    """The user's callbacks for what librdkafka reports."""

    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    throttle_cb: Callable[[ThrottleEvent], object] | None = None
    logger: logging.Logger | None = None


class Reports:
    """What librdkafka reported and the user's callbacks have not been told yet."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def note(self, call: Callable[[], object]) -> None:
        """Have this called after the present fetch."""
        self._calls.append(call)

    def tell(self) -> None:
        """Call what was noted; a raising callback leaves the rest for the next time."""
        while self._calls:
            self._calls.popleft()()


class Handles:
    """Makes one consumer's handle, and makes it anew: with what was set since.

    `config` gives what it is made from; `rewrite` puts the member into the statistics.
    """

    def __init__(
        self, config: Callable[[], Mapping[str, object]], callbacks: HandleCallbacks, rewrite: Callable[[str], str]
    ) -> None:
        self.reports = Reports()
        self._config = config
        self._callbacks = callbacks
        self._rewrite = rewrite
        self._credentials: Mapping[str, object] = {}

    def make(self) -> Consumer:
        """A handle that fetches; raises as `make_handle` does."""
        return make_handle({**self._config(), **self._credentials}, self._callbacks, self.reports, self._rewrite)

    def set_credentials(self, handle: Consumer, username: str, password: str) -> None:
        """Have this handle's connections to come say this, and those of each later handle."""
        handle.set_sasl_credentials(username, password)
        self._credentials = {"sasl.username": username, "sasl.password": password}


def make_handle(
    config: Mapping[str, object], callbacks: HandleCallbacks, reports: Reports, rewrite: Callable[[str], str]
) -> Consumer:
    """A handle that fetches; `rewrite` puts the member into the statistics.

    Raises:
        ConfigurationError: librdkafka refuses a key or its value; the key is named.
        AuthenticationError: oauth_cb gave no token that librdkafka takes, within 10 s.
    """
    settings: dict[str, object] = dict(config)
    error_cb, stats_cb, throttle_cb = callbacks.error_cb, callbacks.stats_cb, callbacks.throttle_cb
    if error_cb is not None:
        settings["error_cb"] = lambda error: reports.note(lambda: error_cb(error))
    if stats_cb is not None:
        settings["stats_cb"] = lambda text: reports.note(lambda: stats_cb(rewrite(text)))
    if throttle_cb is not None:
        settings["throttle_cb"] = lambda event: reports.note(lambda: throttle_cb(event))
    if callbacks.logger is not None:
        settings["logger"] = callbacks.logger
    try:
        return Consumer(settings)
    except KafkaException as refused:
        error = refused.args[0]
        words = error.str() if isinstance(error, KafkaError) else str(error)
        if isinstance(error, KafkaError) and error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            raise AuthenticationError(_without_token(words, config.get("oauth_cb"))) from refused
        raise _refusal(words.strip(), config) from refused


def _refusal(words: str, config: Mapping[str, object]) -> ConfigurationError:
    """What librdkafka says of a configuration, by the key that it names."""
    unknown = _UNKNOWN_KEY.search(words)
    if unknown is not None:
        key = unknown[1]
        return ConfigurationError(key, shown(key, config.get(key)), f"{words} (librdkafka refuses it); {guess(key)}")
    named = next(filter(None, (pattern.search(words) for pattern in _NAMED_KEYS)), None)
    key = next(filter(None, named.groups()), "plugin.library.paths") if named is not None else "configuration"
    return ConfigurationError(key, shown(key, config.get(key)), f"{words} (librdkafka refuses it)")


def _without_token(words: str, tokens: object) -> str:
    """What librdkafka says, with why there is no token."""
    why = tokens.last_failure if isinstance(tokens, SharedTokens) else ""
    return f"{words.strip()}: {why}" if why else f"{words.strip()}; see what oauth_cb does meanwhile"
