"""What the brokers say of themselves, of topics, rights and the group, and what that means for members about to come.

Nothing is changed. Rights are asked for with requests that a broker refuses before it does anything else: the right to
READ a group by the removal of a member that does not exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import cast

from confluent_kafka import KafkaException, TopicCollection

from consumer_membership.admin import MemberDescription, MemberIdentity
from consumer_membership.admin.inquiry import GROUP_FORBIDDEN, NOT_FOUND, NOT_OFFERED, OTHER_KIND, described
from consumer_membership.admin.progress import TOPIC_FORBIDDEN
from consumer_membership.config import ConnectionSettings, ConsumerConfig, TlsSettings
from consumer_membership.errors import MembershipError, TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster, GroupClient, GroupDescription
from consumer_membership.spark.brokers import asked
from consumer_membership.spark.diagnosis.catalogue import finding
from consumer_membership.spark.diagnosis.examination import Endpoint
from consumer_membership.spark.diagnosis.findings import Finding
from consumer_membership.types import BrokerAddress, GroupProtocol

#: Who is "removed" to see whether that would be allowed: no member has such an id.
_NOBODY = MemberIdentity(member_id="consumer-membership-check-is-no-member")
_NO_GROUP = "consumer-membership-check"
#: Whom brokers take a client for that does not say who it is.
_ANONYMOUS = "User:ANONYMOUS"
#: What a member needs, of its topics and of its group.
_NEEDED = ("READ", "DESCRIBE")
_MOST_NAMED = 5
#: What librdkafka's words about a topic mean; whatever else it says is "topic not described".
_TOPIC_ERRORS = {
    "UNKNOWN_TOPIC_OR_PART": "topic missing",
    "TOPIC_AUTHORIZATION_FAILED": "right missing",
    "_TIMED_OUT": "topic not known",
    "_TIMED_OUT_QUEUE": "topic not known",
    "_TRANSPORT": "topic not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic: its partitions, and what may be done with it (None: the brokers do not say); or Kafka's error."""

    name: str
    partitions: int = 0
    operations: frozenset[str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The group: whether it may be read (None: not known), and what its coordinator says of it, or why it does not."""

    name: str
    may_read: bool | None
    told: GroupDescription | BrokerRefusal | TransportError

    @property
    def refusal(self) -> str:
        """Kafka's name of the coordinator's refusal; empty where it did not refuse."""
        return self.told.error.name if isinstance(self.told, BrokerRefusal) else ""

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        """Its members, as far as they may be seen."""
        return self.told.members if isinstance(self.told, GroupDescription) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The brokers at `bootstrap`, or why none answered.

    `wanted` are the protocols that the configuration fits; `takes_consumer_protocol` says whether the brokers have
    KIP-848, None where that is not known. `principal` is who the brokers take these members for, as far as that can be
    told here, and `files` are the paths that the configuration names, by their keys.
    """

    bootstrap: tuple[Endpoint, ...]
    wanted: tuple[GroupProtocol, ...]
    failure: str = ""
    brokers: tuple[BrokerAddress, ...] = ()
    takes_consumer_protocol: bool | None = None
    topics: tuple[TopicFacts, ...] = ()
    group: GroupFacts | None = None
    principal: str = _ANONYMOUS
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def cluster_facts(
    config: Mapping[str, object], topics: Sequence[str], group: str | None, timeout_s: float
) -> ClusterFacts:
    """What these brokers say, within about this time. Raises ConfigurationError: the configuration cannot work."""
    checked = ConsumerConfig.from_mapping({**config, "group.id": group or _NO_GROUP}).with_servers()
    settings = checked.connection_settings()
    known = ClusterFacts(
        bootstrap=settings.bootstrap_servers,
        wanted=checked.protocol_settings().protocols,
        principal=_principal(settings),
        files=_files(settings),
    )

    async def ask(cluster: Cluster) -> ClusterFacts:
        questions = _Questions(GroupClient(cluster), timeout_s)
        brokers = await cluster.brokers(timeout_s)
        return replace(
            known,
            brokers=brokers,
            takes_consumer_protocol=await questions.takes_consumer_protocol(brokers[0], group or _NO_GROUP),
            topics=await asyncio.to_thread(_topic_facts, checked.cluster_config(), brokers, topics, questions.left_s()),
            group=None if group is None else await questions.group(group, brokers[0]),
        )

    try:
        cluster = Cluster(settings)
        return asked(cluster, ask(cluster))
    except MembershipError as error:
        return replace(known, failure=str(error))


def _principal(settings: ConnectionSettings) -> str:
    """Kafka's own rules; brokers may have others (`principal.builder.class`, `ssl.principal.mapping.rules`)."""
    if settings.sasl is not None:
        return f"User:{settings.sasl.username or '<whom the token is of>'}"
    if settings.tls is not None and (settings.tls.certificate_location or settings.tls.certificate_pem):
        return "User:<the subject of ssl.certificate.location>"
    return _ANONYMOUS


def _files(settings: ConnectionSettings) -> Mapping[str, str]:
    """The paths that are read wherever a connection is made, by their keys."""
    tls = settings.tls or TlsSettings()
    paths = {
        "ssl.ca.location": tls.ca_location,
        "ssl.crl.location": tls.crl_location,
        "ssl.certificate.location": tls.certificate_location,
        "ssl.key.location": tls.key_location,
    }
    return {key: path for key, path in paths.items() if path is not None}


class _Questions:
    """What is asked of the group's protocol, all of it within `timeout_s`."""

    def __init__(self, client: GroupClient, timeout_s: float) -> None:
        self._client = client
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s

    def left_s(self) -> float:
        return max(0.0, self._deadline - self._clock())

    async def takes_consumer_protocol(self, broker: BrokerAddress, group: str) -> bool | None:
        # Any broker tells: it refuses the protocol before it looks at whose group that is.
        return await _is_not_refused(
            self._client.describe_consumer_group(broker, group, self.left_s()), with_error=NOT_OFFERED
        )

    async def group(self, name: str, broker: BrokerAddress) -> GroupFacts:
        # Any broker tells: it looks at the right first, and then whether it is the group's coordinator.
        removed = self._client.remove_members(broker, name, (_NOBODY,), "a check of rights", self.left_s())
        may_read = await _is_not_refused(removed, with_error=GROUP_FORBIDDEN)
        told: GroupDescription | BrokerRefusal | TransportError
        try:
            told = await self._client.cluster.with_coordinator(
                name, "the group", self.left_s(), lambda at, _: described(self._client, at, name, self.left_s)
            )
        except (BrokerRefusal, TransportError) as error:
            told = error
        return GroupFacts(name=name, may_read=may_read, told=told)


async def _is_not_refused(asking: Awaitable[object], *, with_error: str) -> bool | None:
    """Whether a broker answers otherwise than with this error; None: it does not answer."""
    try:
        await asking
    except BrokerRefusal as refusal:
        return refusal.error.name != with_error
    except TransportError:
        return None
    return True


def _topic_facts(
    cluster_config: Mapping[str, object], brokers: Sequence[BrokerAddress], topics: Sequence[str], timeout_s: float
) -> tuple[TopicFacts, ...]:
    """What librdkafka's admin client hears of each topic: no coordinator is needed for it, and none is asked."""
    from confluent_kafka.admin import AdminClient  # its import takes time, and tasks do not need it

    names = [name for name in dict.fromkeys(topics) if name and not name.startswith("^")]
    if not names:
        return ()
    servers = _shown([(one.host, one.port) for one in brokers])
    # Whatever it has to say about connections was said by the client that found these brokers.
    config = {**cluster_config, "bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(cast("dict[str, str | int | float | bool]", config))
    answers = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=max(1.0, timeout_s)
    )
    found = []
    for name, answer in answers.items():
        try:
            topic = answer.result()
        except KafkaException as refused:
            found.append(TopicFacts(name=name, error=str(refused.args[0].name())))
        else:
            allowed = frozenset(operation.name for operation in topic.authorized_operations or ())
            found.append(TopicFacts(name=name, partitions=len(topic.partitions), operations=allowed or None))
    return tuple(found)


def _shown(endpoints: Sequence[Endpoint]) -> str:
    """As `bootstrap.servers` has them."""
    return ",".join(f"{host}:{port}" for host, port in endpoints)


# ---- what it means ---------------------------------------------------------------------------------------------------


def cluster_findings(facts: ClusterFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """One finding for everything that was looked at; `pipeline` is the name before the members' instance ids."""
    said = partial(finding, c=facts, servers=_shown(facts.bootstrap))
    if facts.failure:
        yield said("brokers away")
        return
    yield said("brokers", number=len(facts.brokers), listed=", ".join(map(str, facts.brokers)))
    yield said(_protocol(facts))
    for topic in facts.topics:
        missing = [one for one in _NEEDED if topic.operations is not None and one not in topic.operations]
        name = _TOPIC_ERRORS.get(topic.error, "topic not described") if topic.error else "topic"
        not_allowed = f"{' and '.join(missing)} not allowed" if missing else "DESCRIBE not allowed, and READ not known"
        name = "right missing" if missing else name
        yield said(name, t=topic, kind="topic", name=topic.name, said=not_allowed)
    partitions = sum(topic.partitions for topic in facts.topics)
    if instances is not None and partitions and not any(topic.error for topic in facts.topics):
        idle = instances - partitions
        yield said("idle instances" if idle > 0 else "instances", instances=instances, partitions=partitions, idle=idle)
    if facts.group is not None:
        yield from _group(facts.group, said)
        yield from _holders(facts.group, instances, pipeline)


def _protocol(facts: ClusterFacts) -> str:
    if facts.takes_consumer_protocol is None:
        return "protocol not known"
    if GroupProtocol.CONSUMER not in facts.wanted:
        return "classic"
    if facts.takes_consumer_protocol:
        return "consumer"
    return "no consumer" if facts.wanted == (GroupProtocol.CONSUMER,) else "classic instead"


def _group(group: GroupFacts, said: Callable[..., Finding]) -> Iterator[Finding]:
    refused = {"READ": group.may_read is False, "DESCRIBE": group.refusal == GROUP_FORBIDDEN}
    if any(refused.values()):
        not_allowed = " and ".join(one for one in _NEEDED if refused[one])
        yield said("right missing", kind="group", name=group.name, said=f"{not_allowed} not allowed")
    elif isinstance(group.told, GroupDescription):
        yield said("group", g=group, members=len(group.members))
    elif isinstance(group.told, BrokerRefusal) and group.refusal == NOT_FOUND:
        yield said("foreign group" if OTHER_KIND in group.told.error.message else "new group", g=group)
    elif group.refusal == TOPIC_FORBIDDEN:
        yield said("group not described", g=group, error="its members subscribe to topics that may not be described")
    else:
        yield said("group not described", g=group, error=group.told)


def _holders(group: GroupFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """Living members that hold the instance ids of this pipeline; one that is away left them for whoever comes."""
    ours = re.compile(rf"{re.escape(pipeline)}-(\d+)")
    numbered = [(int(found[1]), one) for one in group.members if (found := ours.fullmatch(one.instance_id or ""))]
    held = [(n, one) for n, one in numbered if not one.is_away and (instances is None or n < instances)]
    if held:
        first = [one for _, one in sorted(held, key=lambda each: each[0])][:_MOST_NAMED]
        listed = ", ".join(f"{one.instance_id} by client {one.client_id} on {one.host}" for one in first)
        more = f", and {len(held) - len(first)} more" if len(held) > len(first) else ""
        yield finding("copy at work", pipeline=pipeline, held=len(held), listed=listed + more)
