"""The messages in which errors of the membership are told, of either kind."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from consumer_membership.runtime.application import error_message as module
from consumer_membership.runtime.application.error_message import CAN_BE_MADE, ErrorMessage, error_message

ERROR = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not yours")
#: What every supported release's messages can be asked.
QUESTIONS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "latency", "leader_epoch")


def test_message_has_librdkafkas_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both kinds the same; it is true, as its value is not empty."""
    made = [error_message("t", ERROR)]
    monkeypatch.setattr(module, "CAN_BE_MADE", False)
    made.append(error_message("t", ERROR))
    assert [isinstance(one, Message) for one in made] == [CAN_BE_MADE, False]
    for one in made:
        answers = [getattr(one, question)() for question in QUESTIONS]
        assert answers == ["t", 0, None, None, b"not yours", None, (0, -1), None, None]
        assert one.error() == ERROR
        assert (bool(one), len(one)) == (True, 9)


def test_own_message_has_every_method_of_the_releases_it_is_for() -> None:
    """Those before messages could be made; later ones have their own."""
    if not CAN_BE_MADE:
        public = {name for name in dir(Message) if not name.startswith("_")}
        assert public <= set(dir(ErrorMessage))
    assert {*QUESTIONS, "error", "set_key", "set_value", "set_headers"} <= set(dir(ErrorMessage))


def test_deserializer_may_set_what_it_made() -> None:
    """And what is no text has no length, as in librdkafka's messages."""
    own = ErrorMessage("t", b"words", ERROR)
    own.set_key("k")
    own.set_headers([("h", b"v")])
    own.set_value(None)
    assert (own.key(), own.headers(), own.value(), len(own)) == ("k", [("h", b"v")], None, 0)
