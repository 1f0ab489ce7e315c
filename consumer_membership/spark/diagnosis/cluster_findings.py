"""What the brokers' answers mean for the members that are about to come."""

from __future__ import annotations

import re
from collections.abc import Iterator

from consumer_membership.admin import MemberDescription
from consumer_membership.spark.diagnosis.cluster import ClusterFacts, GroupFacts, TopicFacts, shown
from consumer_membership.spark.diagnosis.findings import Finding, error, ok, warning
from consumer_membership.types import GroupProtocol

_CONSUMER = GroupProtocol.CONSUMER
_UNKNOWN_TOPIC, _TOPIC_FORBIDDEN = "UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED"
#: librdkafka's own words for an answer that did not come.
_NO_ANSWER = frozenset({"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT"})
#: What a member needs, of its topics and of its group.
_NEEDED = ("READ", "DESCRIBE")
_MOST_NAMED = 5


def cluster_findings(facts: ClusterFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """One finding for everything that was looked at; `pipeline` is the name before the members' instance ids."""
    if facts.failure:
        yield _unreachable(facts)
        return
    listed = ", ".join(map(str, facts.brokers))
    yield ok("brokers", f"{len(facts.brokers)} by way of {shown(facts.bootstrap)}: {listed}")
    yield _protocol(facts)
    for topic in facts.topics:
        yield _topic(facts, topic)
    yield from _partitions(facts.topics, instances)
    if facts.group is not None:
        yield from _group(facts, facts.group)
        yield from _present(facts.group, instances, pipeline)


def _unreachable(facts: ClusterFacts) -> Finding:
    return error(
        "brokers",
        f"none at {shown(facts.bootstrap)} answered ({facts.failure})",
        "nothing can be consumed, and nothing else about Kafka could be looked at",
        "see whether the address is right (bootstrap.servers), and whether the brokers run and advertise addresses "
        "that can be reached from here (advertised.listeners)",
    )


def _protocol(facts: ClusterFacts) -> Finding:
    subject = "group.protocol"
    match facts.takes_consumer_protocol:
        case None:
            return warning(subject, "not known", "the broker that was asked did not answer in time", "check again")
        case True if _CONSUMER in facts.wanted:
            return ok(subject, "consumer: the brokers offer KIP-848")
        case False if facts.wanted == (_CONSUMER,):
            return error(
                subject,
                "consumer, and the brokers do not offer KIP-848",
                "no member could join",
                f"leave group.protocol out or set it to auto or classic; {_how_to_offer()}",
            )
        case False if _CONSUMER in facts.wanted:
            return warning(
                subject,
                "classic: the brokers do not offer KIP-848",
                "members speak the classic protocol: while one joins or leaves the others wait, and a lost one's "
                "partitions wait for its replacement or for the end of its session",
                f"{_how_to_offer()}; or set group.protocol to classic and expect this",
            )
        case _:
            return ok(subject, "classic, as the configuration asks for")


def _how_to_offer() -> str:
    return (
        "brokers of Apache Kafka 4.0 or later offer it with group.version=1 (kafka-features.sh upgrade --feature "
        "group.version=1) and consumer among group.coordinator.rebalance.protocols"
    )


def _topic(facts: ClusterFacts, topic: TopicFacts) -> Finding:
    subject = f"topic {topic.name}"
    if topic.error == _UNKNOWN_TOPIC:
        return error(
            subject,
            "does not exist",
            "there is nothing to consume; or it may not be seen",
            f"check the spelling, or create it: kafka-topics.sh --bootstrap-server {shown(facts.bootstrap)} --create "
            f"--topic {topic.name}",
        )
    if topic.error == _TOPIC_FORBIDDEN:
        return _missing(facts, subject, f"--topic {topic.name}", "DESCRIBE not allowed, and READ not known")
    if topic.error in _NO_ANSWER:
        return warning(subject, f"not known ({topic.error})", "the brokers did not answer in time", "check again")
    if topic.error:
        return error(subject, topic.error, "the brokers do not describe it", "look at the brokers' log")
    missing = tuple(one for one in _NEEDED if topic.operations is not None and one not in topic.operations)
    if missing:
        return _missing(facts, subject, f"--topic {topic.name}", _not_allowed(missing))
    return ok(subject, f"{topic.partitions} partitions")


def _not_allowed(operations: tuple[str, ...]) -> str:
    return f"{' and '.join(operations)} not allowed"


def _missing(facts: ClusterFacts, subject: str, resource: str, found: str) -> Finding:
    wanted = " ".join(f"--operation {operation}" for operation in _NEEDED)
    return error(
        subject,
        found,
        f"each member needs the ACL operations {' and '.join(_NEEDED)} on it",
        f"kafka-acls.sh --bootstrap-server {shown(facts.bootstrap)} --add --allow-principal {facts.principal} {wanted} "
        f"{resource}; a rule that denies it has to go",
    )


def _partitions(topics: tuple[TopicFacts, ...], instances: int | None) -> Iterator[Finding]:
    partitions = sum(topic.partitions for topic in topics)
    if instances is None or not partitions or any(topic.error for topic in topics):
        return
    found = f"{instances} for {partitions} partitions"
    if instances > partitions:
        yield warning(
            "instances",
            found,
            f"a partition has one owner: {instances - partitions} of them idle, each in a slot of its own",
            f"ask for {partitions} instances at most, or give the topics more partitions",
        )
    else:
        yield ok("instances", found)


def _group(facts: ClusterFacts, group: GroupFacts) -> Iterator[Finding]:
    subject = f"group {group.name}"
    rights = {"READ": group.may_read, "DESCRIBE": group.may_describe}
    missing = tuple(one for one in _NEEDED if rights[one] is False)
    if missing:
        yield _missing(facts, subject, f"--group {group.name}", _not_allowed(missing))
    elif group.is_foreign:
        yield error(
            subject,
            "is no group of consumers",
            "a share group, a streams group or another kind of group has this name",
            "give this pipeline a group of its own",
        )
    elif group.error:
        yield warning(
            subject, f"not described: {group.error}", "who is in it could not be looked at", "see to that, check again"
        )
    elif group.kind is None:
        yield ok(subject, "does not exist yet; the first member makes it")
    else:
        yield ok(subject, f"{group.kind.value} protocol, {len(group.members)} members")


def _present(group: GroupFacts, instances: int | None, pipeline: str) -> Iterator[Finding]:
    """Living members that hold the instance ids of this pipeline; one that is away left them for whoever comes."""
    holders = [one for one in group.members if not one.is_away and _is_ours(one, instances, pipeline)]
    if holders:
        shown = sorted(holders, key=_number)[:_MOST_NAMED]
        listed = ", ".join(f"{one.instance_id} by client {one.client_id} on {one.host}" for one in shown)
        more = f", and {len(holders) - len(shown)} more" if len(holders) > len(shown) else ""
        yield warning(
            f"pipeline {pipeline}",
            f"{len(holders)} of its instance ids are held: {listed}{more}",
            "a copy of this pipeline is running, or was killed a moment ago: starting another one takes its members "
            "over",
            "stop the other one first, or give this one another pipeline name",
        )


def _is_ours(member: MemberDescription, instances: int | None, pipeline: str) -> bool:
    found = re.fullmatch(rf"{re.escape(pipeline)}-(\d+)", member.instance_id or "")
    return found is not None and (instances is None or int(found[1]) < instances)


def _number(member: MemberDescription) -> int:
    return int((member.instance_id or "").rpartition("-")[2])
