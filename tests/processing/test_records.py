"""Copies of records have all fields of the record, even if confluent-kafka's class cannot be created."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from consumer_membership.processing import records
from consumer_membership.processing.records import Record, copy_of, portable

#: The methods of `confluent_kafka.Message` in release 2.6, whose messages can be neither created nor pickled.
OLDEST = "error headers key latency leader_epoch offset partition set_headers set_key set_value timestamp topic value"


def record() -> Message:
    """Return a record with all of its fields."""
    return Message(
        topic="orders",
        partition=2,
        offset=7,
        key=b"key",
        value=b"value",
        headers=[("trace", b"1"), ("empty", None)],
        timestamp=(TIMESTAMP_CREATE_TIME, 5),
        leader_epoch=3,
    )


def content(found: Message) -> dict[str, object]:
    """Return the results of all methods that read."""
    return {name: getattr(found, name)() for name in OLDEST.split() if not name.startswith("set_")}


def test_record_has_every_method_of_the_oldest_message() -> None:
    """A handler that works with the oldest release works with a Record."""
    assert {name for name in dir(Record) if not name.startswith("_")} == set(OLDEST.split())


@pytest.mark.parametrize("is_able", [True, False])
def test_copies_have_everything_and_can_be_changed(monkeypatch: pytest.MonkeyPatch, *, is_able: bool) -> None:
    """A change of the copy does not change the record."""
    monkeypatch.setattr(records, "_IS_COMPLETE", is_able and records._IS_COMPLETE)
    original = record()
    copy = copy_of(original)
    assert (content(copy), len(copy)) == (content(record()), 5)
    copy.set_key("k")
    copy.set_value({"price": 1})
    copy.set_headers([("a", b"1")])
    assert (copy.key(), copy.value(), copy.headers()) == ("k", {"price": 1}, [("a", b"1")])
    assert content(original) == content(record())


@pytest.mark.parametrize("is_able", [True, False])
def test_portable_records_can_be_pickled(monkeypatch: pytest.MonkeyPatch, *, is_able: bool) -> None:
    """Unpickling returns the same content in another process."""
    monkeypatch.setattr(records, "_IS_COMPLETE", is_able and records._IS_COMPLETE)
    sent = pickle.dumps(portable(record()))
    assert content(pickle.loads(sent)) == content(record())  # noqa: S301 - this process pickled it
