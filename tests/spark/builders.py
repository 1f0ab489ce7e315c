"""The arguments of `consumer_membership.spark`, and the part of a session that is examined before a job starts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message

from consumer_membership.spark import KafkaSink, OutRecord, SinkContext

#: No process listens on this address: a call that contacts the broker raises a different error than the expected one.
CONFIG: Mapping[str, object] = {"bootstrap.servers": "127.0.0.1:1"}


class Conf:
    """A session configuration without keys."""

    def get(self, _: str, default: str | None = None) -> str | None:
        """Return the default."""
        return default


#: The part of a session that is checked before a job.
SESSION = SimpleNamespace(conf=Conf(), sparkContext=SimpleNamespace(_jsc=object()))
STOPPED = SimpleNamespace(conf=Conf(), sparkContext=SimpleNamespace(_jsc=None))
#: The checked part of a Spark Connect session.
CLIENT = SimpleNamespace(conf=Conf())
STOPPED_CLIENT = SimpleNamespace(conf=Conf(), is_stopped=True)


def write(_batch: list[Message], _context: SinkContext) -> None:
    """A sink."""


GIVEN: Mapping[str, object] = {
    "spark": SESSION,
    "config": CONFIG,
    "topics": ["orders"],
    "group": "billing",
    "sink": write,
}


def copying_sink(config: Mapping[str, Any], topic: str) -> KafkaSink:
    """Return a sink that copies each record's value to this topic."""
    return KafkaSink(config, partial(_copied, topic=topic))


def _copied(record: Message, *, topic: str) -> list[OutRecord]:
    return [OutRecord(topic=topic, value=record.value())]
