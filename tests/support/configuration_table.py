"""Generate the tables of `docs/reference/configuration.md`: `python -m tests.support.configuration_table`.

A key of the model has a description, which is for users, if the key belongs to this package or has additional meaning
here. The other keys of the model have librdkafka's meaning. Types and ranges come from the functions that read values.
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
from consumer_membership.config import values
from consumer_membership.config.environment import variable_of
from consumer_membership.config.group_protocol import CLASSIC_HEARTBEAT_MS
from consumer_membership.config.keys import FETCHER_DEFAULTS
from consumer_membership.config.model import READERS, ConsumerConfig
from consumer_membership.config.strategies import DEFAULT
from tests.support import librdkafka_keys

DOCUMENT = Path(consumer_membership.__file__).parents[1] / "docs" / "reference/configuration.md"
#: Texts for users for defaults that are None or Python objects in the model.
_DEFAULT_TEXTS: Mapping[str, str] = {
    "group.id": "required",
    "group.instance.id.conflict.policy": "takeover; wait with a pool",
    "group.instance.id.lock.directory": "a directory of the user",
    "group.protocol": "auto",
    "group.remote.assignor": "the broker's default",
    "heartbeat.interval.ms": f"the broker's interval (5000); classic: {CLASSIC_HEARTBEAT_MS}, or a third of the session"
    " timeout if that is shorter",
    "partition.assignment.strategy": ",".join(assignor.name for assignor in DEFAULT),
    "rebalance.callbacks": "as confluent-kafka with the same configuration",
    "isolation.level": "read_committed",
    "ssl.endpoint.identification.algorithm": "https",
    "metadata.recovery.strategy": "rebootstrap",
    "client.dns.lookup": "use_all_dns_ips",
}
#: Descriptions of keys that are not in the model, because librdkafka reads them.
_NOT_IN_MODEL: Mapping[str, str] = {
    "fetch.queue.backoff.ms": "librdkafka's own default of 1000 limits a consumer to a fifth of its throughput.",
    "fetch.wait.max.ms": "A newly assigned partition waits for the fetch in flight, at most for this time (librdkafka's"
    " default: 500). An idle consumer therefore fetches ten times per second.",
    "logger": "Also receives the log lines of this consumer's membership.",
    "debug": "Also for the membership, with the contexts `cgrp`, `consumer`, `broker`, `protocol` and `all`.",
    "log_level": "Also for the membership.",
}
#: The types and values of readers that have neither a range of numbers nor a list of choices.
_TYPES: Mapping[object, str] = {
    values.boolean: "boolean",
    values.guardian: "boolean",
    values.text: "text",
    values.pool: "text or list",
    values.strategies: "text or list",
    values.blacklist: "text: comma-separated patterns",
    values.reset: "`earliest`, `latest`, `error`, `by_duration:` and an ISO-8601 duration",
    values.listen_address: "`HOST:PORT`",
    values.file_path: "path",
}


def descriptions() -> Mapping[str, str]:
    """Return the model's description of each key that has one."""
    (model,) = ast.parse(inspect.getsource(ConsumerConfig)).body
    assert isinstance(model, ast.ClassDef)
    found = {}
    for field, text in zip(model.body, model.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(raw))):
                found[name.replace("_", ".")] = re.sub(r"\s+", " ", raw).strip()
    return found


def defaults() -> Mapping[str, str]:
    """Return the default of each key as users would write it; "" if there is none."""
    known = {field.name.replace("_", "."): field.default for field in fields(ConsumerConfig)}
    del known["given"]
    return {key: _DEFAULT_TEXTS.get(key, _shown(value)) for key, value in known.items()} | dict(FETCHER_DEFAULTS)


def _shown(value: object) -> str:
    return "" if value in (None, ()) else str(value.value if isinstance(value, Enum) else value)


def kind(key: str) -> str:
    """Return the type of a key, with its range or its values."""
    if key not in READERS:
        found = librdkafka_keys.properties().get(key)
        return "object" if found is None else _with_unit(key, found.range) if key.endswith(".ms") else found.range
    _, read = READERS[key]
    if read in _TYPES:
        return _TYPES[read]
    bounds = inspect.getclosurevars(read).nonlocals
    if "choices" in bounds:
        return ", ".join(f"`{name}`" for name in bounds["choices"])
    return _with_unit(key, f"{bounds['minimum']} to {bounds['maximum']}")


def _with_unit(key: str, span: str) -> str:
    return f"{span} {'ms' if key.endswith('.ms') else 'bytes'}"


def _variable(key: str) -> str:
    return "" if key == "logger" else f"`{variable_of(key)}`"


def own_keys() -> Iterator[str]:
    """Yield the rows of keys that belong to this package, or have additional meaning here."""
    known = defaults()
    for key, text in {**descriptions(), **_NOT_IN_MODEL}.items():
        yield f"| `{key}` | {known.get(key) or 'none'} | {kind(key)} | {text} | {_variable(key)} |"


def other_keys() -> Iterator[str]:
    """Yield the rows of the model's other keys."""
    described = descriptions()
    for key, default in defaults().items():
        if key not in described and key not in FETCHER_DEFAULTS:
            yield f"| `{key}` | {default or 'none'} | {kind(key)} | {_variable(key)} |"


TABLES = {
    "own keys": (
        "| key | default | type, values or range | description | environment variable |",
        "|---|---|---|---|---|",
        own_keys,
    ),
    "other keys": ("| key | default | type, values or range | environment variable |", "|---|---|---|---|", other_keys),
    "librdkafka's keys": (
        "| key | honored by | librdkafka's range | librdkafka's default | notes |",
        "|---|---|---|---|---|",
        librdkafka_keys.rows,
    ),
}


def renewed(text: str) -> str:
    """Return the document with current tables."""
    for name, (head, rule, rows) in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join((before + begin, head, rule, *rows(), end)) + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
