"""`assign_at_once`: a group whose partitions are assigned at every join, and not once a second as by Kafka 4.3."""

from __future__ import annotations

import logging
from typing import cast

from confluent_kafka import KafkaError, KafkaException

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, TransportError
from consumer_membership.spark.plan import MemberPlan

_log = logging.getLogger("consumer_membership.spark")

#: The group's own setting; `group.consumer.assignment.interval.ms` is the brokers'. KIP-848 groups of Kafka 4.3.
KEY = "consumer.assignment.interval.ms"
_TIMEOUT_S = 30.0
_TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT})  # noqa: SLF001 - librdkafka's own codes


class AssigningAtOnce:
    """Has the brokers assign a group's partitions without delay from now on; made, it is under way.

    Brokers before 4.3 do not know the setting: they always assign at once.
    """

    def __init__(self, plan: MemberPlan) -> None:
        # Slow to import, and its users are few.
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource  # noqa: PLC0415
        from confluent_kafka.admin._resource import ResourceType  # noqa: PLC0415

        config = ConsumerConfig.from_mapping({**plan.config, "group.id": plan.group})
        self._group = plan.group
        # Kept until the answer is there: it would die with its client.
        self._admin = AdminClient(cast("dict[str, str | int | float | bool]", config.cluster_config()))
        entry = ConfigEntry(KEY, "0", incremental_operation=AlterConfigOpType.SET)
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
            _judge(failed, self._group)


def _judge(failed: KafkaException | TimeoutError, group: str) -> None:
    error = failed.args[0] if failed.args else None
    words = error.str() if isinstance(error, KafkaError) else f"no answer within {_TIMEOUT_S:.0f} s"
    if not isinstance(error, KafkaError) or error.code() in _TIMED_OUT:
        raise TransportError(f"the configuration of group {group!r} is not altered: {words}") from failed
    if error.code() != KafkaError.INVALID_CONFIG:
        raise ConfigurationError(
            "assign_at_once",
            True,
            f"the brokers do not let {KEY} of group {group!r} be set: {words}; grant ALTER_CONFIGS on the group, or "
            "leave it out",
        ) from failed
    _log.info("Group %s: the brokers do not take %s: %s", group, KEY, words)
