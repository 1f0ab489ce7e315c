"""Bearer tokens: one oauth_cb for librdkafka and the membership."""

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
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def shared(*returned: object, text: str | None = None) -> tuple[SharedTokens, Callback, Clock]:
    """The wrapper of a callback that returns this, one after the other."""
    callback, clock = Callback("", *returned), Clock()
    return SharedTokens(callback, text, clock), callback, clock


def test_both_sides_share_one_wrapper() -> None:
    """The callback of librdkafka and the connections' source of tokens are one object."""
    made = config(BEARER, {"oauth_cb": Callback("t")})
    settings = made.connection_settings().sasl
    assert settings is not None
    assert settings == SaslSettings(mechanism=SaslMechanism.OAUTHBEARER, token=source(made).token)
    assert source(made) is source(made)
    assert source(config(BEARER, {"oauth_cb": Callback("t")})) is not source(made)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "expected"), [({}, None), ({"sasl.oauthbearer.config": ""}, None)])
def test_callback_gets_the_configuration_as_from_confluent_kafka(given: Keys, expected: object) -> None:
    """None where sasl.oauthbearer.config is not set: the real one says so."""
    theirs, ours = Callback("t"), Callback("t")
    confluent_kafka.Consumer({**LEAST, **BEARER, "log_level": 0, **given, "oauth_cb": theirs}).close()
    source(config(BEARER, given, {"oauth_cb": ours})).token()
    assert theirs.calls == ours.calls == [expected]


@pytest.mark.slow
def test_librdkafka_and_the_membership_ask_the_callback_once() -> None:
    """A real handle gets its token from the wrapper, and the connections get the same."""
    callback = Callback("t")
    made = config(BEARER, {"oauth_cb": callback, "log_level": 0})
    confluent_kafka.Consumer(made.fetcher_config()).close()
    assert source(made).token().value == "t"
    assert len(callback.calls) == 1


def test_callback_gets_the_text_of_the_configuration() -> None:
    """From either side."""
    callback = Callback("", ("one", NOW), ("two", NOW))
    made = config(BEARER, {"oauth_cb": callback, "sasl.oauthbearer.config": " a=b"})
    with pytest.raises(AuthenticationError):
        source(made).token()
    source(made)("a=b")
    assert callback.calls == ["a=b", "a=b"]


def test_token_is_fetched_once_for_both_sides() -> None:
    """Whoever asks first."""
    tokens, callback, _ = shared(("one", NOW + 100, "me", {"a": "b"}))
    assert tokens("x") == ("one", NOW + 100, "me", {"a": "b"})
    assert tokens.token() == Token(value="one", expires_at=NOW + 100, extensions={"a": "b"})
    assert tokens("x") == ("one", NOW + 100, "me", {"a": "b"})
    assert callback.calls == ["x"]


def test_token_is_used_for_three_quarters_of_its_life() -> None:
    """At 80 % of it librdkafka asks for the next one, and must get another one then."""
    tokens, callback, clock = shared(("one", NOW + 100), ("two", NOW + 200))
    assert tokens.token().value == "one"
    clock.now = NOW + 74
    assert tokens.token().value == "one"
    clock.now = NOW + 76
    assert tokens(None) == ("two", NOW + 200)
    assert tokens.token().value == "two"
    assert len(callback.calls) == 2


def test_token_that_cannot_be_renewed_is_used_as_long_as_it_lives() -> None:
    """So does librdkafka; why there is no new one can be told meanwhile."""
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


def test_callback_is_in_one_thread_at_a_time() -> None:
    """The threads of librdkafka and of the membership may ask together: one waits, and gets the same token."""
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


def test_what_the_callback_raises_goes_to_both_sides() -> None:
    """As it is to librdkafka's border, as AuthenticationError to the membership; the next one asks again."""
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
    ("returned", "words"),
    [
        (None, "NoneType"),
        ("hunter2", "str"),
        (["hunter2", NOW + 100], "list"),
        (("hunter2",), "1 element"),
        (("hunter2", NOW + 100, "me", {}, "more"), "5 elements"),
        ((b"hunter2", NOW + 100), "the token is of the type bytes"),
        (("", NOW + 100), "the token is empty"),
        (("hunter2\x01auth=x", NOW + 100), "the token has a character"),
        (("hunter2", "soon"), "the expiry is of the type str"),
        (("hunter2", None), "the expiry is of the type NoneType"),
        (("hunter2", 3600), "seconds since 1970"),
        (("hunter2", NOW), "seconds since 1970"),
        (("hunter2", float("nan")), "seconds since 1970"),
        (("hunter2", float("inf")), "seconds since 1970"),
        (("hunter2", NOW + 100, None), "the principal is of the type NoneType"),
        (("hunter2", NOW + 100, "me", None), "the extensions are of the type NoneType"),
        (("hunter2", NOW + 100, "me", {"a1": "x"}), "extension 'a1'"),
        (("hunter2", NOW + 100, "me", {"auth": "x"}), "extension 'auth'"),
        (("hunter2", NOW + 100, "me", {"": "x"}), "extension ''"),
        (("hunter2", NOW + 100, "me", {1: "x"}), "extension 1"),
        (("hunter2", NOW + 100, "me", {"a": 1}), "extension 'a'"),
        (("hunter2", NOW + 100, "me", {"a": "hunter2\x01"}), "extension 'a'"),
    ],
)
def test_what_is_no_token_is_refused_without_naming_it(returned: object, words: str) -> None:
    """The rules are librdkafka's; it gets what was returned, and says itself what is wrong."""
    tokens, callback, _ = shared(returned)
    with pytest.raises(AuthenticationError) as caught:
        tokens.token()
    assert words in str(caught.value)
    assert "oauth_cb" in str(caught.value)
    assert "(token, expiry in seconds since 1970" in str(caught.value)
    assert "hunter2" not in f"{caught.value!r}"
    assert tokens(None) is returned
    assert len(callback.calls) == 2


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (("hunter2\ud800", NOW + 100), "the token has a character"),
        (("hunter2", NOW + 100, "hunter2\ud800"), "the principal cannot be sent: it is not UTF-8"),
        (("hunter2", NOW + 100, "hunter2\0"), "the principal cannot be sent: it has a NUL character"),
        (("hunter2", NOW + 100, "me", {"a\ud800": "x"}), "extension 'a\\ud800' needs a name"),
        (("hunter2", NOW + 100, "me", {"a": "hunter2\0"}), "extension 'a' needs a value"),
    ],
)
def test_text_that_c_cannot_take_does_not_get_there(returned: object, words: str) -> None:
    """The name of such an extension is a segmentation fault in confluent-kafka."""
    tokens, _, _ = shared(returned)
    with pytest.raises(AuthenticationError) as caught:
        tokens.token()
    assert words in str(caught.value)
    assert "hunter2" not in f"{caught.value!r}"
    assert tokens(None) == ()
    assert words in tokens.last_failure


def test_token_does_not_change_with_what_was_returned() -> None:
    """An application may use its dict again."""
    extensions = {"a": "b"}
    tokens, _, _ = shared(("one", int(NOW) + 100, "", extensions))
    expected = tokens.token()
    extensions["a"] = "c"
    assert expected.extensions == tokens.token().extensions == {"a": "b"}
    assert replace(expected, extensions={}) == Token(value="one", expires_at=NOW + 100)
