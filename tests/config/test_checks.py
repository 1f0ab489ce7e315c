"""Keys and values that Kafka or librdkafka could not take are refused by name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.assignors.range import RangeAssignor
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.keys import KEYS
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from tests.config.builders import LEAST, refusal_of
from tests.support.texts import ANY_TEXT, is_taken_by_c


@pytest.mark.parametrize("text", ["a\ud800", "a\0b"])
@pytest.mark.parametrize(
    "key",
    [
        "group.id",
        "group.instance.id",
        "group.instance.id.pool",
        "group.remote.assignor",
        "group.protocol",
        "client.id",
        "client.rack",
        "bootstrap.servers",
        "partition.assignment.strategy",
        "sasl.username",
        "topic.blacklist",
        "ssl.ca.location",
        "enable.auto.commit",
        "no.such.key",
    ],
)
def test_value_that_c_cannot_take_is_refused_by_its_key(key: str, text: str) -> None:
    """The value is shown with escapes."""
    error = refusal_of({key: text})
    assert error.key == key
    assert ascii(text)[1:-1] in str(error)


@pytest.mark.parametrize("key", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"])
@pytest.mark.parametrize("text", ["pass\ud800word", "pass\0word"])
def test_secret_is_not_shown(key: str, text: str) -> None:
    """Neither in the words, nor in what the error holds, nor in what led to it."""
    error: BaseException | None = refusal_of({key: text})
    assert error is not None
    assert f"{key}='***': it " in str(error)
    while error is not None:
        assert "pass" not in f"{error!r} {vars(error)}".replace(key, "")
        error = error.__context__


@pytest.mark.slow
@given(st.sampled_from(["group.id", "client.id", "group.instance.id", "client.rack"]), ANY_TEXT.filter(bool))
def test_value_is_taken_where_c_takes_it(key: str, text: str) -> None:
    """Nothing good is refused, nothing bad let through."""
    if is_taken_by_c(text):
        assert ConsumerConfig.from_mapping({**LEAST, key: text}).given[key] == text
    else:
        assert refusal_of({key: text}).key == key


@pytest.mark.parametrize(
    ("key", "longest"),
    [
        ("group.id", 32_767),
        ("client.rack", 32_767),
        ("group.remote.assignor", 32_767),
        # The coordinator puts a dash and a UUID behind these: it is the member's id.
        ("client.id", 32_730),
        ("group.instance.id", 32_730),
    ],
)
def test_text_of_a_request_has_its_bound(key: str, longest: int) -> None:
    """In bytes of UTF-8; the refusal names key, length and bound, and not all of the text."""
    assert ConsumerConfig.from_mapping({**LEAST, key: "x" * longest}).given[key] == "x" * longest
    error = refusal_of({key: "é" * 20_000})
    assert error.key == key
    assert f"it has 40000 bytes of UTF-8, and Kafka has room for {longest}" in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize("pool", [["orders-1", "a" * 32_731], f"orders-1,{'a' * 32_731}", ["a\ud800"], ["a\0"]])
def test_pool_has_ids_that_can_be(pool: object) -> None:
    """Each id of a pool is an instance id."""
    error = refusal_of({"group.instance.id.pool": pool})
    assert "cannot be: it " in str(error)
    assert len(error.remedy) < 300


@pytest.mark.parametrize("name", ["mine\ud800", "mi\0ne", "m" * 32_768])
def test_name_of_an_own_assignor_can_be_told(name: str) -> None:
    """It goes into JoinGroup."""

    class Mine(RangeAssignor):
        pass

    Mine.name = name
    error = refusal_of({"partition.assignment.strategy": [Mine()]})
    assert "the assignor Mine cannot have the name" in str(error)


def test_assignor_that_cannot_be_made_is_refused() -> None:
    """A user's own class, property and module may raise anything."""

    class Needy(RangeAssignor):
        def __init__(self, weights: object) -> None:
            self.weights = weights

    class Nameless(RangeAssignor):
        @property
        def name(self) -> str:  # type: ignore[override]  # a constant of the built-in one
            raise KeyError("no name")

    for assignor, words in (
        (Needy, "the assignor Needy cannot be made without arguments and asked its name: TypeError: "),
        (Nameless(), "the assignor Nameless cannot be made without arguments and asked its name: KeyError: 'no name'"),
        (5, "int is no assignor: it needs name, protocols, user_data() and assign()"),
        (dict, "dict is no assignor"),
        ("this:that:other", "cannot be imported: AttributeError: "),
        ("tests.no_such_module:Name", "cannot be imported: ModuleNotFoundError: "),
    ):
        assert words in str(refusal_of({"partition.assignment.strategy": [assignor]}))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (5, 'No such configuration property: "5"; a key is text, such as "client.id", and no int'),
        (b"client.id", 'a key is text, such as "client.id", and no bytes'),
        (None, "and no NoneType"),
        ("a\ud800", "it is not UTF-8"),
        ("client.id\0x", "it has a NUL character at position 9"),
        ("_env_file", 'No such configuration property: "_env_file"'),
        ("Client.Id", 'No such configuration property: "Client.Id"; did you mean client.id?'),
        ("SASL.Password", "SASL.Password='***'"),
    ],
)
def test_key_that_cannot_be_is_refused(key: object, words: str) -> None:
    """confluent-kafka crashes on some, and cuts others."""
    config: dict[Any, object] = {**LEAST, key: "x"}
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping(config)
    assert words in str(caught.value)


def test_secret_under_a_key_of_the_wrong_type_is_not_shown() -> None:
    """`b"sasl.password"` is such a mistake, too."""
    config: dict[Any, object] = {**LEAST, b"sasl.password": "geheim"}
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping(config)
    assert "geheim" not in str(caught.value)


def test_value_without_a_text_is_a_type_error() -> None:
    """As in confluent-kafka, with its words."""

    class Mute:
        def __str__(self) -> str:
            raise KeyError("no words")

    with pytest.raises(ArgumentTypeError, match=r"client\.id='<Mute>': expected configuration property value as type"):
        ConsumerConfig.from_mapping({**LEAST, "client.id": Mute()})


@pytest.mark.parametrize("config", [None, 5, "bootstrap.servers", [("group.id", "g")]])
def test_configuration_is_a_mapping(config: object) -> None:
    """`GroupAdmin(None)` among others."""
    with pytest.raises(ArgumentTypeError, match="the configuration is a dict"):
        ConsumerConfig.from_mapping(config)  # type: ignore[arg-type]  # the mistake in question


THINGS = st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | ANY_TEXT
WORDS = st.sampled_from(
    ["true", "0", "-1", "1e9", "auto", "classic", "range", "x:y", "a-{0..3}", "sasl_ssl", "PLAIN", ""]
)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(sorted({*KEYS, "oauth.cb", "test.mock.num.brokers"})),
        THINGS | WORDS | st.lists(THINGS | WORDS, max_size=3) | st.dictionaries(ANY_TEXT, THINGS, max_size=2),
        max_size=4,
    )
)
def test_any_configuration_is_taken_or_refused_by_a_key(config: dict[str, object]) -> None:
    """Never another error out of our own insides."""
    with suppress(ConfigurationError):
        made = ConsumerConfig.from_mapping({**LEAST, **config})
        made.member_settings()
        made.connection_settings()
        made.start_settings()


def test_long_value_is_not_shown_whole() -> None:
    """A certificate given under the wrong key, for instance."""
    error = refusal_of({"partition.assignment.strategy": ["x" * 100_000]})
    assert len(str(error)) - len(error.remedy) < 300
