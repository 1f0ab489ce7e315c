"""Checks of the drop-in's arguments, with confluent-kafka's exceptions and messages."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import field
from inspect import iscoroutinefunction
from math import isnan
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaError, Message

from consumer_membership.clients.exceptions import (
    CallbackTypeError,
    CallbackValueError,
    ConfigurationRefusedError,
    InvalidArgumentError,
    InvalidCallError,
)
from consumer_membership.config import SubscriptionSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.application.callbacks import PartitionsCallback, RebalanceListener
from consumer_membership.runtime.application.error_message import ErrorMessage
from consumer_membership.runtime.application.handle import HandleCallbacks
from consumer_membership.runtime.application.session_errors import INVALID_ARG_CODE
from consumer_membership.text import LONGEST_STRING, LONGEST_TOPIC, excerpt, problem_of
from consumer_membership.types import LeaveOption, Subscription, TopicPartition, TopicPattern

if TYPE_CHECKING:  # imported for types only: few consumers have event callbacks
    from consumer_membership.runtime.application.lifecycle_events import EventCallback

#: librdkafka's number for "no partition" (RD_KAFKA_PARTITION_UA).
PARTITION_UA = -1
#: A topic with at most this many characters cannot exceed the limit in bytes, so its bytes need not be counted.
_SURELY_SHORT = LONGEST_TOPIC // 4
#: A commit's metadata is sent with C's terminating zero.
_LONGEST_METADATA = LONGEST_STRING - 1

#: confluent-kafka's limit for one `consume`.
_MOST_MESSAGES = 1_000_000

#: confluent-kafka's message for a callback that is not callable.
_EXPECTED = "expected {} property as a callable function"

#: confluent-kafka would call a coroutine function and never await the coroutine.
_NOT_AWAITED = "this is a coroutine function, which is never awaited here; pass a plain function"

T = TypeVar("T")
ConsumerT = TypeVar("ConsumerT")

OnCommit = Callable[[KafkaError | None, list[PartitionOffset]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructorArguments:
    """A constructor's arguments, separated into the configuration and the callbacks."""

    config: dict[str, object] = field(repr=False)
    callbacks: HandleCallbacks
    on_commit: OnCommit | None


def sort_arguments(args: tuple[object, ...], kwargs: Mapping[str, object]) -> ConstructorArguments:
    """Separate the arguments of the constructor: a dict, keyword arguments, or both (keywords take precedence)."""
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    given = args[0] if args else {}
    if not isinstance(given, dict) and callable(as_config := getattr(given, "as_config", None)):
        given = as_config()  # `ConsumerSettings`, whose module is imported only by programs that use it
    if not isinstance(given, dict):
        raise TypeError("expected configuration dict")
    config: dict[str, object] = {**given, **kwargs}
    topic_config = config.pop("default.topic.config", None) or {}
    if not isinstance(topic_config, dict):
        remedy = "expected a dict; it is deprecated, put its keys beside the others"
        raise CallbackTypeError("default.topic.config", topic_config, remedy)
    config.update(topic_config)
    on_commit = _callback(config, "on_commit", ConfigurationRefusedError, "on_commit requires a callable object")
    if "oauth_cb" in config:
        # It stays in the configuration: librdkafka and the membership call it for tokens.
        config["oauth_cb"] = _callback(config, "oauth_cb", CallbackTypeError, _EXPECTED.format("oauth_cb"))
    refusals = {"error_cb": CallbackTypeError, "stats_cb": CallbackTypeError, "throttle_cb": CallbackValueError}
    given_callbacks = {key: _callback(config, key, kind, _EXPECTED.format(key)) for key, kind in refusals.items()}
    callbacks = HandleCallbacks(**given_callbacks, logger=_logger(config))
    return ConstructorArguments(callbacks=callbacks, on_commit=on_commit, config=config)


def _callback(
    config: dict[str, object], key: str, refusal: type[ConfigurationError], message: str
) -> Callable[..., object] | None:
    """Remove a callable from the configuration; None if it was not given, but an explicit None is an error."""
    if key not in config:
        return None
    given = config.pop(key)
    if not callable(given):
        raise refusal(key, given, f"{message}; remove the key if you need no callback")
    if _is_coroutine_function(given):
        raise refusal(key, given, f"{message}: {_NOT_AWAITED}")
    return given


def _is_coroutine_function(given: object) -> bool:
    """Return whether a call only creates a coroutine; an object's `__call__` may also be a coroutine function."""
    return iscoroutinefunction(given) or iscoroutinefunction(getattr(given, "__call__", None))  # noqa: B004


def _logger(config: dict[str, object]) -> logging.Logger | None:
    given = config.pop("logger", None)
    # confluent-kafka accepts any object, and fails at the first log line if it has no `log` method.
    return given if given is None or _has_log(given) else None


def _has_log(given: object) -> TypeGuard[logging.Logger]:
    return callable(getattr(given, "log", None))


def limit_and_seconds(num_messages: object, timeout: object) -> tuple[int, float]:
    """Return the number of records and the timeout in seconds that `consume` accepts."""
    limit = num_messages.__index__() if hasattr(num_messages, "__index__") else num_messages
    if not isinstance(limit, int):
        raise TypeError(f"{type(limit).__name__!r} object cannot be interpreted as an integer")
    left = seconds(timeout)
    if not 0 <= limit <= _MOST_MESSAGES:
        raise ValueError("num_messages must be between 0 and 1000000 (1M)")
    return limit, left


def partition_list(given: object) -> list[PartitionOffset]:
    """Return a list of partitions, the argument of most methods."""
    if not isinstance(given, list):
        raise TypeError("requires list of TopicPartition")
    for partition in given:
        one_partition(partition)
    return given


def offset_list(given: object) -> list[PartitionOffset]:
    """Return a list of partitions with the offsets to commit."""
    partitions = partition_list(given)
    for partition in partitions:
        if partition.metadata:
            name = f"metadata of {partition.topic} [{partition.partition}]"
            _refuse_text(name, partition.metadata, _LONGEST_METADATA)
    return partitions


def one_partition(given: object) -> PartitionOffset:
    """Return one partition."""
    if not isinstance(given, PartitionOffset):
        raise TypeError("expected cimpl.TopicPartition")
    # The C type has already rejected text that is not UTF-8 or has a NUL.
    if len(given.topic) > _SURELY_SHORT:
        _refuse_text("topic", given.topic, LONGEST_TOPIC)
    return given


def _refuse_text(name: str, text: str, longest: int) -> None:
    problem = problem_of(text, longest)
    if problem is not None:
        raise InvalidCallError(f"{name}={excerpt(text)!a}: {problem}", INVALID_ARG_CODE)


def offset_after(message: object, what: str) -> PartitionOffset:
    """Return the offset after this record, with its leader epoch; `what` is the verb in error messages."""
    if not isinstance(message, (Message, ErrorMessage)):
        raise TypeError("expected confluent_kafka.cimpl.Message")
    error = message.error()
    if error is not None:
        raise InvalidCallError(f"Cannot {what} offsets for message with error: '{error.str()}'", INVALID_ARG_CODE)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None and offset is not None:
        raise InvalidCallError(f"Cannot {what} offsets for a message without topic", INVALID_ARG_CODE)
    # Messages that a program created may have no partition or offset; confluent-kafka then stores or commits nothing.
    where = (topic or "", PARTITION_UA if partition is None else partition)
    at = OFFSET_STORED if offset is None else offset + 1
    epoch = message.leader_epoch()
    return PartitionOffset(*where, at) if epoch is None else PartitionOffset(*where, at, leader_epoch=epoch)


def message_or_offsets(message: object, offsets: object, what: str) -> list[PartitionOffset] | None:
    """Return the offsets of `message` or `offsets`, or None if neither was given."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        return [offset_after(message, what)]
    return None if offsets is None else offset_list(offsets)


def subscription_of(topics: object, settings: SubscriptionSettings) -> Subscription:
    """Return names and patterns (elements that begin with `^`) as one subscription.

    Raises:
        TypeError: `topics` is not a list of text.
        InvalidCallError: a name or a pattern is invalid.
    """
    if not isinstance(topics, list):
        raise TypeError("expected list of topic unicode strings")
    names = _names(topics)
    try:
        _check(names)
        patterns = frozenset(_pattern_of(name, settings) for name in names if name.startswith("^"))
        topics = frozenset(name for name in names if not name.startswith("^"))
        blacklisted = frozenset(filter(settings.excludes, topics))
        subscription = Subscription(topics=topics - blacklisted, patterns=patterns, blacklisted=blacklisted)
        _check_text(subscription.pattern or "", LONGEST_STRING)
    except ValueError as problem:
        message = f"Failed to set subscription: Local: Invalid argument or configuration ({problem})"
        raise InvalidCallError(message, INVALID_ARG_CODE) from problem
    return subscription


def _names(topics: list[object]) -> list[str]:
    try:
        return [str(topic) for topic in topics]
    except Exception as error:
        raise TypeError(f"expected list of unicode strings: the str() of a topic raised {error!r}") from error


def _check_text(name: str, longest: int) -> None:
    problem = problem_of(name, longest)
    if problem is not None:
        raise ValueError(f"{excerpt(name)!a} cannot be subscribed: {problem}")


def _check(names: list[str]) -> None:
    if not names:
        raise ValueError("the list of topics is empty; call unsubscribe() to leave the group")
    for name in names:
        _check_text(name, LONGEST_STRING if name.startswith("^") else LONGEST_TOPIC)
    if "" in names:
        raise ValueError("a topic name is empty")
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"duplicate topics: {', '.join(sorted(repeated))}")


def _pattern_of(text: str, settings: SubscriptionSettings) -> TopicPattern:
    """Return this pattern as librdkafka's own group protocol reads it, or as brokers read it if librdkafka cannot."""
    if settings.blacklist and settings.may_meet_brokers:
        raise ValueError(
            f"pattern {text!r} cannot be combined with topic.blacklist: the broker resolves patterns and does not know "
            "the blacklist, so it would assign blacklisted topics that no member reads; remove topic.blacklist, "
            "subscribe to topic names, or set group.protocol=classic, where the member resolves patterns"
        )
    # Imported here, because subscriptions to names need no patterns.
    from consumer_membership.config.patterns import NotPosixError, as_written, translate

    if settings.is_for_brokers:
        return as_written(text)
    try:
        pattern = translate(text)
    except NotPosixError as refused:
        pattern = as_written(text)
        if not refused.is_re2 or (pattern.member is None and not settings.may_meet_brokers):
            raise ValueError(
                f"{text!r} is not a POSIX extended regular expression, which librdkafka's patterns are: {refused}"
            ) from refused
    if pattern.broker is None and settings.may_meet_brokers:
        raise ValueError(
            f"{text!r} cannot be sent to a broker: {pattern.of_members_only}; rewrite the pattern, or set "
            "group.protocol=classic, where the member resolves patterns"
        )
    return pattern


class _NotGiven:
    """The default of optional arguments, which differs from None as in confluent-kafka."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN = _NotGiven()


def listener_of(
    consumer: object, *, on_assign: object, on_revoke: object, on_lost: object, on_warm: object
) -> RebalanceListener:
    """Return the callbacks of `subscribe`, bound to this consumer.

    Raises:
        TypeError: a callback is not callable.
    """
    me = weakref.ref(consumer)  # its own callbacks must not keep an unused consumer alive
    return RebalanceListener(
        on_assign=_for_session(me, _listener_callback(on_assign, "on_assign")),
        on_revoke=_for_session(me, _listener_callback(on_revoke, "on_revoke")),
        on_lost=_for_session(me, _listener_callback(on_lost, "on_lost")),
        on_warm=_for_session(me, _listener_callback(on_warm, "on_warm")),
    )


def _listener_callback(given: object, name: str) -> Callable[..., object] | None:
    """Return a rebalance callback, or None if it was not given; any other value that is not callable is an error."""
    if given is NOT_GIVEN:
        return None
    if not callable(given):
        raise TypeError(f"{name} expects a callable")
    if _is_coroutine_function(given):
        raise TypeError(f"{name} expects a callable: {_NOT_AWAITED}")
    return given


def event_callback(given: EventCallback) -> EventCallback:
    """Return the callback of `on_event`.

    Raises:
        TypeError: it is not callable, or is a coroutine function.
    """
    if not callable(given):
        raise TypeError("on_event expects a callable")
    if _is_coroutine_function(given):
        raise TypeError(f"on_event expects a callable: {_NOT_AWAITED}, or use AIOConsumer")
    return given


def _for_session(me: weakref.ref[ConsumerT], callback: Callable[..., object] | None) -> PartitionsCallback | None:
    """Return the callback in the form that the session calls."""
    if callback is None:
        return None

    def call(partitions: list[TopicPartition]) -> None:
        consumer = me()
        if consumer is not None:
            callback(consumer, [PartitionOffset(p.topic, p.partition, OFFSET_INVALID) for p in partitions])

    return call


def seconds(given: object) -> float:
    """Return a timeout in seconds: any real number."""
    if isinstance(given, (int, float)) or hasattr(given, "__float__"):
        found = float(given)
    else:
        raise TypeError(f"must be real number, not {type(given).__name__}")
    if isnan(found):
        raise InvalidArgumentError("timeout", given, "not a number; pass seconds, or -1 to wait without limit")
    return found


def sendable(name: str, given: T, *, is_secret: bool = False) -> T:
    """Return an argument for librdkafka, which checks its type; text is checked here for UTF-8 and NUL."""
    problem = problem_of(given, None, is_secret=is_secret) if isinstance(given, str) else None
    if problem is not None:
        raise InvalidArgumentError(name, "***" if is_secret else excerpt(str(given)), problem)
    return given


def leave_option(membership: str) -> LeaveOption:
    """Return the option with this name.

    Raises:
        ValueError: the name is not one of the three options.
    """
    try:
        return LeaveOption(membership)
    except ValueError:
        options = ", ".join(repr(option.value) for option in LeaveOption)
        raise ValueError(f"membership={membership!r}: expected one of {options}") from None
