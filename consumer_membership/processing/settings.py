"""The options of a processor, checked before anything is opened.

`ProcessorOptions` are the keyword arguments of `Processor` and `AsyncProcessor`; `ProcessorSettings.checked` reads them
together with the configuration, the topics and the handler. Each error has the option or the key, its value and the
fix. This module opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from inspect import iscoroutinefunction, signature
from math import inf, isinf, isnan
from types import MappingProxyType
from typing import Literal, Self, TypedDict

from confluent_kafka import TopicPartition
from tenacity import BaseRetrying

from consumer_membership.clients.arguments import leave_option, sort_arguments, subscription_of
from consumer_membership.config import ConsumerConfig, values
from consumer_membership.config.environment import naming_variables, variable_of
from consumer_membership.errors import ArgumentTypeError, ConfigurationError, MembershipError
from consumer_membership.processing.handlers import RecordHandler, checked_handler, name_of
from consumer_membership.processing.outputs import DEFAULT_MAX_BYTES
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder
from consumer_membership.text import LONGEST_TOPIC, excerpt, problem_of
from consumer_membership.types import LeaveOption

#: A duration at the edge: seconds, or a timedelta.
Duration = float | timedelta
#: Called for each failed record, with the exception of its last attempt and the number of attempts.
DeadLetterFunction = Callable[..., object]
#: Called with the partitions that the processor is about to take over from another process.
WarmFunction = Callable[[list[TopicPartition]], object]
#: A deserializer of confluent-kafka: called with the bytes and a SerializationContext.
Deserializer = Callable[..., object]

_METADATA_LIMIT = "offset.metadata.max.bytes"
_KEY_DESERIALIZER, _VALUE_DESERIALIZER = "key.deserializer", "value.deserializer"
#: The keys of the configuration that a processor reads itself; a plain consumer does not know them.
PROCESSOR_KEYS = (_METADATA_LIMIT, _KEY_DESERIALIZER, _VALUE_DESERIALIZER)
#: The keys that a processor sets for its consumer. With eager callbacks, each rebalance would revoke all partitions and
#: wait for the handlers of those that stay.
_FIXED_KEYS: Mapping[str, object] = MappingProxyType(
    {"enable.auto.commit": False, "rebalance.callbacks": "incremental"}
)

#: The default of brokers.
_METADATA_BYTES = 4096
#: How many handlers run at the same time by default.
CONCURRENCY = 16


class ProcessorOptions(TypedDict, total=False):
    """The options of a processor: keyword arguments of `Processor` and `AsyncProcessor`."""

    order: Literal["key", "partition", "none"] | ProcessingOrder
    """Which records run one after the other: those with the same key (default), of the same partition, or none."""
    concurrency: int
    """How many handlers run at the same time: threads, coroutines or processes. Default 16; with `processes=True`, the
    number of CPUs of this process."""
    retry: BaseRetrying | Callable[..., object] | None
    """A tenacity policy, sync or async, or `tenacity.retry(...)`. Default: 10 attempts with exponential waits between
    0.2 s and 30 s, with jitter, for each `Exception` except `ConfigurationError`. A policy without a stop retries
    forever; meanwhile the records of its key wait, and the committed offset stays before the record."""
    dead_letter: str | DeadLetterFunction | None
    """Where failed records go: a topic, or a function `(record, error, attempts)`. Without it, a failed record stops
    the processor."""
    handler_timeout: Duration | None
    """The longest time of one attempt. Default: max.poll.interval.ms. None: no limit."""
    max_batch: int
    """Above 1, the handler receives lists of up to this many records."""
    max_wait: Duration
    """How long an incomplete batch waits for further records. Default 0."""
    processes: bool
    """Whether handlers run in worker processes, for work that uses the CPU."""
    max_queued: int
    """The most unfinished records of a partition; a full partition is paused. Default 1000."""
    transactional: bool
    """Whether outputs, dead letters and offsets are written in one transaction."""
    transactional_id: str | None
    """The transactional.id of the producer, and `transactional=True`. Default: made of the group and the member."""
    grace_period: Duration
    """How long `stop` waits for running handlers. Default 25 s, less than the 30 s that Kubernetes waits."""
    membership: Literal["default", "leave", "remain"]
    """Whether the membership ends with the processor, as in `Consumer.close`."""
    on_warm: WarmFunction
    """Called with the partitions that another process is about to hand over, before this processor owns them: load
    state there. For `group.instance.id.conflict.policy=hand-over`."""
    live: bool
    """Whether a line on stderr shows the progress while the processor runs, if stderr is a terminal. Default False."""


_OPTIONS = tuple(ProcessorOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSettings:
    """The checked options of a processor; durations are in seconds.

    Attributes:
        consumer_config: the configuration of the `Consumer`, without the keys of the processor and without automatic
            commits; it may contain secrets.
        cluster_config: the keys that connect another client, such as a producer, to the same cluster.
        group_id: the group.
        topics: names and patterns to subscribe to.
        handler: the handler, and how it is called.
        order: which records run one after the other.
        concurrency: how many handlers run at the same time.
        retry: when a failed record runs again.
        dead_letter: where failed records go: a topic, a function, or None.
        handler_timeout_s: the longest time of one attempt; None: no limit.
        drain_timeout_s: how long a revocation waits for running handlers (drain.timeout.ms).
        commit_interval_s: how often finished offsets are committed (auto.commit.interval.ms).
        max_batch: the most records of one call.
        max_wait_s: how long an incomplete batch waits for further records.
        max_queued: the most unfinished records of a partition.
        metadata_limit: the most bytes of a commit's metadata (offset.metadata.max.bytes of the brokers).
        max_output_bytes: the most bytes of key and value of a record that a handler returns (message.max.bytes).
        processes: whether handlers run in worker processes.
        transactional: whether outputs, dead letters and offsets are written in one transaction.
        transactional_id: the producer's transactional.id, if the caller chose one.
        grace_period_s: how long `stop` waits for running handlers.
        membership: whether the membership ends with the processor, as in `Consumer.close`.
        on_warm: called before partitions are taken over from another process, if set.
        live: whether a line on stderr shows the progress.
        key_deserializer: reads the keys of records, if set.
        value_deserializer: reads the values of records, if set.
    """

    consumer_config: Mapping[str, object] = field(repr=False)
    cluster_config: Mapping[str, object] = field(repr=False)
    group_id: str
    topics: tuple[str, ...]
    handler: RecordHandler
    order: ProcessingOrder
    concurrency: int
    retry: RetryPolicy
    dead_letter: str | DeadLetterFunction | None
    handler_timeout_s: float | None
    drain_timeout_s: float
    commit_interval_s: float
    max_batch: int
    max_wait_s: float
    max_queued: int
    metadata_limit: int
    max_output_bytes: int
    processes: bool
    transactional: bool
    transactional_id: str | None
    grace_period_s: float
    membership: Literal["default", "leave", "remain"]
    on_warm: WarmFunction | None
    live: bool
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None

    @classmethod
    def checked(cls, config: object, topics: object, handler: object, **options: object) -> Self:
        """Return the settings of a processor.

        Args:
            config: the configuration of the consumer, as for `Consumer`: a dict, or `ConsumerSettings`.
            topics: a list of topics and patterns.
            handler: the function, coroutine function or object that receives the records.
            **options: `ProcessorOptions`; each value is checked.

        Raises:
            ConfigurationError: with the key or the option, its value and the fix. A value of the wrong type is an
                `ArgumentTypeError`, which is also a TypeError.
        """
        _refuse_unknown(options)
        keys = _ProcessorKeys.read(config)
        names = _topics(topics, keys.consumer)
        max_batch = count_of("max_batch", options.get("max_batch", 1))
        max_queued = count_of("max_queued", options.get("max_queued", 1000))
        processes = _flag(options, "processes")
        called = checked_handler(handler, max_batch=max_batch, processes=processes)
        retry = retry_of(options.get("retry"), called)
        dead_letter = dead_letter_of(options.get("dead_letter"))
        if isinstance(dead_letter, str):
            _refuse_subscribed(dead_letter, names, keys.consumer)
        if dead_letter is not None and retry.never_ends:
            remedy = (
                "no record would ever be sent there: the retry policy never ends; give it a stop, or a narrower retry"
            )
            raise ConfigurationError("dead_letter", _shown(dead_letter), remedy)
        transactional_id = _transactional_id(options, keys.consumer)
        return cls(
            consumer_config=keys.consumer_config,
            cluster_config=keys.consumer.cluster_config(),
            group_id=keys.consumer.group_id,
            topics=names,
            handler=called,
            order=order_of(options.get("order", ProcessingOrder.KEY)),
            concurrency=count_of("concurrency", options.get("concurrency", _cpus() if processes else CONCURRENCY)),
            retry=retry,
            dead_letter=dead_letter,
            handler_timeout_s=_handler_timeout(options, keys.consumer),
            drain_timeout_s=keys.consumer.drain_timeout_s,
            commit_interval_s=keys.consumer.member_settings().auto_commit_interval_s,
            max_batch=_batch(max_batch, max_queued),
            max_wait_s=_max_wait(options, max_batch),
            max_queued=max_queued,
            metadata_limit=keys.metadata_limit,
            max_output_bytes=keys.max_output_bytes,
            processes=processes,
            transactional=_flag(options, "transactional") or transactional_id is not None,
            transactional_id=transactional_id,
            grace_period_s=_seconds("grace_period", options.get("grace_period", 25.0)),
            membership=_membership(options.get("membership", "default")),
            on_warm=_on_warm(options),
            live=_flag(options, "live"),
            key_deserializer=keys.key_deserializer,
            value_deserializer=keys.value_deserializer,
        )


# ---- the configuration ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessorKeys:
    """The keys of the configuration that a processor reads, and the configuration of its consumer."""

    consumer: ConsumerConfig
    consumer_config: Mapping[str, object] = field(repr=False)
    metadata_limit: int
    max_output_bytes: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None

    @classmethod
    def read(cls, config: object) -> Self:
        """Separate the configuration; environment variables count as for a consumer.

        Raises:
            ConfigurationError: a key or a value cannot work.
        """
        given = _mapping(config)
        key_deserializer = _deserializer(_KEY_DESERIALIZER, given)
        value_deserializer = _deserializer(_VALUE_DESERIALIZER, given)
        in_program = sort_arguments((dict(given),), {}).config
        consumer = ConsumerConfig.from_mapping(in_program)
        with naming_variables(in_program):
            _refuse_automatic_commits(consumer)
            metadata_limit = _read(consumer, _METADATA_LIMIT, values.metadata_bytes, _METADATA_BYTES)
            max_output_bytes = _read(consumer, "message.max.bytes", values.message_bytes, DEFAULT_MAX_BYTES)
        # None unsets what the environment sets, which the consumer would pass to librdkafka.
        hidden = {key: None for key in PROCESSOR_KEYS if variable_of(key) in os.environ}
        kept = {key: value for key, value in given.items() if key not in PROCESSOR_KEYS}
        return cls(
            consumer=consumer,
            consumer_config={**kept, **hidden, **_FIXED_KEYS},
            metadata_limit=metadata_limit,
            max_output_bytes=max_output_bytes,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )


def _mapping(config: object) -> dict[str, object]:
    """Return a copy of the configuration, which may be an object with `as_config`, such as `ConsumerSettings`."""
    as_config = getattr(config, "as_config", None)
    given = as_config() if not isinstance(config, Mapping) and callable(as_config) else config
    if not isinstance(given, Mapping):
        remedy = "give a dict as for Consumer, {'bootstrap.servers': '...', 'group.id': '...'}"
        raise ArgumentTypeError("config", type(given).__name__, remedy)  # only its type: it may contain a password
    return dict(given)


def _deserializer(key: str, given: dict[str, object]) -> Deserializer | None:
    """Remove a deserializer from the configuration and return it; None if it is not set."""
    value = given.pop(key, None)
    variable = variable_of(key)
    if value is None and variable in os.environ:
        remedy = f"an environment variable cannot be a deserializer; unset {variable}, and set the key in the program"
        raise ConfigurationError(key, excerpt(os.environ[variable]), remedy)
    if value is not None and not callable(value):
        remedy = "give a deserializer of confluent_kafka.serialization, or a function (bytes, context)"
        raise ArgumentTypeError(key, value, remedy)
    return value


def _refuse_automatic_commits(consumer: ConsumerConfig) -> None:
    if "enable.auto.commit" in consumer.given and consumer.enable_auto_commit:
        remedy = (
            "a processor commits the offsets of finished records itself, at auto.commit.interval.ms; automatic commits "
            "would include unfinished records; remove the key, or set it to false"
        )
        raise ConfigurationError("enable.auto.commit", consumer.given["enable.auto.commit"], remedy)


def _read(consumer: ConsumerConfig, key: str, read: values.Reader[int], default: int) -> int:
    if key not in consumer.given:
        return default
    try:
        return read(key, consumer.given[key])
    except ValueError as refused:
        value = consumer.given[key]
        raise ConfigurationError(key, excerpt(value) if isinstance(value, str) else value, str(refused)) from None


def _topics(topics: object, consumer: ConsumerConfig) -> tuple[str, ...]:
    if isinstance(topics, str | bytes) or not isinstance(topics, list | tuple | set | frozenset):
        shown = topics if isinstance(topics, str | bytes) else type(topics).__name__
        raise ArgumentTypeError("topics", shown, "give a list of topics and patterns, such as ['orders']")
    if not topics:
        raise ConfigurationError("topics", topics, "give at least one topic, such as ['orders']")
    for topic in topics:
        if not isinstance(topic, str):
            raise ArgumentTypeError("topics", topic, "each topic must be a string")
    names = tuple(topics) if isinstance(topics, list | tuple) else tuple(sorted(topics))
    try:
        subscription_of(list(names), consumer.subscription_settings())
    except MembershipError as refused:
        raise ConfigurationError("topics", list(names), str(refused.__cause__ or refused)) from refused
    return names


# ---- the options ----


def _refuse_unknown(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if name not in _OPTIONS:
            near = get_close_matches(name.lower(), _OPTIONS, 1)
            meant = f"did you mean {near[0]}?" if near else f"the options are {', '.join(_OPTIONS)}"
            # Only the type is shown: the value may be a secret.
            raise ArgumentTypeError(name, type(value).__name__, f"a processor has no option {name}; {meant}")


def count_of(name: str, value: object) -> int:
    """Return the value of an option that counts something; raise ConfigurationError unless it is 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(name, value, "give a whole number of 1 or more")
    if value < 1:
        raise ConfigurationError(name, value, "give a whole number of 1 or more")
    return value


def _flag(options: Mapping[str, object], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise ArgumentTypeError(name, value, "give True or False")
    return value


def _on_warm(options: Mapping[str, object]) -> WarmFunction | None:
    given = options.get("on_warm")
    if given is None:
        return None
    if not callable(given) or iscoroutinefunction(given):
        raise ArgumentTypeError("on_warm", given, "give a function that accepts a list of partitions")
    return given


def _seconds(name: str, value: object) -> float:
    """Return a duration of 0 or more; math.inf is allowed."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise ArgumentTypeError(name, value, "give a number of seconds, or a timedelta")
    if isnan(given) or given < 0:
        raise ConfigurationError(name, value, "give a duration of 0 seconds or more")
    return float(given)


def order_of(value: object) -> ProcessingOrder:
    """Return the value of `order`; raise ConfigurationError if it is not an order."""
    if isinstance(value, ProcessingOrder):
        return value
    try:
        return ProcessingOrder(value)
    except ValueError:
        choices = ", ".join(repr(each.value) for each in ProcessingOrder)
        kind = ConfigurationError if isinstance(value, str) else ArgumentTypeError
        raise kind("order", value, f"give one of {choices}") from None


def _handler_timeout(options: Mapping[str, object], consumer: ConsumerConfig) -> float | None:
    value = options.get("handler_timeout", consumer.max_poll_interval_ms / 1000)
    found = inf if value is None else _seconds("handler_timeout", value)
    if found == 0:
        remedy = "no handler could finish; give a greater duration, or None for no limit"
        raise ConfigurationError("handler_timeout", value, remedy)
    return None if isinf(found) else found


def _batch(max_batch: int, max_queued: int) -> int:
    if max_batch > max_queued:
        remedy = f"a batch would never be complete: max_queued={max_queued} limits the records of a partition; raise it"
        raise ConfigurationError("max_batch", max_batch, remedy)
    return max_batch


def _max_wait(options: Mapping[str, object], max_batch: int) -> float:
    value = options.get("max_wait", 0.0)
    found = _seconds("max_wait", value)
    if isinf(found):
        remedy = "an incomplete batch would never run, and its offsets would never be committed; give a finite duration"
        raise ConfigurationError("max_wait", value, remedy)
    if found > 0 and max_batch == 1:
        remedy = "only batches wait for further records; set max_batch above 1, or remove max_wait"
        raise ConfigurationError("max_wait", value, remedy)
    return found


def retry_of(retry: object, handler: RecordHandler) -> RetryPolicy:
    """Return the retry policy of a handler: the option `retry`, the handler's decorator, or the default.

    Raises:
        ConfigurationError: the option is not a policy, or the handler has a policy as well.
    """
    if handler.retrying is None:
        return RetryPolicy.from_argument(retry, handler.call)
    if retry is not None:
        remedy = (
            f"the handler {handler.name} is decorated with tenacity.retry, which is its policy; remove one of the two"
        )
        raise ConfigurationError("retry", retry, remedy)
    return RetryPolicy.from_argument(handler.retrying, handler.call)


def dead_letter_of(target: object) -> str | DeadLetterFunction | None:
    """Return the value of `dead_letter`: a topic, a function, or None.

    Raises:
        ConfigurationError: the value cannot be the name of a topic, or the function cannot be called.
    """
    if target is None:
        return None
    if isinstance(target, str):
        _refuse_name(target)
        return target
    if not callable(target) or isinstance(target, type):
        raise ArgumentTypeError(
            "dead_letter", target, "give the name of a topic, or a function (record, error, attempts)"
        )
    if iscoroutinefunction(target) or iscoroutinefunction(getattr(target, "__call__", None)):  # noqa: B004 - the method
        remedy = "a coroutine function is never awaited here; give a plain function (record, error, attempts)"
        raise ConfigurationError("dead_letter", name_of(target), remedy)
    try:
        parameters = signature(target, follow_wrapped=False)
    except ValueError:  # some C functions have no signature
        return target
    try:
        parameters.bind(None, None, None)
    except TypeError as refused:
        remedy = f"its parameters are {parameters}, so it cannot be called with (record, error, attempts): {refused}"
        raise ConfigurationError("dead_letter", name_of(target), remedy) from None
    return target


def _refuse_name(topic: str) -> None:
    problem = "the name is empty; give the name of a topic, or None" if not topic else problem_of(topic, LONGEST_TOPIC)
    if topic.startswith("^"):
        problem = "a pattern cannot be a target; give the name of one topic"
    if problem is not None:
        raise ConfigurationError("dead_letter", excerpt(topic), problem)


def _refuse_subscribed(topic: str, topics: tuple[str, ...], consumer: ConsumerConfig) -> None:
    """Raise ConfigurationError if the processor subscribes to its dead-letter topic."""
    problem: str | None = None
    settings = consumer.subscription_settings()
    subscription = subscription_of(list(topics), settings)
    if topic in subscription.topics:
        problem = "the processor subscribes to this topic, so each dead letter would fail again; use another topic"
    for pattern in subscription.patterns:
        # A pattern without a translation for members is matched by brokers only.
        is_matched = pattern.member is not None and re.fullmatch(pattern.member, topic) is not None
        if is_matched and not settings.excludes(topic):
            problem = (
                f"the pattern {pattern.text!r} of topics matches this topic, so each dead letter would fail again; use "
                "another name, a narrower pattern, or topic.blacklist"
            )
    if problem is not None:
        raise ConfigurationError("dead_letter", excerpt(topic), problem)


def _transactional_id(options: Mapping[str, object], consumer: ConsumerConfig) -> str | None:
    value = options.get("transactional_id")
    wanted = _flag(options, "transactional")
    if value is not None:
        if not isinstance(value, str):
            raise ArgumentTypeError(
                "transactional_id", value, "give a string, or None for one made of group and member"
            )
        problem = (
            "it is empty; give a text, or None for an id made of group and member" if not value else problem_of(value)
        )
        if problem is not None:
            raise ConfigurationError("transactional_id", excerpt(value), problem)
        if "transactional" in options and not wanted:
            remedy = "it has no effect with transactional=False; remove one of the two options"
            raise ConfigurationError("transactional_id", value, remedy)
    if (wanted or value is not None) and not consumer.isolation_level:
        remedy = (
            "transactions need read_committed: offsets of an open transaction would be read, and records after them "
            "skipped or repeated; remove the key"
        )
        raise ConfigurationError("isolation.level", consumer.given["isolation.level"], remedy)
    if "transactional.id" in consumer.given:
        remedy = "this is a key of producers; use the option transactional_id of the processor"
        raise ConfigurationError("transactional.id", consumer.given["transactional.id"], remedy)
    idempotence = consumer.given.get("enable.idempotence")
    if idempotence is not None and str(idempotence).strip().lower() not in {"true", "t", "1"}:
        remedy = "the processor's producers of dead letters and outputs are always idempotent; remove the key"
        raise ConfigurationError("enable.idempotence", idempotence, remedy)
    return value


def _membership(value: object) -> Literal["default", "leave", "remain"]:
    if not isinstance(value, str):
        raise ArgumentTypeError("membership", value, "give 'default', 'leave' or 'remain'")
    try:
        option = leave_option(value)
    except ValueError:
        raise ConfigurationError("membership", value, "give 'default', 'leave' or 'remain'") from None
    return _MEMBERSHIPS[option]


_MEMBERSHIPS: Mapping[LeaveOption, Literal["default", "leave", "remain"]] = {
    LeaveOption.DEFAULT: "default",
    LeaveOption.LEAVE: "leave",
    LeaveOption.REMAIN: "remain",
}


def _cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shown(target: str | DeadLetterFunction) -> str:
    return target if isinstance(target, str) else name_of(target)
