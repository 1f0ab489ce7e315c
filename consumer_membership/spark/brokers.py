"""Requests of a driver to the brokers before a run: earlier runs, topics, end offsets, and the assignment interval."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.consumer import Consumer
from consumer_membership.config import ConnectionSettings, ConsumerConfig
from consumer_membership.errors import (
    AuthenticationError,
    ConfigurationError,
    DrainError,
    MembershipError,
    TransportError,
)
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.spark.context import RUN_SPACING, Partition, run_within
from consumer_membership.spark.plan import MemberPlan, attempt_of, run_of

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import TopicMetadata

AnswerT = TypeVar("AnswerT")

_log = logging.getLogger("consumer_membership.spark")

_TIMEOUT_S = 30.0
#: The timeout for reading the earlier runs from the group.
_NUMBER_S = 10.0
#: Larger than any attempt number of this century; such a number is part of another program's client id.
_NO_ATTEMPT = 1 << 62
#: After this time without a response, the reason is determined.
_FIRST_S = 0.5
#: The times of the first and of the next record, as ListOffsets takes them.
EARLIEST, LATEST = -2, -1
#: librdkafka opens at most two connections within this time. A new handle soon needs its second connection, to the
#: broker that it learned over the bootstrap connection; it closes the latter then, often before the response arrived.
_QUICK = {"reconnect.backoff.ms": 20}
#: Keys with which a user requests librdkafka's log lines.
_LOGGING = frozenset({"log_level", "logger", "debug"})
#: The level of syslog.
_CRITICAL = 2
# librdkafka's own codes begin with an underscore.
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
#: A leader election is in progress; brokers return either error.
_WITHOUT_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT})
#: The group's setting, for KIP-848 groups since Kafka 4.3; the broker's is `group.consumer.assignment.interval.ms`.
INTERVAL_KEY = "consumer.assignment.interval.ms"


# ---- runs ------------------------------------------------------------------------------------------------------------


def with_run_number(plan: MemberPlan) -> MemberPlan:
    """Return the plan with a run number above those of the pipeline's members in the group.

    The drivers' clocks may differ. Members of a run with a smaller number could not join, because the members of the
    earlier run, which may be dead, would count as the later ones. If the group cannot be described, the run number
    depends only on the driver's clock.
    """
    try:
        members = GroupAdmin(plan.config, timeout_s=_NUMBER_S).describe(plan.group, with_offsets=False).group.members
    except MembershipError as unknown:
        _log.debug("Run %s: the group could not be described, so earlier runs are unknown: %s", plan.run, unknown)
        return plan
    known = [
        max(run, run_within(attempt))
        for member in members
        if member.instance_id is not None and member.instance_id.rpartition("-")[0] == plan.pipeline
        if (attempt := attempt_of(member.client_id)) is not None and (run := run_of(member.client_id)) is not None
        if attempt < _NO_ATTEMPT
    ]
    least = max(known, default=0) + RUN_SPACING + 1
    if least <= plan.run_number:
        return plan
    # Random, so that two drivers that read the same group at the same moment get different numbers.
    return replace(plan, run_number=least + secrets.randbelow(RUN_SPACING))


# ---- ends ------------------------------------------------------------------------------------------------------------


def partitions_of(consumer: Consumer, topics: Sequence[str], config: Mapping[str, object]) -> tuple[Partition, ...]:
    """Return every partition of these topics; `config` is the consumer's, to determine why no broker responds.

    Raises:
        ConfigurationError: a topic does not exist.
        TransportError: no broker responded. If no process listens at any of the addresses, it is raised at once.
    """
    partitions: list[Partition] = []
    for topic in topics:
        known = _topic_metadata(consumer, topic, config)
        if known.error is not None:
            remedy = f"the broker responded: {known.error.str()}; create the topic, or correct the name"
            raise ConfigurationError("topics", topic, remedy)
        partitions += [(topic, number) for number in sorted(known.partitions)]
    return tuple(partitions)


def _topic_metadata(consumer: Consumer, topic: str, config: Mapping[str, object]) -> TopicMetadata:
    try:
        return consumer.list_topics(topic, _FIRST_S).topics[topic]
    except KafkaException:
        refuse_if_away(config)
    try:
        return consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
    except KafkaException as failed:
        cause = _connection_error(_connection(config)) or failed.args[0].str()
        raise TransportError(f"topic {topic!r} cannot be looked up: {cause}") from failed


def quiet(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration that keeps librdkafka from writing fifty lines per second about refused connections.

    For consumers whose failures this package raises, or logs once and counts. Empty if the user has set a log key.
    """
    return {} if config.keys() & _LOGGING else {"log_level": _CRITICAL}


def refuse_if_away(config: Mapping[str, object]) -> None:
    """Raise TransportError if no process listens at any address; AuthenticationError if brokers reject this client.

    librdkafka reports only a timeout, after a long time, without an address or a reason.
    """
    settings = _connection(config)
    away = _connection_error(settings)
    if isinstance(away, AuthenticationError) or (away is not None and _refuse_connections(settings)):
        raise away


def _connection(config: Mapping[str, object]) -> ConnectionSettings:
    return ConsumerConfig.from_mapping({**config, "group.id": config.get("group.id") or "-"}).connection_settings()


def _connection_error(settings: ConnectionSettings) -> MembershipError | None:
    """Return the error of this package's own client for brokers that do not respond soon; None if a broker responds."""
    cluster = Cluster(settings)
    try:
        result_of(cluster, cluster.brokers(_FIRST_S))
    except MembershipError as away:
        return away
    return None


def result_of(cluster: Cluster, request: Awaitable[AnswerT]) -> AnswerT:
    """Return the result of a request, and close the connections of the cluster."""

    async def await_and_close() -> AnswerT:
        try:
            return await request
        finally:
            await cluster.close()

    # In a separate thread: in a notebook, an asyncio loop already runs in the main thread.
    with ThreadPoolExecutor(1, "consumer-membership-asking") as thread:
        return thread.submit(lambda: asyncio.run(await_and_close())).result()


def _refuse_connections(settings: ConnectionSettings) -> bool:
    """Return whether every address refuses connections or is invalid; a slow address may still have a broker."""

    def refuses(endpoint: tuple[str, int]) -> bool:
        try:
            socket.create_connection(endpoint, _FIRST_S).close()
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    return all(map(refuses, settings.bootstrap_servers))


def ends_now(plan: MemberPlan) -> dict[Partition, int]:
    """Return the end offset of each partition; with `isolation.level=read_committed`, the last stable offset.

    Raises:
        ConfigurationError: a topic does not exist.
        TransportError: no broker responded.
    """
    config = {**quiet(plan.config), **_QUICK, **plan.config, "group.id": plan.group}
    with Consumer(config) as asking:
        return log_offsets(asking, partitions_of(asking, plan.topics, config), LATEST)


def log_offsets(consumer: Consumer, partitions: Iterable[Partition], which: int) -> dict[Partition, int]:
    """Return the `EARLIEST` or `LATEST` offset of each partition; raise TransportError if no broker responds.

    Sends one request to each broker, where watermarks would need one for each partition. The request is repeated while
    a leader is being elected, as after the creation of a topic.
    """
    wanted = [TopicPartition(*p, which) for p in partitions]
    attempts = Retrying(
        retry=retry_if_exception(_has_no_leader_yet),
        wait=wait_exponential(multiplier=0.1, max=1.0),
        stop=stop_after_delay(_TIMEOUT_S),
        reraise=True,
    )
    try:
        found = attempts(consumer.offsets_for_times, wanted, _TIMEOUT_S)
    except KafkaException as failed:
        raise TransportError(f"offsets of partitions could not be looked up: {failed.args[0].str()}") from failed
    for each in found:
        if each.error is not None:
            raise TransportError(f"{each.topic}[{each.partition}]: no offset was returned: {each.error.str()}")
    return {(each.topic, each.partition): each.offset for each in found}


def _has_no_leader_yet(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _WITHOUT_LEADER


def check_ends(consumer: Consumer, ends: Mapping[Partition, int]) -> None:
    """Raise DrainError if an end cannot be reached, because its topic was deleted, or was deleted and created again."""
    for (topic, number), end in sorted(ends.items()):
        try:
            watermarks = consumer.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)
        except KafkaException as failed:
            if failed.args[0].code() in _GONE:
                raise DrainError(
                    f"{topic}[{number}] no longer exists: the topic was deleted before the drain reached its end at "
                    f"offset {end}"
                ) from failed
            continue
        if watermarks[1] < end:
            raise DrainError(
                f"{topic}[{number}] now ends at offset {watermarks[1]}, before the drain's end at offset {end}: the "
                "topic was deleted and created again, or records were lost"
            )


# ---- the assignment interval -----------------------------------------------------------------------------------------


class AssigningAtOnce:
    """Sets the group's assignment interval to 0, so that brokers assign at every join, not once a second (Kafka 4.3).

    The constructor sends the request; `wait` returns its result. Brokers before 4.3 do not have the setting and always
    assign at once.
    """

    def __init__(self, plan: MemberPlan) -> None:
        # Imported here, because it is slow to import and rarely needed.
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        config = ConsumerConfig.from_mapping({**plan.config, "group.id": plan.group})
        self._group = plan.group
        # Kept until the response arrives: without its client, the request would be dropped.
        self._admin = AdminClient(cast("dict[str, str | int | float | bool]", config.cluster_config()))
        entry = ConfigEntry(INTERVAL_KEY, "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, plan.group, incremental_configs=[entry])
        answers = self._admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)
        (self._answer,) = answers.values()

    def wait(self) -> None:
        """Return when the brokers have responded.

        Raises:
            ConfigurationError: the brokers refused the change, most likely because the ACL ALTER_CONFIGS is missing.
            TransportError: no broker responded.
        """
        try:
            self._answer.result(_TIMEOUT_S)
        except (KafkaException, TimeoutError) as failed:
            error = failed.args[0] if failed.args else None
            cause = error.str() if isinstance(error, KafkaError) else f"no response within {_TIMEOUT_S:.0f} s"
            if not isinstance(error, KafkaError) or error.code() in _TIMED_OUT:
                raise TransportError(f"the configuration of group {self._group!r} was not changed: {cause}") from failed
            if error.code() != KafkaError.INVALID_CONFIG:
                raise ConfigurationError(
                    "assign_at_once",
                    True,
                    f"the brokers refused to set {INTERVAL_KEY} of group {self._group!r}: {cause}; grant "
                    "ALTER_CONFIGS on the group, or leave assign_at_once out",
                ) from failed
            _log.info("Group %s: the brokers do not support %s: %s", self._group, INTERVAL_KEY, cause)
