"""Every option of a processor is checked at its creation; each error has the option, the value and the fix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta

import pytest
import tenacity
from confluent_kafka import Message

from consumer_membership.config import ConsumerConfig, ConsumerSettings
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.processing.scheduler import ProcessingOrder
from consumer_membership.processing.settings import ProcessorSettings

LEAST: dict[str, object] = {"bootstrap.servers": "broker:9092", "group.id": "orders"}
TOPICS = ["orders"]
ENDLESS = tenacity.Retrying()


def handle(record: Message) -> None:
    """Do nothing."""


def keep(record: Message, error: Exception, attempts: int) -> None:
    """Receive a failed record."""


async def keep_later(record: Message, error: Exception, attempts: int) -> None:
    """Receive a failed record asynchronously."""


def settings_of(
    config: Mapping[str, object] | None = None, topics: object = TOPICS, handler: object = handle, **options: object
) -> ProcessorSettings:
    """Return the settings of the minimal configuration with these keys, topics, handler and options."""
    return ProcessorSettings.checked({**LEAST, **(config or {})}, topics, handler, **options)


def refusal_of(**given: object) -> ConfigurationError:
    """Return the error that `settings_of` raises."""
    with pytest.raises(ConfigurationError) as raised:
        settings_of(**given)  # type: ignore[arg-type]  # invalid on purpose
    return raised.value


# ---- defaults ----


def test_defaults_are_those_of_the_documentation() -> None:
    """By default, 16 handlers run in parallel, in order within each key, with the times of the consumer's keys."""
    found = settings_of()
    assert (found.group_id, found.topics, found.handler.call) == ("orders", ("orders",), handle)
    assert (found.order, found.concurrency, found.max_queued, found.max_batch) == (ProcessingOrder.KEY, 16, 1000, 1)
    assert (found.handler_timeout_s, found.drain_timeout_s, found.commit_interval_s) == (300.0, 30.0, 5.0)
    assert (found.max_wait_s, found.grace_period_s, found.membership) == (0.0, 25.0, "default")
    assert (found.dead_letter, found.transactional, found.transactional_id) == (None, False, None)
    assert (found.processes, found.metadata_limit) == (False, 4096)
    assert (found.key_deserializer, found.value_deserializer) == (None, None)


def test_processes_use_the_cpus_of_this_process_unless_concurrency_is_given() -> None:
    """By default there is one worker process for each CPU."""
    assert settings_of(processes=True).concurrency >= 1
    assert settings_of(processes=True, concurrency=3).concurrency == 3


def test_durations_are_seconds_or_timedeltas() -> None:
    """Both forms are accepted."""
    minute = timedelta(minutes=1)
    found = settings_of(handler_timeout=minute, grace_period=minute, max_batch=2, max_wait=minute)
    assert (found.handler_timeout_s, found.grace_period_s, found.max_wait_s) == (60.0, 60.0, 60.0)
    assert settings_of(grace_period=math.inf).grace_period_s == math.inf


@pytest.mark.parametrize("unlimited", [None, math.inf])
def test_handler_timeout_of_none_disables_the_limit(unlimited: float | None) -> None:
    """None and infinity disable the limit; without the option, max.poll.interval.ms limits a handler."""
    assert settings_of(handler_timeout=unlimited).handler_timeout_s is None
    assert settings_of({"max.poll.interval.ms": 5000}).handler_timeout_s == 5.0


def test_drain_timeout_is_at_most_half_of_the_rebalance_timeout() -> None:
    """The other half of max.poll.interval.ms is for the commit and the acknowledgment."""
    assert settings_of({"drain.timeout.ms": 7000}).drain_timeout_s == 7.0
    assert settings_of({"max.poll.interval.ms": 10_000}).drain_timeout_s == 5.0
    assert settings_of({"max.poll.interval.ms": 10_000, "drain.timeout.ms": 9000}).drain_timeout_s == 5.0


# ---- the consumer's configuration ----


def test_consumer_gets_the_configuration_without_the_keys_of_the_processor() -> None:
    """The consumer commits nothing itself, and revokes only partitions that move to another member.

    librdkafka never receives the processor's keys, which it does not know.
    """
    config = {
        "rebalance.callbacks": "eager",
        "offset.metadata.max.bytes": 100,
        "value.deserializer": str,
        "client.id": "a",
    }
    found = settings_of(config)
    own = {"enable.auto.commit": False, "rebalance.callbacks": "incremental"}
    assert found.consumer_config == {**LEAST, "client.id": "a", **own}
    assert (found.metadata_limit, found.value_deserializer) == (100, str)
    assert found.cluster_config == {"bootstrap.servers": "broker:9092", "client.id": "a"}


def test_configuration_that_the_caller_passes_is_not_changed() -> None:
    """The same dict may be used for several processors."""
    config = {**LEAST, "key.deserializer": str}
    ProcessorSettings.checked(config, TOPICS, handle)
    assert config == {**LEAST, "key.deserializer": str}


def test_callbacks_of_the_configuration_stay_in_the_configuration_of_the_consumer() -> None:
    """Callbacks are arguments of the consumer, not keys of librdkafka."""
    assert settings_of({"error_cb": print}).consumer_config["error_cb"] is print


def test_configuration_may_be_typed_settings() -> None:
    """`ConsumerSettings` are accepted, as they are by `Consumer`."""
    settings = ConsumerSettings(bootstrap_servers="broker:9092", group_id="orders")
    assert ProcessorSettings.checked(settings, TOPICS, handle).group_id == "orders"


def test_environment_variables_set_keys_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer's configuration removes these keys; otherwise the consumer would pass them to librdkafka."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_DRAIN_TIMEOUT_MS", "2000")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_OFFSET_METADATA_MAX_BYTES", "100")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_MAX_POLL_INTERVAL_MS", "100000")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_ENABLE_AUTO_COMMIT", "false")
    found = settings_of()
    assert (found.drain_timeout_s, found.handler_timeout_s, found.metadata_limit) == (2.0, 100.0, 100)
    assert "offset.metadata.max.bytes" not in ConsumerConfig.from_mapping(found.consumer_config).given
    assert settings_of({"drain.timeout.ms": 3000}).drain_timeout_s == 3.0


@pytest.mark.parametrize("value", ["true", "1", True])
def test_automatic_commits_raise_error(value: object) -> None:
    """A processor commits the offsets of finished records only."""
    refused = refusal_of(config={"enable.auto.commit": value})
    assert (refused.key, refused.value) == ("enable.auto.commit", value)
    assert "remove the key" in refused.remedy
    assert settings_of({"enable.auto.commit": "false"}).consumer_config["enable.auto.commit"] is False


def test_automatic_commits_of_the_environment_raise_error_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the environment variable that has to be changed."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_ENABLE_AUTO_COMMIT", "true")
    assert "CONSUMER_MEMBERSHIP_ENABLE_AUTO_COMMIT" in refusal_of().remedy


def test_deserializer_of_the_environment_raises_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deserializer is an object, so it cannot be given as text."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_KEY_DESERIALIZER", "json")
    assert "unset CONSUMER_MEMBERSHIP_KEY_DESERIALIZER" in refusal_of().remedy
    assert settings_of({"key.deserializer": str}).key_deserializer is str


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("group.id", "", "group.id must be set"),
        ("drain.timeout.ms", "soon", "expected an integer"),
        ("drain.timeout.ms", -1, "outside allowed range"),
        ("offset.metadata.max.bytes", 40_000, "outside allowed range"),
        ("key.deserializer", "json", "give a deserializer"),
        ("transactional.id", "a", "use the option transactional_id"),
        ("enable.idempotence", "false", "always idempotent"),
    ],
)
def test_invalid_key_raises_error_with_the_fix(key: str, value: object, fix: str) -> None:
    """Keys of the processor are checked like keys of the consumer."""
    refused = refusal_of(config={key: value})
    assert (refused.key, refused.value) == (key, value)
    assert fix in refused.remedy


# ---- topics ----


@pytest.mark.parametrize("topics", [["orders", "^payments-.*"], ("orders",), {"orders"}, frozenset({"orders"})])
def test_topics_are_names_and_patterns(topics: object) -> None:
    """Lists, tuples and sets are accepted."""
    assert set(settings_of(topics=topics).topics) == set(topics)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("topics", "fix"),
    [
        ("orders", "give a list of topics"),
        (b"orders", "give a list of topics"),
        (None, "give a list of topics"),
        ({"orders": 1}, "give a list of topics"),
        ([], "give at least one topic"),
        ([5], "each topic must be a string"),
        ([""], "a topic name is empty"),
        (["orders", "orders"], "duplicate topics"),
        (["^("], "not a POSIX extended regular expression"),
    ],
)
def test_invalid_topics_raise_error(topics: object, fix: str) -> None:
    """A single name is not treated as a list of characters."""
    refused = refusal_of(topics=topics)
    assert refused.key == "topics"
    assert fix in refused.remedy


# ---- options ----


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("order", "keys", "'key', 'partition', 'none'"),
        ("concurrency", 0, "1 or more"),
        ("concurrency", -1, "1 or more"),
        ("max_queued", 0, "1 or more"),
        ("max_batch", 0, "1 or more"),
        ("max_batch", 1001, "max_queued=1000"),
        ("max_wait", 1, "set max_batch above 1"),
        ("max_wait", -1, "0 seconds or more"),
        ("max_wait", math.inf, "give a finite duration"),
        ("handler_timeout", 0, "no handler could finish"),
        ("handler_timeout", math.nan, "0 seconds or more"),
        ("grace_period", timedelta(seconds=-1), "0 seconds or more"),
        ("membership", "stay", "'default', 'leave' or 'remain'"),
        ("transactional_id", "", "it is empty"),
        ("transactional_id", "a\0b", "NUL"),
        ("dead_letter", "", "the name is empty"),
        ("dead_letter", "^dead", "give the name of one topic"),
        ("dead_letter", "orders", "subscribes to this topic"),
    ],
)
def test_invalid_value_raises_error_with_the_fix(option: str, value: object, fix: str) -> None:
    """The error names the option and shows the value."""
    refused = refusal_of(**{option: value})
    assert (refused.key, repr(refused.value)) == (option, repr(value))
    assert fix in refused.remedy
    assert not isinstance(refused, TypeError)


async def _warm_later(_: object) -> None:
    """Do nothing, as a coroutine."""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("order", None),
        ("concurrency", True),
        ("concurrency", 2.0),
        ("concurrency", "2"),
        ("max_queued", None),
        ("max_batch", True),
        ("max_wait", "1"),
        ("handler_timeout", True),
        ("grace_period", None),
        ("processes", 1),
        ("transactional", "yes"),
        ("transactional_id", 5),
        ("membership", None),
        ("retry", 5),
        ("dead_letter", 5),
        ("dead_letter", ValueError),
        ("on_warm", 5),
        ("on_warm", _warm_later),
        ("topic", "orders"),
    ],
)
def test_value_of_the_wrong_type_raises_type_error(option: str, value: object) -> None:
    """The error is an ArgumentTypeError, and therefore a TypeError; True and False do not count as numbers."""
    refused = refusal_of(**{option: value})
    assert isinstance(refused, ArgumentTypeError)
    assert refused.key == option


def test_unknown_option_raises_error_with_the_similar_one() -> None:
    """A misspelled option is never ignored, and its value is not shown in the error."""
    refused = refusal_of(retires="secret")
    assert "did you mean retry?" in refused.remedy
    assert "secret" not in str(refused)
    assert "the options are order, concurrency" in refusal_of(colour=1).remedy


@pytest.mark.parametrize("order", ["key", "partition", "none", *ProcessingOrder])
def test_order_is_a_word_or_its_constant(order: str | ProcessingOrder) -> None:
    """Both forms are accepted."""
    assert settings_of(order=order).order is ProcessingOrder(order)


# ---- contradictions ----


def test_dead_letters_contradict_a_retry_policy_that_never_ends() -> None:
    """No record would ever reach the dead-letter target; without a target, such a policy is allowed."""
    refused = refusal_of(dead_letter="orders.dlq", retry=ENDLESS)
    assert (refused.key, refused.value) == ("dead_letter", "orders.dlq")
    assert settings_of(retry=ENDLESS).retry.never_ends
    only_network = tenacity.Retrying(retry=tenacity.retry_if_exception_type(ConnectionError))
    assert settings_of(dead_letter="orders.dlq", retry=only_network).dead_letter == "orders.dlq"


def test_pattern_that_matches_the_dead_letter_topic_raises_error() -> None:
    """The processor would consume its own dead letters; exclude the topic with topic.blacklist."""
    refused = refusal_of(topics=["^orders.*"], dead_letter="orders.dlq")
    assert "'^orders.*'" in refused.remedy
    excluded = {"topic.blacklist": "dlq"}
    assert settings_of(excluded, ["^orders.*"], dead_letter="orders.dlq").dead_letter == "orders.dlq"


def test_policy_of_a_decorated_handler_is_used_and_contradicts_the_option() -> None:
    """A policy may be set with the option or with the decorator, but not with both."""

    @tenacity.retry(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(3))
    def retried(record: Message) -> None: ...

    policy = settings_of(handler=retried).retry
    assert (policy.after(1, ValueError(), 0), policy.after(2, ValueError(), 3)) == (3.0, None)
    refused = refusal_of(handler=retried, retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(2)))
    assert "remove one of the two" in refused.remedy


def test_transactional_id_implies_transactions() -> None:
    """An id alone enables transactions; an id with transactional=False is an error."""
    found = settings_of(transactional_id="orders-1")
    assert (found.transactional, found.transactional_id) == (True, "orders-1")
    assert settings_of(transactional=True).transactional_id is None
    assert "no effect" in refusal_of(transactional_id="orders-1", transactional=False).remedy


@pytest.mark.parametrize("options", [{"transactional": True}, {"transactional_id": "a"}])
def test_transactions_refuse_to_read_uncommitted_offsets(options: dict[str, object]) -> None:
    """Without read_committed, a new owner would not wait for the end of the transaction of the earlier one."""
    config = {"isolation.level": "read_uncommitted"}
    refused = refusal_of(config=config, **options)
    assert (refused.key, refused.value) == ("isolation.level", "read_uncommitted")
    assert not settings_of(config).transactional


# ---- functions for dead letters ----


def test_dead_letters_may_go_to_a_function_of_three_arguments() -> None:
    """The function receives the record, the error and the number of attempts."""
    assert settings_of(dead_letter=keep).dead_letter is keep
    assert settings_of(dead_letter=print).dead_letter is print


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        (keep_later, "give a plain function"),
        (handle, "cannot be called with (record, error, attempts)"),
        (lambda record, error, *, attempts: None, "cannot be called with (record, error, attempts)"),  # noqa: ARG005
    ],
)
def test_function_that_cannot_receive_dead_letters_raises_error(target: object, fix: str) -> None:
    """The error names the function."""
    refused = refusal_of(dead_letter=target)
    assert refused.key == "dead_letter"
    assert str(refused.value).startswith(__name__)
    assert fix in refused.remedy
