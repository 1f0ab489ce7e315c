"""Keys and values that Kafka or librdkafka cannot accept raise an error that names the key."""

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
def test_value_with_invalid_text_raises_error_that_names_its_key(key: str, text: str) -> None:
    """A value that is not UTF-8 or has a NUL raises an error that names the key and escapes the value."""
    error = refusal_of({key: text})
    assert error.key == key
    assert ascii(text)[1:-1] in str(error)


@pytest.mark.parametrize("key", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"])
@pytest.mark.parametrize("text", ["pass\ud800word", "pass\0word"])
def test_error_of_invalid_secret_hides_its_value(key: str, text: str) -> None:
    """The secret appears neither in the message, nor in the error's attributes, nor in its context."""
    error: BaseException | None = refusal_of({key: text})
    assert error is not None
    assert f"{key}='***': it " in str(error)
    while error is not None:
        assert "pass" not in f"{error!r} {vars(error)}".replace(key, "")
        error = error.__context__


@pytest.mark.slow
@given(st.sampled_from(["group.id", "client.id", "group.instance.id", "client.rack"]), ANY_TEXT.filter(bool))
def test_config_accepts_exactly_the_text_that_confluent_kafka_accepts(key: str, text: str) -> None:
    """The configuration accepts a text if and only if confluent-kafka's C code accepts it."""
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
        # The coordinator appends a dash and a UUID to these texts, which gives the member id.
        ("client.id", 32_730),
        ("group.instance.id", 32_730),
    ],
)
def test_request_text_longer_than_its_limit_is_rejected(key: str, longest: int) -> None:
    """The limit counts UTF-8 bytes; the error names key, length and limit, and shortens the value."""
    assert ConsumerConfig.from_mapping({**LEAST, key: "x" * longest}).given[key] == "x" * longest
    error = refusal_of({key: "é" * 20_000})
    assert error.key == key
    assert f"it has 40000 bytes of UTF-8, and Kafka accepts at most {longest}" in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize("pool", [["orders-1", "a" * 32_731], f"orders-1,{'a' * 32_731}", ["a\ud800"], ["a\0"]])
def test_instance_pool_with_invalid_id_is_rejected(pool: object) -> None:
    """Each id of a pool must be a valid instance id."""
    error = refusal_of({"group.instance.id.pool": pool})
    assert "is invalid: it " in str(error)
    assert len(error.remedy) < 300


@pytest.mark.parametrize("name", ["mine\ud800", "mi\0ne", "m" * 32_768])
def test_custom_assignor_with_invalid_name_is_rejected(name: str) -> None:
    """JoinGroup sends the assignor's name, so the name must be valid text."""

    class Mine(RangeAssignor):
        pass

    Mine.name = name
    error = refusal_of({"partition.assignment.strategy": [Mine()]})
    assert "the assignor Mine has an invalid name" in str(error)


def test_assignor_that_cannot_be_created_is_rejected() -> None:
    """An exception in a user's class, property or module raises ConfigurationError with its cause."""

    class Needy(RangeAssignor):
        def __init__(self, weights: object) -> None:
            self.weights = weights

    class Nameless(RangeAssignor):
        @property
        def name(self) -> str:  # type: ignore[override]  # a constant of the built-in one
            raise KeyError("no name")

    for assignor, message in (
        (Needy, "the assignor Needy cannot be created without arguments, or its name cannot be read: TypeError: "),
        (
            Nameless(),
            "the assignor Nameless cannot be created without arguments, or its name cannot be read: KeyError: 'no nam",
        ),
        (5, "int is not an assignor: it needs name, protocols, user_data() and assign()"),
        (dict, "dict is not an assignor"),
        ("this:that:other", "cannot be imported: AttributeError: "),
        ("tests.no_such_module:Name", "cannot be imported: ModuleNotFoundError: "),
    ):
        assert message in str(refusal_of({"partition.assignment.strategy": [assignor]}))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (5, 'No such configuration property: "5"; a key must be text, such as "client.id", not int'),
        (b"client.id", 'a key must be text, such as "client.id", not bytes'),
        (None, "not NoneType"),
        ("a\ud800", "it is not UTF-8"),
        ("client.id\0x", "it has a NUL character at position 9"),
        ("_env_file", 'No such configuration property: "_env_file"'),
        ("Client.Id", 'No such configuration property: "Client.Id"; did you mean client.id?'),
        ("SASL.Password", "SASL.Password='***'"),
    ],
)
def test_invalid_key_is_rejected(key: object, message: str) -> None:
    """An invalid key raises an error; confluent-kafka crashes on some keys and truncates others."""
    config: dict[Any, object] = {**LEAST, key: "x"}
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping(config)
    assert message in str(caught.value)


def test_error_of_bytes_key_hides_secret_value() -> None:
    """The error hides the value of `b"sasl.password"`, whose key has the wrong type."""
    config: dict[Any, object] = {**LEAST, b"sasl.password": "geheim"}
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping(config)
    assert "geheim" not in str(caught.value)


def test_value_whose_str_raises_is_type_error() -> None:
    """A value without a text form raises TypeError with confluent-kafka's message."""

    class Mute:
        def __str__(self) -> str:
            raise KeyError("no message")

    with pytest.raises(ArgumentTypeError, match=r"client\.id='<Mute>': expected configuration property value as type"):
        ConsumerConfig.from_mapping({**LEAST, "client.id": Mute()})


@pytest.mark.parametrize("config", [None, 5, "bootstrap.servers", [("group.id", "g")]])
def test_config_that_is_not_mapping_is_rejected(config: object) -> None:
    """A configuration that is not a dict raises an error, for example in `GroupAdmin(None)`."""
    with pytest.raises(ArgumentTypeError, match="pass a dict"):
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
def test_any_config_is_accepted_or_raises_configuration_error(config: dict[str, object]) -> None:
    """No configuration raises anything other than ConfigurationError."""
    with suppress(ConfigurationError):
        made = ConsumerConfig.from_mapping({**LEAST, **config})
        made.member_settings()
        made.connection_settings()
        made.start_settings()


def test_error_of_long_value_is_short() -> None:
    """The message shortens a long value, such as a certificate under the wrong key."""
    error = refusal_of({"partition.assignment.strategy": ["x" * 100_000]})
    assert len(str(error)) - len(error.remedy) < 300
