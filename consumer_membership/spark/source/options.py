"""The options of `format("kafka-group")`: those of spark-sql-kafka, and those of the group."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.context import Partition
from consumer_membership.spark.source.java_properties import as_librdkafka
from consumer_membership.types import ConflictPolicy

#: The values in the JSON of spark-sql-kafka.
LATEST_OFFSET, EARLIEST_OFFSET = -1, -2

#: Every option except `kafka.*`, by its name in lower case: Spark's options are case-insensitive.
NAMES = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "group.id",
        "group.instance.id",
        "group.instance.id.conflict.policy",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "failOnDataLoss",
        "includeHeaders",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
    )
}
_OF_THE_MEMBER = frozenset({"group.instance.id", "group.instance.id.conflict.policy"})
_WHICH = ("subscribe", "subscribePattern", "assign")
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_OF_A_TRIGGER = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_DELAY = re.compile(r"^\s*(\d+)\s*(ms|s|m|min|h|d|)\s*$")
_DELAY_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "": 0.001}
#: The defaults of spark-sql-kafka.
_POLL_TIMEOUT_MS, _TRIGGER_DELAY = 120_000, "15m"


class Edge(Enum):
    """The beginning or the end of a read for all partitions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record at or after a time (milliseconds since 1970), for all partitions or by partition."""

    everywhere: int | None = None
    by_partition: Mapping[Partition, int] = field(default_factory=dict)


#: The beginning or the end of a read; a mapping has the offset of each partition (-2: earliest, -1: latest).
Bound = Edge | AtTime | Mapping[Partition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a query.

    Exactly one of `topics`, `pattern` and `partitions` is set. `config` is the configuration of a `Consumer`. `reset`
    is the start of a partition without a committed offset (`startingOffsets=group`); None: an error.
    """

    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[Partition, ...]
    config: Mapping[str, object]
    group: str | None
    instance_id: str
    policy: ConflictPolicy
    starting: Bound
    ending: Bound
    reset: Edge | None
    latest_without_record: bool
    fail_on_data_loss: bool
    include_headers: bool
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int | None
    max_records: int | None
    timeout_s: float


def read_options(given: Mapping[str, str], *, is_streaming: bool | None) -> SourceOptions:
    """Check and return the options; with `is_streaming` None, only the checks for both kinds of reads are made.

    Raises:
        ConfigurationError: an option is unknown, contradicts another option, or has a wrong value; the text names the
            option, its value and the fix.
    """
    options = _Options(given)
    options.refuse_unknown()
    which = [name for name in _WHICH if options.text(name) is not None]
    if len(which) != 1:
        remedy = "give exactly one of subscribe, subscribePattern and assign"
        raise ConfigurationError("options", ", ".join(which) or "none of the three", remedy)
    group = options.group()
    if is_streaming is True:
        if group is None:
            raise ConfigurationError("group.id", None, "set the group to which the query commits its progress")
        options.refuse(_ENDING, "a stream has no end; leave it out, or use spark.read")
    elif is_streaming is False:
        options.refuse(_OF_A_TRIGGER, "a batch read has no triggers; leave it out")
    options.refuse(("groupIdPrefix",), "this source uses a real group; set group.id")
    starting, reset = options.starting(is_batch=is_streaming is False)
    if starting is Edge.GROUP and group is None:
        raise ConfigurationError("group.id", None, "set the group whose committed offsets startingOffsets=group uses")
    maximum, minimum = options.count("maxOffsetsPerTrigger"), options.count("minOffsetsPerTrigger")
    if maximum is not None and minimum is not None and minimum > maximum:
        remedy = f"maxOffsetsPerTrigger is {maximum}; set a minimum that is not larger"
        raise ConfigurationError("minOffsetsPerTrigger", minimum, remedy)
    return SourceOptions(
        topics=options.topics(),
        pattern=options.pattern(),
        partitions=options.assigned(),
        config=options.config(group),
        group=group,
        instance_id=options.text("group.instance.id") or f"{group}-source",
        policy=ConflictPolicy(options.choice("group.instance.id.conflict.policy", ("takeover", "wait", "fail"))),
        starting=starting,
        ending=options.ending(),
        reset=reset,
        latest_without_record=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=options.truth("failOnDataLoss", default=True),
        include_headers=options.truth("includeHeaders", default=False),
        max_offsets=maximum,
        max_bytes=options.count("maxBytesPerTrigger"),
        min_offsets=minimum,
        max_delay_s=options.delay("maxTriggerDelay", _TRIGGER_DELAY),
        min_partitions=options.count("minPartitions"),
        max_records=options.count("maxRecordsPerPartition"),
        timeout_s=(options.count("kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS) / 1000,
    )


class _Options:
    """The given options, with case-insensitive names, and methods that parse each kind of value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        lowered = {key.lower(): value for key, value in given.items()}
        self._kafka = {key.removeprefix("kafka."): value for key, value in lowered.items() if key.startswith("kafka.")}
        self._given = {key: value for key, value in lowered.items() if not key.startswith("kafka.")}

    def refuse_unknown(self) -> None:
        """Raise ConfigurationError for an unknown option: a query must not run without an option that it requested."""
        for key, value in self._given.items():
            if key not in NAMES:
                near = get_close_matches(key, NAMES, 1)
                meant = f"; did you mean {NAMES[near[0]]}?" if near else "; keys of the consumer begin with kafka."
                raise ConfigurationError(key, value, f"there is no such option{meant}")

    def refuse(self, names: tuple[str, ...], remedy: str) -> None:
        """Raise ConfigurationError if one of these options is given."""
        for name in names:
            if self.text(name) is not None:
                raise ConfigurationError(name, self.text(name), remedy)

    def text(self, name: str) -> str | None:
        """Return an option as given, else None; options of the member may also begin with `kafka.`."""
        return self._given.get(name.lower(), self._kafka.get(name) if name in _OF_THE_MEMBER else None)

    def count(self, name: str) -> int | None:
        """Return a whole number of 1 or more; None if the option is not given."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < 1:
            raise ConfigurationError(name, text, "give a whole number, 1 or more")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        """Return the value of `true` or `false`."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of the choices, case-insensitive; by default the first choice."""
        text = (self.text(name) or default or choices[0]).strip().lower()
        if text not in choices:
            raise ConfigurationError(name, self.text(name), f"give one of {', '.join(choices)}")
        return text

    def delay(self, name: str, default: str) -> float:
        """Return a time with a unit, in seconds."""
        text = self.text(name) or default
        read = _DELAY.match(text.lower())
        if read is None:
            raise ConfigurationError(name, text, "give a time such as 500ms, 30s, 15m or 1h")
        return int(read[1]) * _DELAY_S[read[2]]

    # ---- topics, group and configuration ----

    def topics(self) -> tuple[str, ...]:
        """Return the topics of `subscribe`."""
        text = self.text("subscribe")
        if text is None:
            return ()
        named = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        if not named:
            raise ConfigurationError("subscribe", text, "give a comma-separated list of topics")
        return named

    def pattern(self) -> str | None:
        """Return the pattern of `subscribePattern`; like spark-sql-kafka, it matches anywhere in a topic name."""
        text = self.text("subscribePattern")
        if text is None:
            return None
        try:
            re.compile(text)
        except re.error as wrong:
            raise ConfigurationError("subscribePattern", text, f"it is not a regular expression: {wrong}") from None
        if not text:
            raise ConfigurationError("subscribePattern", text, "give a regular expression for topic names")
        return text

    def assigned(self) -> tuple[Partition, ...]:
        """Return the partitions of `assign`."""
        remedy = 'give JSON with the partitions of each topic: {"orders": [0, 1]}'
        found = self._json("assign", remedy)
        partitions = []
        for topic, numbers in found.items():
            if not isinstance(numbers, list) or not all(_is_offset(each) and each >= 0 for each in numbers):
                raise ConfigurationError("assign", self.text("assign"), remedy)
            partitions += [(topic, number) for number in numbers]
        if self.text("assign") is not None and not partitions:
            raise ConfigurationError("assign", self.text("assign"), remedy)
        return tuple(sorted(set(partitions)))

    def group(self) -> str | None:
        """Return `group.id`, or `kafka.group.id` as in spark-sql-kafka."""
        ours, theirs = self.text("group.id"), self._kafka.get("group.id")
        if ours is not None and theirs is not None and ours != theirs:
            raise ConfigurationError("group.id", ours, f"kafka.group.id is {theirs!r}; set only one of the two")
        group = ours if ours is not None else theirs
        if group == "":
            raise ConfigurationError("group.id", group, "set the name of the group")
        return group

    def config(self, group: str | None) -> Mapping[str, object]:
        """Return the options `kafka.*` as the configuration of a consumer."""
        elsewhere = {"group.id", "auto.offset.reset", *_OF_THE_MEMBER}
        given = {key: value for key, value in self._kafka.items() if key not in elsewhere}
        if "bootstrap.servers" not in given:
            remedy = "give a comma-separated list of host:port"
            raise ConfigurationError("kafka.bootstrap.servers", None, remedy)
        # The default of the Java client and of spark-sql-kafka, so that a query reads the same records.
        config = {"isolation.level": "read_uncommitted", **as_librdkafka(given)}
        try:
            ConsumerConfig.from_mapping({**config, "group.id": group or "-"}).with_servers()
        except ConfigurationError as refused:
            raise ConfigurationError(f"kafka.{refused.key}", refused.value, refused.remedy) from None
        return config

    # ---- beginning and end ----

    def starting(self, *, is_batch: bool) -> tuple[Bound, Edge | None]:
        """Return the beginning, and the beginning of partitions without a committed offset (None: an error)."""
        reset = self._kafka.get("auto.offset.reset")
        default = Edge.EARLIEST if is_batch else Edge.LATEST
        bound = self._bound("starting", default, (Edge.EARLIEST, Edge.LATEST, Edge.GROUP))
        if bound is Edge.LATEST and is_batch:
            raise ConfigurationError("startingOffsets", "latest", "a batch read that begins there reads nothing")
        if reset is None:
            return bound, Edge.EARLIEST
        if bound is not Edge.GROUP:
            remedy = "it applies only to startingOffsets=group, to partitions without a committed offset; remove it"
            raise ConfigurationError("kafka.auto.offset.reset", reset, remedy)
        partitions = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST, "none": None, "error": None}
        if reset not in partitions:
            raise ConfigurationError("kafka.auto.offset.reset", reset, "give one of earliest, latest, none")
        return bound, partitions[reset]

    def ending(self) -> Bound:
        """Return the end of a batch read."""
        return self._bound("ending", Edge.LATEST, (Edge.LATEST,))

    def _bound(self, side: str, default: Edge, partitions: tuple[Edge, ...]) -> Bound:
        # If several are given, spark-sql-kafka also uses this order.
        if self.text(f"{side}Timestamp") is not None:
            return AtTime(everywhere=self._moment(f"{side}Timestamp"))
        name = f"{side}OffsetsByTimestamp"
        if self.text(name) is not None:
            return AtTime(by_partition=self._by_partition(name, "1700000000000", least=0))
        name = f"{side}Offsets"
        text = self.text(name)
        if text is None:
            return default
        for partition in partitions:
            if text.strip().lower() == partition.value:
                return partition
        if not text.lstrip().startswith("{"):
            choices = ", ".join(partition.value for partition in partitions)
            raise ConfigurationError(name, text, f'give one of {choices}, or JSON: {{"orders": {{"0": 23, "1": -1}}}}')
        return self._by_partition(name, "23", least=EARLIEST_OFFSET if side == "starting" else LATEST_OFFSET)

    def _moment(self, name: str) -> int:
        text = (self.text(name) or "").strip()
        if not text.isdigit():
            raise ConfigurationError(name, text, "give milliseconds since 1970")
        return int(text)

    def _by_partition(self, name: str, example: str, *, least: int) -> Mapping[Partition, int]:
        remedy = f'give JSON with a number for each partition: {{"orders": {{"0": {example}}}}}'
        found: dict[Partition, int] = {}
        for topic, by_number in self._json(name, remedy).items():
            if not isinstance(by_number, dict):
                raise ConfigurationError(name, self.text(name), remedy)
            for number, at in by_number.items():
                if not number.isdigit() or not _is_offset(at) or at < least:
                    raise ConfigurationError(name, self.text(name), remedy)
                found[topic, int(number)] = at
        if not found:
            raise ConfigurationError(name, self.text(name), remedy)
        return found

    def _json(self, name: str, remedy: str) -> dict[str, object]:
        text = self.text(name)
        if text is None:
            return {}
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigurationError(name, text, remedy)
        return found


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
