"""Bearer tokens: librdkafka and the membership share one oauth_cb."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import confluent_kafka
import pytest

from consumer_membership.config import (
    SaslMechanism,
    SaslSettings,
    Token,
)
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.errors import AuthenticationError
from tests.config.secured import (
    BEARER,
    LEAST,
    Callback,
    Keys,
    config,
    source,
)

NOW = 1_000_000.0


class Clock:
    """A clock that the test sets, in seconds since 1970."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def shared(*returned: object, text: str | None = None) -> tuple[SharedTokens, Callback, Clock]:
    """Return the wrapper of a callback that returns these values in turn."""
    callback, clock = Callback("", *returned), Clock()
    return SharedTokens(callback, text, clock), callback, clock


def test_config_gives_librdkafka_and_connections_same_token_wrapper() -> None:
    """Librdkafka's callback and the connections' token source are one object."""
    made = config(BEARER, {"oauth_cb": Callback("t")})
    settings = made.connection_settings().sasl
    assert settings is not None
    assert settings == SaslSettings(mechanism=SaslMechanism.OAUTHBEARER, token=source(made).token)
    assert source(made) is source(made)
    assert source(config(BEARER, {"oauth_cb": Callback("t")})) is not source(made)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "expected"), [({}, None), ({"sasl.oauthbearer.config": ""}, None)])
def test_oauth_cb_receives_none_without_oauthbearer_config(given: Keys, expected: object) -> None:
    """Without sasl.oauthbearer.config, the callback receives None, as with confluent-kafka."""
    theirs, ours = Callback("t"), Callback("t")
    confluent_kafka.Consumer({**LEAST, **BEARER, "log_level": 0, **given, "oauth_cb": theirs}).close()
    source(config(BEARER, given, {"oauth_cb": ours})).token()
    assert theirs.calls == ours.calls == [expected]


@pytest.mark.slow
def test_oauth_cb_is_called_once_for_librdkafka_and_membership() -> None:
    """A real handle receives its token from the wrapper, and the connections receive the same token."""
    callback = Callback("t")
    made = config(BEARER, {"oauth_cb": callback, "log_level": 0})
    confluent_kafka.Consumer(made.fetcher_config()).close()
    assert source(made).token().value == "t"
    assert len(callback.calls) == 1


def test_oauth_cb_receives_oauthbearer_config_from_either_side() -> None:
    """The callback receives sasl.oauthbearer.config from librdkafka and from the membership."""
    callback = Callback("", ("one", NOW), ("two", NOW))
    made = config(BEARER, {"oauth_cb": callback, "sasl.oauthbearer.config": " a=b"})
    with pytest.raises(AuthenticationError):
        source(made).token()
    source(made)("a=b")
    assert callback.calls == ["a=b", "a=b"]


def test_token_is_fetched_once_and_shared() -> None:
    """The first side that needs a token fetches it for both sides."""
    tokens, callback, _ = shared(("one", NOW + 100, "me", {"a": "b"}))
    assert tokens("x") == ("one", NOW + 100, "me", {"a": "b"})
    assert tokens.token() == Token(value="one", expires_at=NOW + 100, extensions={"a": "b"})
    assert tokens("x") == ("one", NOW + 100, "me", {"a": "b"})
    assert callback.calls == ["x"]


def test_token_is_renewed_after_three_quarters_of_its_lifetime() -> None:
    """Librdkafka requests the next token at 80 % of the lifetime and must then receive a new one."""
    tokens, callback, clock = shared(("one", NOW + 100), ("two", NOW + 200))
    assert tokens.token().value == "one"
    clock.now = NOW + 74
    assert tokens.token().value == "one"
    clock.now = NOW + 76
    assert tokens(None) == ("two", NOW + 200)
    assert tokens.token().value == "two"
    assert len(callback.calls) == 2


def test_token_whose_renewal_fails_is_used_until_it_expires() -> None:
    """A failed renewal keeps the old token, as in librdkafka, and reports the failure."""
    failure = OSError("the server is away")
    tokens, _, clock = shared(("one", NOW + 100), failure, failure, ("two", NOW + 300))
    assert (tokens.token().value, tokens.last_failure) == ("one", "")
    clock.now = NOW + 80
    assert tokens.token().value == "one"
    assert tokens.last_failure == "oauth_cb raised OSError: the server is away"
    clock.now = NOW + 101
    with pytest.raises(AuthenticationError, match="the server is away"):
        tokens.token()
    assert (tokens.token().value, tokens.last_failure) == ("two", "")


def test_new_handle_receives_the_valid_token_while_its_renewal_fails() -> None:
    """A handle's first request gets the last token until it expires; later requests get the callback's exception."""
    failure = OSError("the server is away")
    tokens, callback, clock = shared(("one", NOW + 100), failure, failure, failure, failure, ("two", NOW + 300))
    running, replaced = tokens.of_handle(), tokens.of_handle()
    assert running(None) == ("one", NOW + 100)
    clock.now = NOW + 80
    with pytest.raises(OSError, match="away"):
        running(None)
    assert replaced(None) == ("one", NOW + 100)
    assert tokens.last_failure == "oauth_cb raised OSError: the server is away"
    with pytest.raises(OSError, match="away"):
        replaced(None)
    clock.now = NOW + 101
    late = tokens.of_handle()
    with pytest.raises(OSError, match="away"):
        late(None)
    assert late(None) == replaced(None) == ("two", NOW + 300)
    assert len(callback.calls) == 6


def test_oauth_cb_runs_in_one_thread_at_a_time() -> None:
    """If several threads need a token, one calls the callback and the others wait for its result."""
    inside, most = 0, 0
    everybody = threading.Barrier(4)
    calls: list[object] = []

    def callback(text: str | None) -> object:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        calls.append(text)
        threading.Event().wait(0.01)
        inside -= 1
        return "t", NOW + 100

    tokens = SharedTokens(callback, None, lambda: NOW)

    def ask(how: Callable[[], object]) -> None:
        everybody.wait()
        how()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, [tokens.token, lambda: tokens(None), tokens.token, lambda: tokens(None)]))
    assert (most, len(calls)) == (1, 1)


def test_oauth_cb_exception_reaches_librdkafka_and_membership() -> None:
    """Librdkafka receives the exception, the membership AuthenticationError; the next request calls again."""
    failure = OSError("no way to the token's server")
    tokens, _, _ = shared(failure, failure, ("one", NOW + 100))
    with pytest.raises(OSError, match="no way") as raw:
        tokens(None)
    assert raw.value is failure
    with pytest.raises(AuthenticationError, match=r"oauth_cb.*no way to the token's server") as caught:
        tokens.token()
    assert caught.value.__cause__ is failure
    assert tokens.token().value == "one"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "NoneType"),
        ("hunter2", "str"),
        (["hunter2", NOW + 100], "list"),
        (("hunter2",), "1 element"),
        (("hunter2", NOW + 100, "me", {}, "more"), "5 elements"),
        ((b"hunter2", NOW + 100), "the token is of type bytes"),
        (("", NOW + 100), "the token is empty"),
        (("hunter2\x01auth=x", NOW + 100), "the token has a character"),
        (("hunter2", "soon"), "the expiry is of type str"),
        (("hunter2", None), "the expiry is of type NoneType"),
        (("hunter2", 3600), "seconds since 1970"),
        (("hunter2", NOW), "seconds since 1970"),
        (("hunter2", float("nan")), "seconds since 1970"),
        (("hunter2", float("inf")), "seconds since 1970"),
        (("hunter2", NOW + 100, None), "the principal is of type NoneType"),
        (("hunter2", NOW + 100, "me", None), "the extensions are of type NoneType"),
        (("hunter2", NOW + 100, "me", {"a1": "x"}), "extension name 'a1'"),
        (("hunter2", NOW + 100, "me", {"auth": "x"}), "extension name 'auth'"),
        (("hunter2", NOW + 100, "me", {"": "x"}), "extension name ''"),
        (("hunter2", NOW + 100, "me", {1: "x"}), "extension name 1"),
        (("hunter2", NOW + 100, "me", {"a": 1}), "extension 'a'"),
        (("hunter2", NOW + 100, "me", {"a": "hunter2\x01"}), "extension 'a'"),
    ],
)
def test_invalid_token_raises_error_that_hides_it(returned: object, message: str) -> None:
    """The rules are librdkafka's; librdkafka receives the invalid value and reports it itself."""
    tokens, callback, _ = shared(returned)
    with pytest.raises(AuthenticationError) as caught:
        tokens.token()
    assert message in str(caught.value)
    assert "oauth_cb" in str(caught.value)
    assert "(token, expiry in seconds since 1970" in str(caught.value)
    assert "hunter2" not in f"{caught.value!r}"
    assert tokens(None) is returned
    assert len(callback.calls) == 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (("hunter2\ud800", NOW + 100), "the token has a character"),
        (("hunter2", NOW + 100, "hunter2\ud800"), "the principal cannot be sent: it is not UTF-8"),
        (("hunter2", NOW + 100, "hunter2\0"), "the principal cannot be sent: it has a NUL character"),
        (("hunter2", NOW + 100, "me", {"a\ud800": "x"}), "extension name 'a\\ud800' must consist"),
        (("hunter2", NOW + 100, "me", {"a": "hunter2\0"}), "the value of the extension 'a' must be"),
    ],
)
def test_token_with_invalid_text_is_not_passed_to_librdkafka(returned: object, message: str) -> None:
    """Such an extension name causes a segmentation fault in confluent-kafka."""
    tokens, _, _ = shared(returned)
    with pytest.raises(AuthenticationError) as caught:
        tokens.token()
    assert message in str(caught.value)
    assert "hunter2" not in f"{caught.value!r}"
    assert tokens(None) == ()
    assert message in tokens.last_failure


def test_token_is_independent_of_returned_dict() -> None:
    """The application may reuse the dict that its callback returned."""
    extensions = {"a": "b"}
    tokens, _, _ = shared(("one", int(NOW) + 100, "", extensions))
    expected = tokens.token()
    extensions["a"] = "c"
    assert expected.extensions == tokens.token().extensions == {"a": "b"}
    assert replace(expected, extensions={}) == Token(value="one", expires_at=NOW + 100)
