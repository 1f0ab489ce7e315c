"""What the brokers say: whether they can be reached, which protocol they take, topics, rights, and who is in the group.

Nothing is changed. Rights are asked for with requests that a broker refuses before it does anything else: the right to
READ a group by the removal of a member that does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar, cast

from confluent_kafka import KafkaException, TopicCollection

from consumer_membership.admin import MemberDescription, MemberIdentity
from consumer_membership.admin.inquiry import GROUP_FORBIDDEN, NOT_FOUND, NOT_OFFERED
from consumer_membership.admin.progress import TOPIC_FORBIDDEN
from consumer_membership.config import ConnectionSettings, ConsumerConfig, TlsSettings
from consumer_membership.errors import ConfigurationError, MembershipError, TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster, GroupClient, GroupDescription
from consumer_membership.spark.diagnosis.examination import Endpoint
from consumer_membership.types import BrokerAddress, GroupProtocol

AnswerT = TypeVar("AnswerT")

#: Who is "removed" to see whether that would be allowed: no member has such an id.
_NOBODY = MemberIdentity(member_id="consumer-membership-check-is-no-member")
_NO_GROUP = "consumer-membership-check"
#: Whom brokers take a client for that does not say who it is.
ANONYMOUS = "User:ANONYMOUS"
#: What a broker says of a group that is there, and of another kind than it was asked for.
_OTHER_KIND = "is not a"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic: its partitions, and what may be done with it (None: the brokers do not say); or Kafka's error."""

    name: str
    partitions: int = 0
    operations: frozenset[str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The group: what may be done with it (None: not known), and its members as far as they may be seen.

    `kind` is None for a group that does not exist yet; `is_foreign`: it is no group of consumers. `error` says why it
    could not be described, for a reason other than a right.
    """

    name: str
    may_describe: bool | None = None
    may_read: bool | None = None
    kind: GroupProtocol | None = None
    is_foreign: bool = False
    members: tuple[MemberDescription, ...] = ()
    error: str = ""


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
    principal: str = ANONYMOUS
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def shown(endpoints: Sequence[Endpoint]) -> str:
    """As `bootstrap.servers` has them."""
    return ",".join(f"{host}:{port}" for host, port in endpoints)


def _principal(settings: ConnectionSettings) -> str:
    """Kafka's own rules; brokers may have others (`principal.builder.class`, `ssl.principal.mapping.rules`)."""
    if settings.sasl is not None:
        return f"User:{settings.sasl.username or '<whom the token is of>'}"
    if settings.tls is not None and (settings.tls.certificate_location or settings.tls.certificate_pem):
        return "User:<the subject of ssl.certificate.location>"
    return ANONYMOUS


def cluster_facts(
    config: Mapping[str, object], topics: Sequence[str], group: str | None, timeout_s: float
) -> ClusterFacts:
    """What these brokers say, within about this time.

    Raises:
        ConfigurationError: the configuration cannot work.
    """
    checked = ConsumerConfig.from_mapping({**config, "group.id": group or _NO_GROUP}).with_servers()
    settings = checked.connection_settings()
    bootstrap = settings.bootstrap_servers
    wanted = checked.protocol_settings().protocols

    async def ask() -> ClusterFacts:
        try:
            cluster = Cluster(settings)
        except ConfigurationError as refused:
            return ClusterFacts(bootstrap=bootstrap, wanted=wanted, failure=str(refused))
        try:
            return await _Questions(GroupClient(cluster), bootstrap, wanted, checked.cluster_config(), timeout_s).ask(
                topics, group
            )
        except MembershipError as error:
            return ClusterFacts(bootstrap=bootstrap, wanted=wanted, failure=str(error))
        finally:
            await cluster.close()

    # In a thread of its own: notebooks have an asyncio loop in theirs.
    with ThreadPoolExecutor(1, "consumer-membership-check") as thread:
        found = thread.submit(lambda: asyncio.run(ask())).result()
    return replace(found, principal=_principal(settings), files=_files(settings))


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
    """What is asked, in its order, each within `timeout_s` at most."""

    def __init__(
        self,
        client: GroupClient,
        bootstrap: tuple[Endpoint, ...],
        wanted: tuple[GroupProtocol, ...],
        cluster_config: Mapping[str, object],
        timeout_s: float,
    ) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._cluster_config = cluster_config
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s

    async def ask(self, topics: Sequence[str], group: str | None) -> ClusterFacts:
        brokers = await self._client.cluster.brokers(self._left_s())
        return ClusterFacts(
            bootstrap=self._bootstrap,
            wanted=self._wanted,
            brokers=brokers,
            takes_consumer_protocol=await self._takes_consumer_protocol(brokers[0], group or _NO_GROUP),
            topics=await asyncio.to_thread(_topic_facts, self._cluster_config, brokers, topics, self._left_s()),
            group=None if group is None else await self._group(group, brokers[0]),
        )

    async def _takes_consumer_protocol(self, broker: BrokerAddress, group: str) -> bool | None:
        """Any broker tells: it refuses the protocol before it looks at whose group that is."""
        try:
            refusal = await _refusal(self._client.describe_consumer_group(broker, group, self._left_s()))
        except TransportError:
            return None
        return refusal != NOT_OFFERED

    async def _group(self, name: str, broker: BrokerAddress) -> GroupFacts:
        may_read = await self._may_read(name, broker)
        try:
            described = await self._persist(name, lambda at: self._described(at, name))
        except BrokerRefusal as refusal:
            return _undescribed(name, may_read, refusal)
        except TransportError as error:
            return GroupFacts(name=name, may_read=may_read, error=str(error))
        return GroupFacts(
            name=name, may_describe=True, may_read=may_read, kind=described.protocol, members=described.members
        )

    async def _may_read(self, name: str, broker: BrokerAddress) -> bool | None:
        """Any broker tells: it looks at the right first, and then whether it is the group's coordinator."""
        try:
            refusal = await _refusal(
                self._client.remove_members(broker, name, (_NOBODY,), "a check of rights", self._left_s())
            )
        except TransportError:
            return None
        return refusal != GROUP_FORBIDDEN

    async def _described(self, coordinator: BrokerAddress, name: str) -> GroupDescription:
        try:
            return await self._client.describe_consumer_group(coordinator, name, self._left_s())
        except BrokerRefusal as refusal:
            # Not there, or a classic group; or a broker without the consumer protocol.
            if refusal.error.name not in (NOT_FOUND, NOT_OFFERED):
                raise
            return await self._client.describe_classic_group(coordinator, name, self._left_s())

    async def _persist(self, name: str, ask: Callable[[BrokerAddress], Awaitable[AnswerT]]) -> AnswerT:
        return await self._client.cluster.with_coordinator(name, "the group", self._left_s(), lambda at, _: ask(at))

    def _left_s(self) -> float:
        return max(0.0, self._deadline - self._clock())


async def _refusal(asking: Awaitable[object]) -> str:
    """The name of the error with which a broker refuses this; empty where it does not."""
    try:
        await asking
    except BrokerRefusal as refusal:
        return refusal.error.name
    return ""


def _undescribed(name: str, may_read: bool | None, refusal: BrokerRefusal) -> GroupFacts:  # noqa: FBT001
    match refusal.error.name:
        case str() as said if said == GROUP_FORBIDDEN:
            return GroupFacts(name=name, may_describe=False, may_read=may_read)
        case str() as said if said == NOT_FOUND:
            is_foreign = _OTHER_KIND in refusal.error.message
            return GroupFacts(name=name, may_describe=True, may_read=may_read, is_foreign=is_foreign)
        case str() as said if said == TOPIC_FORBIDDEN:
            hidden = "its members subscribe to topics that may not be described"
            return GroupFacts(name=name, may_describe=True, may_read=may_read, error=hidden)
        case _:
            return GroupFacts(name=name, may_read=may_read, error=str(refusal.error))


def _topic_facts(
    cluster_config: Mapping[str, object], brokers: Sequence[BrokerAddress], topics: Sequence[str], timeout_s: float
) -> tuple[TopicFacts, ...]:
    """What librdkafka's admin client hears of each topic: no coordinator is needed for it, and none is asked."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - its import takes time, and tasks do not need it

    names = [name for name in dict.fromkeys(topics) if name and not name.startswith("^")]
    if not names:
        return ()
    servers = shown([(one.host, one.port) for one in brokers])
    # Whatever it has to say about connections was said by the client that found these brokers.
    config = {**cluster_config, "bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(cast("dict[str, str | int | float | bool]", config))
    asked = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=max(1.0, timeout_s)
    )
    found = []
    for name, answer in asked.items():
        try:
            topic = answer.result()
        except KafkaException as refused:
            found.append(TopicFacts(name=name, error=str(refused.args[0].name())))
        else:
            allowed = frozenset(operation.name for operation in topic.authorized_operations or ())
            found.append(TopicFacts(name=name, partitions=len(topic.partitions), operations=allowed or None))
    return tuple(found)
