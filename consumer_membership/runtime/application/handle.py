"""Creates librdkafka's handle, keeps the user's callbacks out of its calls, and notices when it stopped working.

librdkafka runs `error_cb`, `stats_cb` and `throttle_cb` inside the call that fetches. An exception in one of them would
discard the records of that very call, and a callback that waits for another thread would wait with the handle lock
held. So the handle gets callbacks that only note the event; polls call the user's callbacks after the fetch, without
that lock, still on the thread that polls.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from consumer_membership.config.keys import guess, shown
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.errors import AuthenticationError, ConfigurationError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.line import WakeUp

#: librdkafka's text for an unknown key.
_UNKNOWN_KEY = r'(?s)No such configuration property: "(.*)"'
#: librdkafka's text for a mechanism that it was compiled without: the wheels of confluent-kafka have no GSSAPI.
_WITHOUT_KERBEROS = "No provider for SASL mechanism GSSAPI"
_KERBEROS_REMEDY = (
    "the installed librdkafka was compiled without GSSAPI (Kerberos), like the one in confluent-kafka's wheels, so "
    "this consumer cannot fetch; build librdkafka with libsasl2 and install confluent-kafka from source, as "
    "docs/operating/tls-sasl-acls.md shows, or set another sasl.mechanism"
)
#: confluent-kafka's text for the exception of any oauth_cb.
_NO_REASON = "OAuth callback raised exception"
_STATISTICS_KEY = "statistics.interval.ms"
#: How librdkafka names a key: as a property, else in quotes, or at the beginning of OpenSSL's text about it.
_NAMED_KEYS = (
    r'(?i)configuration property ["`]([^"`]+)["`]',
    r'["`]([a-z][a-z0-9._]*)["`]|\b(ssl\.[a-z.]+) failed',
    r"(?s)\(plugin .*\)",
)

#: After this time without a record, the handle is checked for a broker connection, which costs one small metadata
#: request (it makes ten fetch requests each second anyway).
BROKER_CHECK_AFTER_S = 5.0
#: How soon the handle is checked again while it has no broker; this check costs nothing.
BROKER_RECHECK_S = 0.5
#: How long the handle may have no broker although a heartbeat was answered since. The limit doubles, up to a minute,
#: each time that a new handle finds no broker either.
LOST_AFTER_S = 3.0
#: The limit if there are no heartbeats to compare with: librdkafka's longest pause (reconnect.backoff.max.ms).
LOST_AFTER_ALONE_S = 10.0
LONGEST_LOST_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleCallbacks:
    """The user's callbacks for librdkafka's reports."""

    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    throttle_cb: Callable[[ThrottleEvent], object] | None = None
    logger: logging.Logger | None = None


class Reports:
    """The reports of librdkafka that wait for the user's callbacks."""

    def __init__(self, wake_up: WakeUp) -> None:
        self._wake_up = wake_up
        wake_up.add_reason(self.__bool__)
        #: The waiting calls: a plain attribute, which an idle consumer reads in each slice.
        self.waiting: HandOutQueue[Callable[[], object]] = HandOutQueue()

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def note(self, call: Callable[[], object]) -> None:
        """Call this after the present fetch."""
        self.waiting.append(call)
        self._wake_up.set()

    def call_waiting(self) -> None:
        """Call the callbacks of the waiting reports; if one raises, the reports behind it continue to wait."""
        while self.waiting:
            try:
                call = ~self.waiting  # no instruction between this and the call runs a signal handler
            except IndexError:  # another thread that polls took the last one
                return
            call()


class Handles:
    """Creates one consumer's handle, and replaces it, with the settings that have changed since.

    `config` returns librdkafka's configuration. `on_statistics` is called with librdkafka's statistics after the fetch
    that reported them; it calls the user's `stats_cb`. `make_handle` creates a handle from a configuration.
    """

    def __init__(
        self,
        config: Callable[[], Mapping[str, object]],
        callbacks: HandleCallbacks,
        on_statistics: Callable[[str], object],
        wake_up: WakeUp,
        make_handle: Callable[[dict[str, object]], LibrdkafkaConsumer] = LibrdkafkaConsumer,
    ) -> None:
        self._make_handle = make_handle
        self._on_statistics = on_statistics
        self.reports = Reports(wake_up)
        self._config = config
        self._callbacks = callbacks
        self._credentials: Mapping[str, object] = {}

    def make(self) -> LibrdkafkaConsumer:
        """Create a handle that fetches.

        Raises:
            ConfigurationError: librdkafka rejects a key or its value; the message has the key.
            AuthenticationError: oauth_cb returned no token that librdkafka accepts, within 10 s; or the token endpoint
                rejected this client, or did not respond for 10 s.
        """
        config = {**self._config(), **self._credentials}
        tokens = config.get("oauth_cb")
        if isinstance(tokens, SharedTokens):
            tokens.prepare()
        try:
            has_statistics = str(config.get(_STATISTICS_KEY, 0)) != "0"
            return self._make_handle({**config, **self._own_callbacks(tokens, has_statistics=has_statistics)})
        except KafkaException as refused:
            error = refused.args[0]
            message = error.str() if isinstance(error, KafkaError) else str(error)
            if isinstance(error, KafkaError) and error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                raise AuthenticationError(_without_token(message, config.get("oauth_cb"))) from refused
            raise _refusal(message.strip(), config) from refused

    def _own_callbacks(self, tokens: object, *, has_statistics: bool) -> dict[str, object]:
        """The handle's callbacks: its source of tokens, and those that note reports until after the fetch."""
        note, given = self.reports.note, self._callbacks
        error_cb, throttle_cb = given.error_cb, given.throttle_cb
        noting: dict[str, object] = {}
        if isinstance(tokens, SharedTokens):
            noting["oauth_cb"] = tokens.of_handle()
        if error_cb is not None:
            noting["error_cb"] = lambda error: note(lambda: error_cb(_with_reason(error, tokens)))
        if given.stats_cb is not None or has_statistics:
            noting["stats_cb"] = lambda text: note(lambda: self._on_statistics(text))
        if throttle_cb is not None:
            noting["throttle_cb"] = lambda event: note(lambda: throttle_cb(event))
        if given.logger is not None:
            noting["logger"] = given.logger
        return noting

    def set_credentials(self, handle: LibrdkafkaConsumer, username: str, password: str) -> None:
        """Use these credentials for future connections of this handle, and for those of each later handle."""
        handle.set_sasl_credentials(username, password)
        self._credentials = {"sasl.username": username, "sasl.password": password}


def _refusal(message: str, config: Mapping[str, object]) -> ConfigurationError:
    """Convert librdkafka's error about a configuration to an error with the key that librdkafka names."""
    if _WITHOUT_KERBEROS in message:
        key = next((key for key in ("sasl.mechanisms", "sasl.mechanism") if key in config), "sasl.mechanism")
        return ConfigurationError(key, config.get(key), f"{message} (rejected by librdkafka); {_KERBEROS_REMEDY}")
    unknown = re.search(_UNKNOWN_KEY, message)
    if unknown is not None:
        key = unknown[1]
        return ConfigurationError(key, shown(key, config.get(key)), f"{message} (rejected by librdkafka); {guess(key)}")
    named = next(filter(None, (re.search(pattern, message) for pattern in _NAMED_KEYS)), None)
    key = next(filter(None, named.groups()), "plugin.library.paths") if named is not None else "configuration"
    return ConfigurationError(key, shown(key, config.get(key)), f"{message} (rejected by librdkafka)")


def _with_reason(error: KafkaError, tokens: object) -> KafkaError:
    """Return librdkafka's error about a missing token with the reason, which librdkafka does not receive."""
    text = error.str()
    if not text.endswith(_NO_REASON):
        return error
    why = tokens.last_failure if isinstance(tokens, SharedTokens) else ""
    return KafkaError(error.code(), f"{text.removesuffix(_NO_REASON)}{why}") if why else error


def _without_token(message: str, tokens: object) -> str:
    """Return librdkafka's text, with the reason why there is no token."""
    why = tokens.last_failure if isinstance(tokens, SharedTokens) else ""
    return f"{message.strip()}: {why}" if why else f"{message.strip()}; check oauth_cb"


class HandleWatch:
    """Notices that one consumer's handle has lost its brokers and will not look for any again.

    A broker that shuts down may answer a metadata request with no brokers at all. librdkafka then forgets the known
    brokers; if the connection ends with that very response, the response also cancels the search for new ones that the
    disconnect began, and no search begins again: librdkafka 2.10 to 2.16, its issue 5301. Heartbeats continue, on
    connections of this package, so the member keeps partitions that no consumer reads. The owner of the handle then
    replaces it.

    `has_broker` returns whether the handle is connected to a broker.
    """

    def __init__(self, has_broker: Callable[[], bool], now: Callable[[], float] = monotonic) -> None:
        self._has_broker = has_broker
        self._now = now
        self._lost_at: float | None = None
        #: When the present handle's time limit to find a broker began.
        self._waits_from = 0.0
        self._renewals = 0
        #: When the handle is checked next, if no record comes until then.
        self.next_check_at = 0.0
        self.record_received()

    @property
    def lost_since(self) -> float | None:
        """Since when the handle has no broker (`time.monotonic`); None: it has one, as far as is known."""
        return self._lost_at

    def record_received(self) -> None:
        """Note that the handle returned something."""
        self._lost_at = None
        self._renewals = 0
        self.next_check_at = self._now() + BROKER_CHECK_AFTER_S

    def is_newly_lost(self, last_heartbeat_at: float | None) -> bool:
        """Whether a handle that returned no record has to be replaced now; true once for each time limit.

        `last_heartbeat_at`: when the member's last heartbeat was answered; None: there are no heartbeats to compare
        with.
        """
        now = self._now()
        if now < self.next_check_at:
            return False
        if self._has_broker():
            self.record_received()
            return False
        self.next_check_at = now + BROKER_RECHECK_S
        if self._lost_at is None:
            self._lost_at = self._waits_from = now
        if now - self._waits_from < self._lost_after_s(last_heartbeat_at) or not self._is_answered(last_heartbeat_at):
            return False
        self._renewals += 1
        self._waits_from = now
        return True

    def _is_answered(self, last_heartbeat_at: float | None) -> bool:
        """Whether the cluster answers this process; if not, a new handle would not find a broker either."""
        return last_heartbeat_at is None or last_heartbeat_at > self._waits_from

    def _lost_after_s(self, last_heartbeat_at: float | None) -> float:
        first_s = LOST_AFTER_ALONE_S if last_heartbeat_at is None else LOST_AFTER_S
        return min(first_s * 2.0 ** min(self._renewals, 10), LONGEST_LOST_AFTER_S)
