"""What a driver asks of the brokers before a bounded run, and has them set: ends, the assignment interval."""

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
#: For the question which runs the group knows.
_NUMBER_S = 10.0
#: Beyond any attempt's number of this century: another program's client id, by chance.
_NO_ATTEMPT = 1 << 62
#: After which it is looked why nobody has answered yet.
_FIRST_S = 0.5
#: The times of the first and of the next record, as ListOffsets takes them.
EARLIEST, LATEST = -2, -1
#: librdkafka looks for a connection twice in this time at most. A new handle needs its second one soon: to the broker
#: that it heard of over the first one, which it ends then, often without having the answer to its question.
_QUICK = {"reconnect.backoff.ms": 20}
#: Keys of librdkafka by which a user asks for its log lines.
_LOGGING = frozenset({"log_level", "logger", "debug"})
#: As syslog has it.
_CRITICAL = 2
# librdkafka's own codes begin with an underscore.
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
#: An election of a leader is under way; brokers name either.
_WITHOUT_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT})
#: The group's own setting; `group.consumer.assignment.interval.ms` is the brokers'. KIP-848 groups of Kafka 4.3.
INTERVAL_KEY = "consumer.assignment.interval.ms"


# ---- runs ------------------------------------------------------------------------------------------------------------


def numbered(plan: MemberPlan) -> MemberPlan:
    """The plan with a run number above those of the pipeline's members that its group shows.

    The clocks of drivers may disagree, and a run with a smaller number would be refused its place: the member of the
    earlier run, which may be dead, would be taken for the later one. Without an answer the driver's clock counts alone.
    """
    try:
        members = GroupAdmin(plan.config, timeout_s=_NUMBER_S).describe(plan.group, with_offsets=False).group.members
    except MembershipError as unknown:
        _log.debug("Run %s: earlier runs are unknown: %s", plan.run, unknown)
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
    # Two drivers that see the same group at the same moment are still two runs.
    return replace(plan, run_number=least + secrets.randbelow(RUN_SPACING))


# ---- ends ------------------------------------------------------------------------------------------------------------


def partitions_of(consumer: Consumer, topics: Sequence[str], config: Mapping[str, object]) -> tuple[Partition, ...]:
    """Every partition of these topics; `config` is the consumer's, with which it is found out why no broker answers.

    Raises:
        ConfigurationError: there is no such topic.
        TransportError: no broker says. Where nobody listens at any of the addresses, that is said at once.
    """
    partitions: list[Partition] = []
    for topic in topics:
        known = _looked_up(consumer, topic, config)
        if known.error is not None:
            raise ConfigurationError("topics", topic, f"the broker says: {known.error.str()}; create it, or correct it")
        partitions += [(topic, number) for number in sorted(known.partitions)]
    return tuple(partitions)


def _looked_up(consumer: Consumer, topic: str, config: Mapping[str, object]) -> TopicMetadata:
    try:
        return consumer.list_topics(topic, _FIRST_S).topics[topic]
    except KafkaException:
        refuse_if_away(config)
    try:
        return consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
    except KafkaException as failed:
        words = _why_away(_connection(config)) or failed.args[0].str()
        raise TransportError(f"topic {topic!r} cannot be looked up: {words}") from failed


def quiet(config: Mapping[str, object]) -> Mapping[str, object]:
    """What keeps librdkafka from writing a line to stderr for each connection that is refused, fifty in a second.

    For consumers whose failures the package raises, or logs once and counts. Nothing if the user set a log key.
    """
    return {} if config.keys() & _LOGGING else {"log_level": _CRITICAL}


def refuse_if_away(config: Mapping[str, object]) -> None:
    """Raise TransportError if nobody listens at any of the addresses, or if whoever does and this client disagree.

    librdkafka says after a long time that there was no answer, and nothing of an address or a reason.
    """
    settings = _connection(config)
    away = _why_away(settings)
    if isinstance(away, AuthenticationError) or (away is not None and _is_nobody_there(settings)):
        raise away


def _connection(config: Mapping[str, object]) -> ConnectionSettings:
    return ConsumerConfig.from_mapping({**config, "group.id": config.get("group.id") or "-"}).connection_settings()


def _why_away(settings: ConnectionSettings) -> MembershipError | None:
    """What the package's own client says of brokers that do not answer within a moment; None: one does."""
    cluster = Cluster(settings)
    try:
        asked(cluster, cluster.brokers(_FIRST_S))
    except MembershipError as away:
        return away
    return None


def asked(cluster: Cluster, question: Awaitable[AnswerT]) -> AnswerT:
    """The answer to this question; then the cluster's connections are closed."""

    async def ask() -> AnswerT:
        try:
            return await question
        finally:
            await cluster.close()

    # In a thread of its own: notebooks have an asyncio loop in theirs.
    with ThreadPoolExecutor(1, "consumer-membership-asking") as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


def _is_nobody_there(settings: ConnectionSettings) -> bool:
    """Whether every address refuses a connection, or is none; one that only takes its time may have a broker."""

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
    """The end of each partition of a plan's topics; with `isolation.level=read_committed` the last stable offset.

    Raises:
        ConfigurationError: there is no such topic.
        TransportError: no broker says.
    """
    config = {**quiet(plan.config), **_QUICK, **plan.config, "group.id": plan.group}
    with Consumer(config) as asking:
        return log_offsets(asking, partitions_of(asking, plan.topics, config), LATEST)


def log_offsets(consumer: Consumer, partitions: Iterable[Partition], which: int) -> dict[Partition, int]:
    """The `EARLIEST` or `LATEST` offset of each of these partitions; raises TransportError if no broker says.

    One request for each broker; watermarks would be one for each partition. A partition whose leader is just being
    elected, as after the topic was created, is asked for again.
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
        raise TransportError(f"the ends of partitions cannot be had: {failed.args[0].str()}") from failed
    for each in found:
        if each.error is not None:
            raise TransportError(f"{each.topic}[{each.partition}]: no end offset: {each.error.str()}")
    return {(each.topic, each.partition): each.offset for each in found}


def _has_no_leader_yet(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _WITHOUT_LEADER


def check_ends(consumer: Consumer, ends: Mapping[Partition, int]) -> None:
    """Raise DrainError if an end cannot be reached: its topic is gone, or has fewer records (it was made anew)."""
    for (topic, number), end in sorted(ends.items()):
        try:
            watermarks = consumer.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)
        except KafkaException as failed:
            if failed.args[0].code() in _GONE:
                raise DrainError(
                    f"{topic}[{number}] was to be read up to offset {end} and does not exist any more: the topic was "
                    "deleted meanwhile"
                ) from failed
            continue
        if watermarks[1] < end:
            raise DrainError(
                f"{topic}[{number}] was to be read up to offset {end} and ends at {watermarks[1]} now: the topic was "
                "deleted and made anew, or records were lost"
            )


# ---- the assignment interval -----------------------------------------------------------------------------------------


class AssigningAtOnce:
    """Has the brokers assign a group's partitions at every join from now on, not once a second as by Kafka 4.3.

    Made, it is under way. Brokers before 4.3 do not know the setting: they always assign at once.
    """

    def __init__(self, plan: MemberPlan) -> None:
        # Slow to import, and its users are few.
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        config = ConsumerConfig.from_mapping({**plan.config, "group.id": plan.group})
        self._group = plan.group
        # Kept until the answer is there: it would die with its client.
        self._admin = AdminClient(cast("dict[str, str | int | float | bool]", config.cluster_config()))
        entry = ConfigEntry(INTERVAL_KEY, "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, plan.group, incremental_configs=[entry])
        answers = self._admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)
        (self._answer,) = answers.values()

    def wait(self) -> None:
        """Return when the brokers have answered.

        Raises:
            ConfigurationError: they refuse it, most likely for the right to alter the group's configuration.
            TransportError: no broker answers.
        """
        try:
            self._answer.result(_TIMEOUT_S)
        except (KafkaException, TimeoutError) as failed:
            error = failed.args[0] if failed.args else None
            words = error.str() if isinstance(error, KafkaError) else f"no answer within {_TIMEOUT_S:.0f} s"
            if not isinstance(error, KafkaError) or error.code() in _TIMED_OUT:
                raise TransportError(f"the configuration of group {self._group!r} is not altered: {words}") from failed
            if error.code() != KafkaError.INVALID_CONFIG:
                raise ConfigurationError(
                    "assign_at_once",
                    True,
                    f"the brokers do not let {INTERVAL_KEY} of group {self._group!r} be set: {words}; grant "
                    "ALTER_CONFIGS on the group, or leave it out",
                ) from failed
            _log.info("Group %s: the brokers do not take %s: %s", self._group, INTERVAL_KEY, words)
