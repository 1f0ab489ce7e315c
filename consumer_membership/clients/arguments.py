"""What callers pass to the drop-in, checked as confluent-kafka checks it: same exceptions, same words."""

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

if TYPE_CHECKING:  # few consumers have callbacks for events
    from consumer_membership.runtime.application.lifecycle_events import EventCallback

#: librdkafka's number for "no partition" (RD_KAFKA_PARTITION_UA).
PARTITION_UA = -1
#: A topic of so many characters has no more bytes than it may have: nothing need be counted.
_SURELY_SHORT = LONGEST_TOPIC // 4
#: A commit's text goes out with C's terminating zero.
_LONGEST_METADATA = LONGEST_STRING - 1

#: confluent-kafka's own bound for one `consume`.
_MOST_MESSAGES = 1_000_000

#: confluent-kafka's words for a callback that cannot be called.
_EXPECTED = "expected {} property as a callable function"

#: confluent-kafka calls it, and never awaits what comes of it.
_NOT_AWAITED = "this one is a coroutine function, which nobody would await; give a plain function"

T = TypeVar("T")
ConsumerT = TypeVar("ConsumerT")

OnCommit = Callable[[KafkaError | None, list[PartitionOffset]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructorArguments:
    """A constructor's arguments, sorted: text for the configuration, callables for their places."""

    config: dict[str, object] = field(repr=False)
    callbacks: HandleCallbacks
    on_commit: OnCommit | None


def sort_arguments(args: tuple[object, ...], kwargs: Mapping[str, object]) -> ConstructorArguments:
    """Sort what was given to the constructor: a dict, keyword arguments, or both (which win)."""
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    given = args[0] if args else {}
    if not isinstance(given, dict) and callable(as_config := getattr(given, "as_config", None)):
        given = as_config()  # `ConsumerSettings`, whose module is not imported for others
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
        # It stays in the configuration: librdkafka and the membership ask it for tokens.
        config["oauth_cb"] = _callback(config, "oauth_cb", CallbackTypeError, _EXPECTED.format("oauth_cb"))
    refusals = {"error_cb": CallbackTypeError, "stats_cb": CallbackTypeError, "throttle_cb": CallbackValueError}
    given_callbacks = {key: _callback(config, key, kind, _EXPECTED.format(key)) for key, kind in refusals.items()}
    callbacks = HandleCallbacks(**given_callbacks, logger=_logger(config))
    return ConstructorArguments(callbacks=callbacks, on_commit=on_commit, config=config)


def _callback(
    config: dict[str, object], key: str, refusal: type[ConfigurationError], words: str
) -> Callable[..., object] | None:
    """Take a callable out of the configuration; None where there is none, but not where None is given."""
    if key not in config:
        return None
    given = config.pop(key)
    if not callable(given):
        raise refusal(key, given, f"{words}; leave it out for none")
    if _is_coroutine_function(given):
        raise refusal(key, given, f"{words}: {_NOT_AWAITED}")
    return given


def _is_coroutine_function(given: object) -> bool:
    """Whether calling it runs nothing, but makes a coroutine; an object's `__call__` may be one, too."""
    return iscoroutinefunction(given) or iscoroutinefunction(getattr(given, "__call__", None))  # noqa: B004


def _logger(config: dict[str, object]) -> logging.Logger | None:
    given = config.pop("logger", None)
    # confluent-kafka takes anything that has a `log` method, and fails at the first line that it logs otherwise.
    return given if given is None or _has_log(given) else None


def _has_log(given: object) -> TypeGuard[logging.Logger]:
    return callable(getattr(given, "log", None))


def limit_and_seconds(num_messages: object, timeout: object) -> tuple[int, float]:
    """How many records to gather and for how long, as `consume` takes them."""
    limit = num_messages.__index__() if hasattr(num_messages, "__index__") else num_messages
    if not isinstance(limit, int):
        raise TypeError(f"{type(limit).__name__!r} object cannot be interpreted as an integer")
    left = seconds(timeout)
    if not 0 <= limit <= _MOST_MESSAGES:
        raise ValueError("num_messages must be between 0 and 1000000 (1M)")
    return limit, left


def partition_list(given: object) -> list[PartitionOffset]:
    """A list of partitions, as nearly every method takes it."""
    if not isinstance(given, list):
        raise TypeError("requires list of TopicPartition")
    for partition in given:
        one_partition(partition)
    return given


def offset_list(given: object) -> list[PartitionOffset]:
    """A list of partitions with what is to be committed of them."""
    partitions = partition_list(given)
    for partition in partitions:
        if partition.metadata:
            name = f"metadata of {partition.topic} [{partition.partition}]"
            _refuse_text(name, partition.metadata, _LONGEST_METADATA)
    return partitions


def one_partition(given: object) -> PartitionOffset:
    """One partition."""
    if not isinstance(given, PartitionOffset):
        raise TypeError("expected cimpl.TopicPartition")
    # The C type has refused what is not UTF-8 and what has a NUL.
    if len(given.topic) > _SURELY_SHORT:
        _refuse_text("topic", given.topic, LONGEST_TOPIC)
    return given


def _refuse_text(name: str, text: str, longest: int) -> None:
    problem = problem_of(text, longest)
    if problem is not None:
        raise InvalidCallError(f"{name}={excerpt(text)!a}: {problem}", INVALID_ARG_CODE)


def offset_after(message: object, what: str) -> PartitionOffset:
    """The offset after this record, with its leader epoch; `what` is done with it."""
    if not isinstance(message, (Message, ErrorMessage)):
        raise TypeError("expected confluent_kafka.cimpl.Message")
    error = message.error()
    if error is not None:
        raise InvalidCallError(f"Cannot {what} offsets for message with error: '{error.str()}'", INVALID_ARG_CODE)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None and offset is not None:
        raise InvalidCallError(f"Cannot {what} offsets for a message without topic", INVALID_ARG_CODE)
    # What a program made itself may lack them; confluent-kafka reads nothing to store or to commit out of that.
    where = (topic or "", PARTITION_UA if partition is None else partition)
    at = OFFSET_STORED if offset is None else offset + 1
    epoch = message.leader_epoch()
    return PartitionOffset(*where, at) if epoch is None else PartitionOffset(*where, at, leader_epoch=epoch)


def message_or_offsets(message: object, offsets: object, what: str) -> list[PartitionOffset] | None:
    """The offsets that were given one way or the other; None if neither was."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        return [offset_after(message, what)]
    return None if offsets is None else offset_list(offsets)


def subscription_of(topics: object, settings: SubscriptionSettings) -> Subscription:
    """Names and patterns (elements that begin with `^`) as one subscription; what is refused is refused here."""
    if not isinstance(topics, list):
        raise TypeError("expected list of topic unicode strings")
    names = _names(topics)
    try:
        _check(names)
        patterns = frozenset(_pattern_of(name, settings) for name in names if name.startswith("^"))
        topics = frozenset(name for name in names if not name.startswith("^"))
        blacklisted = frozenset(filter(settings.keeps_out, topics))
        subscription = Subscription(topics=topics - blacklisted, patterns=patterns, blacklisted=blacklisted)
        _check_text(subscription.pattern or "", LONGEST_STRING)
    except ValueError as problem:
        words = f"Failed to set subscription: Local: Invalid argument or configuration ({problem})"
        raise InvalidCallError(words, INVALID_ARG_CODE) from problem
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
        raise ValueError("no topic is named; unsubscribe() leaves the group")
    for name in names:
        _check_text(name, LONGEST_STRING if name.startswith("^") else LONGEST_TOPIC)
    if "" in names:
        raise ValueError("a topic's name is empty")
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"named twice: {', '.join(sorted(repeated))}")


def _pattern_of(text: str, settings: SubscriptionSettings) -> TopicPattern:
    """This pattern, as librdkafka's own group protocol would read it, or as brokers do where it cannot."""
    if settings.blacklist and settings.may_meet_brokers:
        raise ValueError(
            f"{text!r} beside topic.blacklist: the broker assigns what matches a pattern and cannot be told what to "
            "leave out, so that blacklisted topics would be assigned and read by nobody; remove topic.blacklist, name "
            "the topics, or set group.protocol=classic, where the member itself finds what matches"
        )
    # Not with the others above: who names topics needs no patterns.
    from consumer_membership.config.patterns import NotPosixError, as_written, translate

    if settings.is_for_brokers:
        return as_written(text)
    try:
        pattern = translate(text)
    except NotPosixError as refused:
        pattern = as_written(text)
        if not refused.is_re2 or (pattern.member is None and not settings.may_meet_brokers):
            raise ValueError(
                f"{text!r} is no regular expression: {refused}; librdkafka's patterns are POSIX extended ones"
            ) from refused
    if pattern.broker is None and settings.may_meet_brokers:
        raise ValueError(
            f"{text!r} cannot be told to a broker: {pattern.of_members_only}; write it without, or set "
            "group.protocol=classic, where the member itself finds what matches"
        )
    return pattern


class _NotGiven:
    """Tells an argument that was left out from None, as confluent-kafka does."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN = _NotGiven()


def listener_of(consumer: object, *, on_assign: object, on_revoke: object, on_lost: object) -> RebalanceListener:
    """What `subscribe` was given, to be called with this consumer.

    Raises:
        TypeError: something is no callable.
    """
    me = weakref.ref(consumer)  # a consumer that nobody refers to any more must not be kept by its own callbacks
    return RebalanceListener(
        on_assign=_for_session(me, _listener_callback(on_assign, "on_assign")),
        on_revoke=_for_session(me, _listener_callback(on_revoke, "on_revoke")),
        on_lost=_for_session(me, _listener_callback(on_lost, "on_lost")),
    )


def _listener_callback(given: object, name: str) -> Callable[..., object] | None:
    """A rebalance callback; one that is given must be callable, None too is refused."""
    if given is NOT_GIVEN:
        return None
    if not callable(given):
        raise TypeError(f"{name} expects a callable")
    if _is_coroutine_function(given):
        raise TypeError(f"{name} expects a callable: {_NOT_AWAITED}")
    return given


def event_callback(given: EventCallback) -> EventCallback:
    """What `on_event` was given.

    Raises:
        TypeError: it is not callable, or nobody would await it.
    """
    if not callable(given):
        raise TypeError("on_event expects a callable")
    if _is_coroutine_function(given):
        raise TypeError(f"on_event expects a callable: {_NOT_AWAITED}, or take AIOConsumer")
    return given


def _for_session(me: weakref.ref[ConsumerT], callback: Callable[..., object] | None) -> PartitionsCallback | None:
    """The same callback as the session calls it."""
    if callback is None:
        return None

    def call(partitions: list[TopicPartition]) -> None:
        consumer = me()
        if consumer is not None:
            callback(consumer, [PartitionOffset(p.topic, p.partition, OFFSET_INVALID) for p in partitions])

    return call


def seconds(given: object) -> float:
    """A timeout: any real number."""
    if isinstance(given, (int, float)) or hasattr(given, "__float__"):
        found = float(given)
    else:
        raise TypeError(f"must be real number, not {type(given).__name__}")
    if isnan(found):
        raise InvalidArgumentError("timeout", given, "it is no number; give seconds, or -1 to wait for ever")
    return found


def sendable(name: str, given: T, *, is_secret: bool = False) -> T:
    """An argument that is handed on to librdkafka, which checks its type; a text is one that it can take."""
    problem = problem_of(given, None, is_secret=is_secret) if isinstance(given, str) else None
    if problem is not None:
        raise InvalidArgumentError(name, "***" if is_secret else excerpt(str(given)), problem)
    return given


def leave_option(membership: str) -> LeaveOption:
    """The option of this name; ValueError names the three."""
    try:
        return LeaveOption(membership)
    except ValueError:
        words = ", ".join(repr(option.value) for option in LeaveOption)
        raise ValueError(f"membership={membership!r}: expected one of {words}") from None
