"""Bearer tokens for both kinds of connections: call the application's `oauth_cb`, or the token endpoint, once for both.

librdkafka calls `oauth_cb` on its own thread, and the membership's connections also need tokens. An application's
callback expects one caller, and each call costs a request to the token server. So both request tokens here. Nothing
here is ever printed: a token is equivalent to a password.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, SupportsFloat

from consumer_membership.config.settings import Token
from consumer_membership.errors import AuthenticationError, ConfigurationError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.text import problem_of

if TYPE_CHECKING:
    from consumer_membership.config.token_endpoint import TokenEndpoint

#: The part of its lifetime for which a token is used. librdkafka requests the next token at 80 % of the lifetime that
#: remained when it received this one, and must not receive the same token again.
USED_LIFE = 0.75
#: The part of a fetched token's lifetime that librdkafka receives, at random: so it requests the next token at 60 to
#: 80 % of the lifetime, and the clients of a fleet that started together do not request theirs together.
_SHOWN_LIFE = (0.75, 1.0)
#: How long the first token may take if the endpoint is unavailable: as long as confluent-kafka waits for an `oauth_cb`.
_FIRST_WITHIN_S = 10.0
_FIRST_AGAIN_S = 0.25

_REMEDY = "return (token, expiry in seconds since 1970[, principal[, dict of extensions]])"
_SHORTEST, _LONGEST = 2, 4
#: RFC 7628, section 3.1, as librdkafka checks it: visible characters, blanks and line ends.
_VALUE = re.compile(r"[\t\n\r\x20-\x7e]*")
_NAME = re.compile(r"[A-Za-z]+")
#: A result that confluent-kafka rejects, as it rejects every token that it cannot read.
_NO_TOKEN: tuple[()] = ()
#: The name under which the token itself is sent.
_RESERVED = "auth"

#: An application's `oauth_cb`: it receives sasl.oauthbearer.config, or None if that is not set.
TokenCallback = Callable[[str | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A token in both of its forms, and the time until which it is returned."""

    returned: object = field(repr=False)
    token: Token
    good_until: float


class SharedTokens:
    """The tokens of one `oauth_cb`, for librdkafka (which calls this object) and the membership (`token`); thread-safe.

    Args:
        callback: The application's callback.
        config_text: sasl.oauthbearer.config, the callback's argument.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self, callback: TokenCallback, config_text: str | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._callback = callback
        self._config_text = config_text
        self._clock = clock
        self._endpoint: TokenEndpoint | None = None
        self._lock = Lock()
        self._kept: _Kept | None = None
        #: Why the latest call of the callback returned no token; empty if it did.
        self.last_failure = ""

    @classmethod
    def of_endpoint(cls, endpoint: TokenEndpoint, clock: Callable[[], float] = time.time) -> Self:
        """Return the tokens of a token endpoint, which this package requests instead of librdkafka."""
        made = cls(endpoint, None, clock)
        made._endpoint = endpoint
        return made

    @property
    def is_of_endpoint(self) -> bool:
        """Whether the tokens come from a token endpoint, not from the application's callback."""
        return self._endpoint is not None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the source: another process, such as a task of Spark, fetches its own tokens."""
        if self._endpoint is not None:
            return type(self).of_endpoint, (self._endpoint,)
        return type(self), (self._callback, self._config_text)

    def prepare(self) -> None:
        """Fetch the first token from a token endpoint before a handle waits for it; does nothing for an `oauth_cb`.

        An endpoint that is unavailable is requested again for ten seconds.

        Raises:
            AuthenticationError: the endpoint rejected the request, or stayed unavailable.
            ConfigurationError: a file cannot be read.
        """
        if self._endpoint is None:
            return
        # Only clients with OIDC need these modules.
        from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

        from consumer_membership.config.token_endpoint import EndpointUnavailableError

        again = retry_if_exception_type(EndpointUnavailableError)
        wait, stop = wait_fixed(_FIRST_AGAIN_S), stop_after_delay(_FIRST_WITHIN_S)
        Retrying(retry=again, wait=wait, stop=stop, reraise=True)(self.token)

    def of_handle(self) -> TokenCallback:
        """Return the `oauth_cb` of a new handle: its first call may return the last token if no new token is available.

        A handle that replaces another one would otherwise fail after 10 s, with a token that is still valid. Later
        calls raise the callback's exception, so that librdkafka reports it; it keeps the token until it expires.
        """
        may_reuse = True

        def oauth_cb(config: str | None) -> object:
            nonlocal may_reuse
            returned = self._for_librdkafka(config, may_reuse=may_reuse)
            may_reuse = False
            return returned

        return oauth_cb

    def __call__(self, config: str | None) -> object:
        """Return the callback's result or raise its exception, unchecked: librdkafka reports errors in its own way.

        Only text that is not UTF-8 is replaced by an invalid result: in the name of an extension, confluent-kafka would
        crash on it.
        """
        return self._for_librdkafka(config, may_reuse=False)

    def _for_librdkafka(self, config: str | None, *, may_reuse: bool) -> object:
        with self._lock:
            kept = self._good()
            if kept is not None:
                return kept.returned
            try:
                returned = self._callback(config)
            except Exception as error:
                self.last_failure = _raised(error) if self._endpoint is None else str(error)
                last = self._unexpired()
                if may_reuse and last is not None:
                    return _with_expiry(last.returned, last.token.expires_at)
                raise
            try:
                returned = self._keep(returned).returned
            except AuthenticationError as error:
                self.last_failure = str(error)
                if not all(problem_of(text, None) is None for text in _texts_in(returned)):
                    return _NO_TOKEN
            return returned

    def token(self) -> Token:
        """Return the token that is valid now; wait for the callback if there is none.

        If the callback fails, the last token is returned until it expires; librdkafka also continues with it.

        Raises:
            AuthenticationError: the callback raised, or its result is not a valid token.
        """
        with self._lock:
            kept = self._good()
            if kept is not None:
                return kept.token
            try:
                return self._fetched().token
            except (AuthenticationError, ConfigurationError) as error:
                self.last_failure = str(error)
                last = self._unexpired()
                if last is not None:
                    return last.token
                raise

    def _fetched(self) -> _Kept:
        try:
            returned = self._callback(self._config_text)
        except Exception as error:
            if self._endpoint is not None:
                raise
            raise AuthenticationError(_raised(error)) from error
        return self._keep(returned)

    def _good(self) -> _Kept | None:
        kept = self._kept
        return kept if kept is not None and self._clock() < kept.good_until else None

    def _unexpired(self) -> _Kept | None:
        """Return the last token until it expires, which is later than the time to fetch the next one."""
        kept = self._kept
        return kept if kept is not None and self._clock() < kept.token.expires_at else None

    def _keep(self, returned: object) -> _Kept:
        now = self._clock()
        token = _token_of(returned, now)
        shown_life_s = token.expires_at - now
        if self._endpoint is not None:
            shown_life_s *= random.uniform(*_SHOWN_LIFE)  # noqa: S311 - no secret
            returned = _with_expiry(returned, now + shown_life_s)
        good_until = now + USED_LIFE * shown_life_s
        self.last_failure = ""
        self._kept = kept = _Kept(returned=returned, token=token, good_until=good_until)
        return kept


def _with_expiry(returned: object, expires_at: float) -> object:
    """Return a callback's valid result with another expiry."""
    return (returned[0], expires_at, *returned[2:]) if isinstance(returned, tuple) else returned


def _raised(error: Exception) -> str:
    return f"oauth_cb raised {type(error).__name__}: {error}"


def _token_of(returned: object, now: float) -> Token:
    if not isinstance(returned, tuple):
        raise _wrong(f"it returned a value of type {type(returned).__name__}")
    if not _SHORTEST <= len(returned) <= _LONGEST:
        raise _wrong(f"it returned {len(returned)} element{'' if len(returned) == 1 else 's'}")
    value, expiry, *more = returned
    if more and not isinstance(more[0], str):
        raise _wrong(f"the principal is of type {type(more[0]).__name__}, not text")
    problem = problem_of(more[0], None, is_secret=True) if more else None
    if problem is not None:
        raise _wrong(f"the principal cannot be sent: {problem}")
    return Token(
        value=_value(value), expires_at=_expiry(expiry, now), extensions=_extensions(more[1] if more[1:] else {})
    )


def _texts_in(returned: object) -> Iterator[str]:
    """Yield all text in a callback's result."""
    parts = list(returned) if isinstance(returned, tuple) else []
    for part in parts:
        parts += [*part, *part.values()] if isinstance(part, dict) else []
    return (part for part in parts if isinstance(part, str))


def _value(given: object) -> str:
    if not isinstance(given, str):
        raise _wrong(f"the token is of type {type(given).__name__}, not text")
    if not given:
        raise _wrong("the token is empty")
    if _VALUE.fullmatch(given) is None:
        raise _wrong("the token has a character that is not printable ASCII")
    return given


def _expiry(given: object, now: float) -> float:
    if not isinstance(given, SupportsFloat):
        raise _wrong(f"the expiry is of type {type(given).__name__}, not a number")
    expires_at = float(given)
    if not now < expires_at < math.inf:
        raise _wrong(
            f"the token expires at {expires_at}, which is not after the current time {now:.0f} (seconds since 1970)"
        )
    return expires_at


def _extensions(given: object) -> Mapping[str, str]:
    if not isinstance(given, dict):
        raise _wrong(f"the extensions are of type {type(given).__name__}, not a dict")
    found: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or name == _RESERVED:
            raise _wrong(
                f"the extension name {name!r} must consist of the letters a-z and A-Z and must not be {_RESERVED}"
            )
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise _wrong(f"the value of the extension {name!r} must be printable ASCII text")
        found[name] = value
    return MappingProxyType(found)


def _wrong(what: str) -> AuthenticationError:
    return AuthenticationError(f"oauth_cb: {what}; {_REMEDY}")
