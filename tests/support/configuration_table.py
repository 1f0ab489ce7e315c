"""Generate the tables of `docs/reference/configuration.md`: `python -m tests.support.configuration_table`.

A key of the model with a description is the package's own, or means more than in librdkafka; the description is what
users read. Keys without a description are librdkafka's and apply to both kinds of connections.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path

import consumer_membership
from consumer_membership.config.group_protocol import CLASSIC_HEARTBEAT_MS
from consumer_membership.config.keys import FETCHER_DEFAULTS
from consumer_membership.config.model import ConsumerConfig
from consumer_membership.config.strategies import DEFAULT
from tests.support import librdkafka_keys

DOCUMENT = Path(consumer_membership.__file__).parents[1] / "docs" / "reference/configuration.md"
#: What the model has as None, or as Python's own value, in the words that a program would give.
_IN_WORDS: Mapping[str, str] = {
    "group.id": "required",
    "group.instance.id.conflict.policy": "takeover; wait with a pool",
    "group.protocol": "auto",
    "group.remote.assignor": "the broker's",
    "heartbeat.interval.ms": f"the broker's (5 s); classic: {CLASSIC_HEARTBEAT_MS / 1000:g} s,"
    " or a third of a shorter session",
    "partition.assignment.strategy": ",".join(assignor.name for assignor in DEFAULT),
    "rebalance.callbacks": "what confluent-kafka tells them with the same configuration",
    "isolation.level": "read_committed",
    "ssl.endpoint.identification.algorithm": "https",
    "metadata.recovery.strategy": "rebootstrap",
    "client.dns.lookup": "use_all_dns_ips",
}
#: Keys that the model leaves to librdkafka, and what is to be said of them.
_BESIDE_THE_MODEL: Mapping[str, str] = {
    "fetch.queue.backoff.ms": "librdkafka's own default of 1000 holds a consumer to a fifth of its throughput",
    "fetch.wait.max.ms": "a partition that is added waits for the fetch under way, at most this long (librdkafka: 500);"
    " so an idle consumer asks ten times a second",
    "logger": "also for the lines of this consumer's membership",
    "debug": "likewise; contexts `cgrp`, `consumer`, `broker`, `protocol`, `all`",
    "log_level": "likewise",
}


def words() -> Mapping[str, str]:
    """The model's description of each key that has one."""
    (model,) = ast.parse(inspect.getsource(ConsumerConfig)).body
    assert isinstance(model, ast.ClassDef)
    said = {}
    for field, text in zip(model.body, model.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(raw))):
                said[name.replace("_", ".")] = re.sub(r"\s+", " ", raw).strip()
    return said


def defaults() -> Mapping[str, str]:
    """The default of each key as a program would write it; "" if there is none."""
    known = {field.name.replace("_", "."): field.default for field in fields(ConsumerConfig)}
    del known["given"]
    return {key: _IN_WORDS.get(key, _shown(value)) for key, value in known.items()} | dict(FETCHER_DEFAULTS)


def _shown(value: object) -> str:
    return "" if value in (None, ()) else str(value.value if isinstance(value, Enum) else value)


def own_keys() -> Iterator[str]:
    """The rows of keys that are the package's own, or mean more than in librdkafka."""
    known = defaults()
    for key, text in {**words(), **_BESIDE_THE_MODEL}.items():
        yield f"| `{key}` | {known.get(key) or 'none'} | {text} |"


def other_keys() -> Iterator[str]:
    """The rows of the model's other keys."""
    said = words()
    for key, default in defaults().items():
        if key not in said and key not in FETCHER_DEFAULTS:
            yield f"| `{key}` | {default or 'none'} |"


TABLES = {
    "own keys": ("| key | default | what it does |", "|---|---|---|", own_keys),
    "other keys": ("| key | default |", "|---|---|", other_keys),
    "librdkafka's keys": ("| key | honoured by | what is to be known |", "|---|---|---|", librdkafka_keys.rows),
}


def renewed(text: str) -> str:
    """The document with the model's current tables."""
    for name, (head, rule, rows) in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join((before + begin, head, rule, *rows(), end)) + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
