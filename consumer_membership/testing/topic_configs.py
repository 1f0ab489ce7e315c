"""The topic configurations in a cluster inside the test process.

They are stored, checked and described as on a broker, but have no effect: no record is ever deleted or compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from confluent_kafka import KafkaError
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource

_LONGEST = "9223372036854775807"
#: The configuration keys of a topic with their defaults, as Apache Kafka 4.4.0 describes them.
TOPIC_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.type": "producer",
        "compression.zstd.level": "3",
        "delete.retention.ms": "86400000",
        "errors.deadletterqueue.group.enable": "false",
        "file.delete.delay.ms": "60000",
        "flush.messages": _LONGEST,
        "flush.ms": _LONGEST,
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "4096",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": _LONGEST,
        "max.decompressed.message.bytes": "2147483639",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": _LONGEST,
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "remote.copy.lag.bytes": "-1",
        "remote.copy.lag.ms": "0",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
)
_CHOICES = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_LISTS = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)


def described(values: Mapping[str, str]) -> dict[str, ConfigEntry]:
    """Return all entries of a topic with these non-default values, as `AdminClient.describe_configs` does."""
    return {name: _entry(name, values.get(name), default) for name, default in TOPIC_DEFAULTS.items()}


def _entry(name: str, value: str | None, default: str) -> ConfigEntry:
    if value is None:
        return _of_source(name, default, ConfigSource.DEFAULT_CONFIG, is_default=True)
    entry = _of_source(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG, is_default=False)
    synonym = _of_source(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG, is_default=False)
    synonym.is_synonym = True
    entry.synonyms = {name: synonym}
    return entry


def _of_source(name: str, value: str, source: ConfigSource, *, is_default: bool) -> ConfigEntry:
    entry = ConfigEntry(name, value, is_default=is_default, synonyms={})
    entry.source = source.value  # type: ignore[assignment]  # librdkafka's results contain the number, not the enum
    return entry


def refusal_of(values: Mapping[str, str]) -> KafkaError | None:
    """Return the error of a broker for these topic values; None: it accepts them."""
    for name, value in values.items():
        if name not in TOPIC_DEFAULTS:
            return KafkaError(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {name}")
        problem = _problem(name, value)
        if problem is not None:
            text = f"Invalid value {value} for configuration {name}: {problem}"
            return KafkaError(KafkaError.INVALID_CONFIG, text)
    return None


def _problem(name: str, value: str) -> str | None:
    default, choices = TOPIC_DEFAULTS[name], _CHOICES.get(name)
    if choices is not None:
        given = value.split(",") if name in _LISTS else [value]
        return None if set(given) <= {*choices} else f"String must be one of: {', '.join(choices)}"
    if default in {"true", "false"}:
        return None if value.lower() in {"true", "false"} else "Expected value to be either true or false"
    kind = float if "." in default else int if default.lstrip("-").isdigit() else str
    try:
        kind(value)
    except ValueError:
        return "Not a number"
    return None


def altered(values: Mapping[str, str], changes: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return the values after incremental changes."""
    result = dict(values)
    for change in changes:
        value = "" if change.value is None else str(change.value)
        listed = [one for one in result.get(change.name, TOPIC_DEFAULTS.get(change.name, "")).split(",") if one]
        match change.incremental_operation:
            case AlterConfigOpType.DELETE:
                result.pop(change.name, None)
            case AlterConfigOpType.APPEND:
                result[change.name] = ",".join(dict.fromkeys([*listed, *value.split(",")]))
            case AlterConfigOpType.SUBTRACT:
                result[change.name] = ",".join(one for one in listed if one not in value.split(","))
            case _:
                result[change.name] = value
    return result
