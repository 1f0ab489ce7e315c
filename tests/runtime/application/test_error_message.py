"""The messages that carry membership errors: confluent-kafka's `Message` or the package's own class."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from consumer_membership.runtime.application import error_message as module
from consumer_membership.runtime.application.error_message import CAN_BE_MADE, ErrorMessage, error_message

ERROR = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not yours")
#: The methods that messages have in every supported release.
GETTERS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "latency", "leader_epoch")


def test_error_message_has_librdkafkas_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of message have the same fields, and both are true because their value is not empty."""
    made = [error_message("t", ERROR)]
    monkeypatch.setattr(module, "CAN_BE_MADE", False)
    made.append(error_message("t", ERROR))
    assert [isinstance(one, Message) for one in made] == [CAN_BE_MADE, False]
    for one in made:
        answers = [getattr(one, getter)() for getter in GETTERS]
        assert answers == ["t", 0, None, None, b"not yours", None, (0, -1), None, None]
        assert one.error() == ERROR
        assert (bool(one), len(one)) == (True, 9)


def test_own_error_message_has_every_method_of_older_releases() -> None:
    """The package's class replaces `Message` in releases whose messages cannot be constructed."""
    if not CAN_BE_MADE:
        public = {name for name in dir(Message) if not name.startswith("_")}
        assert public <= set(dir(ErrorMessage))
    assert {*GETTERS, "error", "set_key", "set_value", "set_headers"} <= set(dir(ErrorMessage))


def test_own_error_message_accepts_deserialized_key_value_and_headers() -> None:
    """A deserializer may set key, value and headers; a value that is not text has length 0, as in librdkafka."""
    own = ErrorMessage("t", b"words", ERROR)
    own.set_key("k")
    own.set_headers([("h", b"v")])
    own.set_value(None)
    assert (own.key(), own.headers(), own.value(), len(own)) == ("k", [("h", b"v")], None, 0)
