"""The checks of the brokers: protocol, topics, ACLs and the group, and the findings for members that are to join.

The checks change nothing. READ on a group is tested with a request that has no effect, the removal of a member that
does not exist: the broker checks the ACL first.
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
from consumer_membership.config import ConnectionSettings, ConsumerConfig, SaslMechanism, TlsSettings
from consumer_membership.config.authorities import PROBE
from consumer_membership.config.oidc_keys import oidc_settings, uses_oidc
from consumer_membership.errors import MembershipError, TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster, GroupClient, GroupDescription
from consumer_membership.spark.brokers import result_of
from consumer_membership.spark.diagnosis.catalogue import finding
from consumer_membership.spark.diagnosis.examination import Endpoint
from consumer_membership.spark.diagnosis.findings import Finding
from consumer_membership.types import BrokerAddress, GroupProtocol

#: A member id that no member has, for the removal that tests an ACL.
_NO_MEMBER = MemberIdentity(member_id="consumer-membership-check-is-no-member")
_NO_GROUP = "consumer-membership-check"
#: The principal of a client that does not authenticate.
_ANONYMOUS = "User:ANONYMOUS"
#: The operations that a member needs on its topics and its group.
_NEEDED = ("READ", "DESCRIBE")
_MOST_NAMED = 5
#: The finding for each of librdkafka's errors about a topic; for other errors it is "topic not described".
_TOPIC_ERRORS = {
    "UNKNOWN_TOPIC_OR_PART": "topic missing",
    "TOPIC_AUTHORIZATION_FAILED": "right missing",
    "_TIMED_OUT": "topic not known",
    "_TIMED_OUT_QUEUE": "topic not known",
    "_TRANSPORT": "topic not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic: its number of partitions and the authorized operations (None: unknown), or the name of an error."""

    name: str
    partitions: int = 0
    operations: frozenset[str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The group: whether READ is allowed (None: unknown), and the coordinator's description of it, or an error."""

    name: str
    may_read: bool | None
    answer: GroupDescription | BrokerRefusal | TransportError

    @property
    def refusal(self) -> str:
        """The name of the coordinator's error; empty if there was none."""
        return self.answer.error.name if isinstance(self.answer, BrokerRefusal) else ""

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        """The members, if the group could be described."""
        return self.answer.members if isinstance(self.answer, GroupDescription) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The brokers at `bootstrap`, or the reason why none responded (`failure`).

    `wanted` are the protocols that the configuration allows. `takes_consumer_protocol`: whether the brokers support
    KIP-848, None if unknown. `principal` is the principal of the members, as far as this client can know it. `files`
    are the paths in the configuration, by key.
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
    """Collect the facts about the brokers, within about `timeout_s`.

    Raises:
        ConfigurationError: the configuration cannot work.
    """
    checked = ConsumerConfig.from_mapping({**config, "group.id": group or _NO_GROUP}).with_servers()
    settings = checked.connection_settings()
    known = ClusterFacts(
        bootstrap=settings.bootstrap_servers,
        wanted=checked.protocol_settings().protocols,
        principal=member_principal(settings),
        files=files_of_connections(settings, config),
    )

    async def request(cluster: Cluster) -> ClusterFacts:
        requests = _Requests(GroupClient(cluster), timeout_s)
        brokers = await cluster.brokers(timeout_s)
        return replace(
            known,
            brokers=brokers,
            takes_consumer_protocol=await requests.takes_consumer_protocol(brokers[0], group or _NO_GROUP),
            topics=await asyncio.to_thread(_topic_facts, checked.cluster_config(), brokers, topics, requests.left_s()),
            group=None if group is None else await requests.group(group, brokers[0]),
        )

    try:
        cluster = Cluster(settings)
        return result_of(cluster, request(cluster))
    except MembershipError as error:
        return replace(known, failure=str(error))


def member_principal(settings: ConnectionSettings) -> str:
    """Return the principal by Kafka's default rules, which `principal.builder.class` and others may replace."""
    tls, sasl = settings.tls or TlsSettings(), settings.sasl
    if sasl is not None and sasl.kerberos is not None:
        # Kafka's default rules remove the host and the realm.
        known = re.split("[/@]", sasl.kerberos.principal or "")[0]
        return f"User:{known or '<the principal of the ticket cache>'}"
    if sasl is not None:
        return f"User:{sasl.username or '<the subject of the token>'}"
    if tls.keystore_location is not None:
        return "User:<the subject of the certificate in ssl.keystore.location>"
    if tls.certificate_location or tls.certificate_pem:
        return "User:<the subject of ssl.certificate.location>"
    return _ANONYMOUS


def files_of_connections(settings: ConnectionSettings, config: Mapping[str, object]) -> Mapping[str, str]:
    """Return the paths that each process with a connection reads, by key."""
    tls, sasl = settings.tls or TlsSettings(), settings.sasl
    paths = {
        "ssl.ca.location": tls.ca_location,
        "ssl.crl.location": tls.crl_location,
        "ssl.certificate.location": tls.certificate_location,
        "ssl.key.location": tls.key_location,
        "ssl.keystore.location": tls.keystore_location,
    }
    if sasl is not None and sasl.kerberos is not None:
        paths["sasl.kerberos.keytab"] = sasl.kerberos.keytab
    if sasl is not None and sasl.mechanism is SaslMechanism.OAUTHBEARER and uses_oidc(config):
        oidc = oidc_settings(config)
        paths |= {
            "sasl.oauthbearer.assertion.file": oidc.assertion.file,
            "sasl.oauthbearer.assertion.private.key.file": oidc.assertion.key_file,
            "sasl.oauthbearer.assertion.jwt.template.file": oidc.assertion.template_file,
            "https.ca.location": oidc.ca_location,
        }
    return {key: path for key, path in paths.items() if path not in (None, PROBE)}


class _Requests:
    """The requests about protocol and group, all within `timeout_s`."""

    def __init__(self, client: GroupClient, timeout_s: float) -> None:
        self._client = client
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s

    def left_s(self) -> float:
        return max(0.0, self._deadline - self._clock())

    async def takes_consumer_protocol(self, broker: BrokerAddress, group: str) -> bool | None:
        # Any broker can answer: it checks the protocol before it checks whether it is the group's coordinator.
        return await _is_not_refused(
            self._client.describe_consumer_group(broker, group, self.left_s()), with_error=NOT_OFFERED
        )

    async def group(self, name: str, broker: BrokerAddress) -> GroupFacts:
        # Any broker can answer: it checks the ACL before it checks whether it is the group's coordinator.
        removed = self._client.remove_members(broker, name, (_NO_MEMBER,), "a check of ACLs", self.left_s())
        may_read = await _is_not_refused(removed, with_error=GROUP_FORBIDDEN)
        answer: GroupDescription | BrokerRefusal | TransportError
        try:
            answer = await self._client.cluster.with_coordinator(
                name, "the group", self.left_s(), lambda at, _: described(self._client, at, name, self.left_s)
            )
        except (BrokerRefusal, TransportError) as error:
            answer = error
        return GroupFacts(name=name, may_read=may_read, answer=answer)


async def _is_not_refused(request: Awaitable[object], *, with_error: str) -> bool | None:
    """Return whether a broker responds with anything but this error; None if it does not respond."""
    try:
        await request
    except BrokerRefusal as refusal:
        return refusal.error.name != with_error
    except TransportError:
        return None
    return True


def _topic_facts(
    cluster_config: Mapping[str, object], brokers: Sequence[BrokerAddress], topics: Sequence[str], timeout_s: float
) -> tuple[TopicFacts, ...]:
    """Return librdkafka's description of each topic, which needs no coordinator."""
    from confluent_kafka.admin import AdminClient  # slow to import, and tasks do not need it

    names = [name for name in dict.fromkeys(topics) if name and not name.startswith("^")]
    if not names:
        return ()
    servers = _shown([(one.host, one.port) for one in brokers])
    # No log lines: the client that found these brokers has reported connection errors already.
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
    """Return the addresses in the form of `bootstrap.servers`."""
    return ",".join(f"{host}:{port}" for host, port in endpoints)


# ---- findings --------------------------------------------------------------------------------------------------------


def cluster_findings(facts: ClusterFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """Yield one finding for each check; `pipeline` is the first part of the members' instance ids."""
    found = partial(finding, c=facts, servers=_shown(facts.bootstrap))
    if facts.failure:
        yield found("brokers away")
        return
    yield found("brokers", number=len(facts.brokers), listed=", ".join(map(str, facts.brokers)))
    yield found(_protocol(facts))
    for topic in facts.topics:
        missing = [one for one in _NEEDED if topic.operations is not None and one not in topic.operations]
        name = _TOPIC_ERRORS.get(topic.error, "topic not described") if topic.error else "topic"
        not_allowed = f"{' and '.join(missing)} not allowed" if missing else "DESCRIBE not allowed, and READ not known"
        name = "right missing" if missing else name
        yield found(name, t=topic, kind="topic", name=topic.name, error=not_allowed)
    partitions = sum(topic.partitions for topic in facts.topics)
    if instances is not None and partitions and not any(topic.error for topic in facts.topics):
        idle = instances - partitions
        name = "idle instances" if idle > 0 else "instances"
        yield found(name, instances=instances, partitions=partitions, idle=idle)
    if facts.group is not None:
        yield from _group(facts.group, found)
        yield from _holders(facts.group, instances, pipeline)


def _protocol(facts: ClusterFacts) -> str:
    if facts.takes_consumer_protocol is None:
        return "protocol not known"
    if GroupProtocol.CONSUMER not in facts.wanted:
        return "classic"
    if facts.takes_consumer_protocol:
        return "consumer"
    return "no consumer" if facts.wanted == (GroupProtocol.CONSUMER,) else "classic instead"


def _group(group: GroupFacts, found: Callable[..., Finding]) -> Iterator[Finding]:
    refused = {"READ": group.may_read is False, "DESCRIBE": group.refusal == GROUP_FORBIDDEN}
    if any(refused.values()):
        not_allowed = " and ".join(one for one in _NEEDED if refused[one])
        yield found("right missing", kind="group", name=group.name, error=f"{not_allowed} not allowed")
    elif isinstance(group.answer, GroupDescription):
        yield found("group", g=group, members=len(group.members))
    elif isinstance(group.answer, BrokerRefusal) and group.refusal == NOT_FOUND:
        yield found("foreign group" if OTHER_KIND in group.answer.error.message else "new group", g=group)
    elif group.refusal == TOPIC_FORBIDDEN:
        yield found("group not described", g=group, error="DESCRIBE is not allowed on topics of its members")
    else:
        yield found("group not described", g=group, error=group.answer)


def _holders(group: GroupFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """Yield a finding if active members hold instance ids of this pipeline; the id of a member that is away is free."""
    ours = re.compile(rf"{re.escape(pipeline)}-(\d+)")
    holders = [(int(found[1]), one) for one in group.members if (found := ours.fullmatch(one.instance_id or ""))]
    held = [(n, one) for n, one in holders if not one.is_away and (instances is None or n < instances)]
    if held:
        first = [one for _, one in sorted(held, key=lambda each: each[0])][:_MOST_NAMED]
        listed = ", ".join(f"{one.instance_id} by client {one.client_id} on {one.host}" for one in first)
        more = f", and {len(held) - len(first)} more" if len(held) > len(first) else ""
        yield finding("copy at work", pipeline=pipeline, held=len(held), listed=listed + more)
