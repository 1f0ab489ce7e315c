"""Rules about what the group stands on: rights, coordinator, topics, leaders, offsets, transactions, limits."""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.admin import OpenTransaction, Subject
from consumer_membership.observe.findings import Cause, GroupFinding, Urgency
from consumer_membership.observe.labels import clock, partition_name, partitions_named
from consumer_membership.observe.observation import Observation
from consumer_membership.types import TopicPartition

_FORBIDDEN = "_AUTHORIZATION_FAILED"
_NOT_FOUND = "GROUP_ID_NOT_FOUND"
_NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"


def missing_group(seen: Observation) -> Iterator[GroupFinding]:
    """The group may not be seen, its coordinator does not answer, or there is none of this name."""
    refusals = seen.last.refusals
    refused = refusals.get(Subject.COORDINATOR) or refusals.get(Subject.GROUP)
    if seen.group is not None or refused is None:
        return
    name = seen.last.group_id
    nowhere = "check group.id and bootstrap.servers of the members; `consumer-membership list` shows what there is"
    broker_error = (f"the broker said: {refused}",)
    if refused.name == "GROUP_AUTHORIZATION_FAILED":
        explanation = "this client may not describe the group, so nothing can be said about it"
        remedy = f"allow the ACL operation DESCRIBE on group {name}, and on the topics that it reads"
        yield _critical(Cause.GROUP_FORBIDDEN, name, explanation, broker_error, remedy)
    elif refused.name.endswith(_FORBIDDEN):
        explanation = "this client may not describe a topic that the group's members subscribe to"
        remedy = "allow the ACL operation DESCRIBE on the topics of the group"
        yield _critical(Cause.TOPIC_FORBIDDEN, name, explanation, broker_error, remedy)
    elif refused.name == _NOT_FOUND and "is not a" in refused.message:
        explanation = "it is a share group or a streams group, of which this knows nothing"
        yield _critical(
            Cause.OTHER_KIND, name, explanation, broker_error, "use kafka-share-groups.sh or kafka-streams-groups.sh"
        )
    elif refused.name == _NOT_FOUND:
        explanation = (
            "the cluster has no such group: nobody has joined it or committed for it, or its offsets have expired"
        )
        kept = seen.last.broker_settings.get("offsets.retention.minutes")
        evidence = (*broker_error, *((f"an empty group's offsets are kept for {kept} minutes",) if kept else ()))
        yield _critical(
            Cause.NO_SUCH_GROUP,
            name,
            explanation,
            evidence,
            nowhere,
        )
    else:
        explanation = "the group's coordinator does not answer, or is not ready: no member can join, beat or commit"
        remedy = (
            "see that the brokers are up, and that every partition of __consumer_offsets has a leader; a coordinator "
            "that loads a large one takes minutes"
        )
        yield _critical(Cause.COORDINATOR_UNAVAILABLE, name, explanation, broker_error, remedy)


def untold(seen: Observation) -> Iterator[GroupFinding]:
    """What a missing right or a silent broker kept back, where the group itself was told."""
    for subject, error in seen.last.refusals.items():
        if subject in (Subject.COORDINATOR, Subject.GROUP):
            continue
        explanation = f"{subject.value} could not be asked for, so what would be seen by them is not"
        yield GroupFinding(
            urgency=Urgency.WARNING if subject is Subject.COMMITTED else Urgency.NOTE,
            cause=Cause.UNTOLD,
            subject=subject.value,
            explanation=explanation,
            evidence=(str(error),),
            remedy="allow DESCRIBE on the group and its topics, and DESCRIBE_CONFIGS on the cluster and the group",
        )


def topics(seen: Observation) -> Iterator[GroupFinding]:
    """Topics that are not there, or may not be seen."""
    subscribed = {name: member for member in seen.members for name in member.topics}
    for name, topic in seen.last.topics.items():
        if topic.error is None:
            continue
        broker_error = (str(topic.error),)
        if topic.error.name.endswith(_FORBIDDEN):
            explanation = (
                "this client may not describe the topic; where the members may not either, they are assigned none of it"
            )
            remedy = f"allow READ and DESCRIBE on topic {name} to the members, and DESCRIBE to this client"
            yield _critical(Cause.TOPIC_FORBIDDEN, name, explanation, broker_error, remedy)
        elif topic.error.name == _NO_TOPIC and name in subscribed:
            explanation = "members subscribe to a topic that does not exist: nothing comes of it, and nobody says so"
            remedy = "create it, or correct its name in the members' subscription"
            yield _critical(Cause.TOPIC_MISSING, name, explanation, broker_error, remedy)
        elif topic.error.name == _NO_TOPIC:
            explanation = "the group has offsets of a topic that does not exist any more; they do no harm"
            yield GroupFinding(
                urgency=Urgency.NOTE,
                cause=Cause.TOPIC_DELETED,
                subject=name,
                explanation=explanation,
                evidence=broker_error,
                remedy=f"kafka-consumer-groups.sh --delete-offsets --topic {name} removes them",
            )
    for member in seen.members:
        if member.pattern and not member.assignment and not member.target and not member.topics:
            explanation = f"the pattern {member.pattern!r} has brought the member no partition: no topic may match it"
            remedy = "correct the pattern; where it is RE2/J's, the whole name has to match"
            yield _critical(Cause.PATTERN_WITHOUT_TOPIC, member.pattern, explanation, (), remedy)


def leaders(seen: Observation) -> Iterator[GroupFinding]:
    """Partitions that nobody leads."""
    offline = [
        TopicPartition(name, number)
        for name, topic in seen.last.topics.items()
        for number, leader in topic.leaders.items()
        if leader is None
    ]
    if offline:
        explanation = "no broker leads these partitions: nobody can read them or write to them"
        remedy = "bring a broker back that has a copy (kafka-topics.sh --describe shows which have one)"
        yield _critical(Cause.PARTITION_OFFLINE, partitions_named(offline), explanation, (), remedy)


def ranges(seen: Observation) -> Iterator[GroupFinding]:
    """Committed offsets outside of what the partition has."""
    for partition, offsets in seen.last.offsets.items():
        committed = seen.position(partition).committed
        if committed is None:
            continue
        if offsets.end is not None and committed > offsets.end:
            explanation = (
                "the committed offset lies beyond the end: the topic was made anew or truncated. The group reads "
                "nothing until its reader notices and resets, and then from where auto.offset.reset says"
            )
            evidence = (f"committed {committed:,}, end {offsets.end:,}",)
            remedy = "stop the members and set the offset (kafka-consumer-groups.sh --reset-offsets)"
            yield _critical(Cause.OFFSET_BEYOND_END, partition_name(partition), explanation, evidence, remedy)
        elif offsets.start is not None and committed < offsets.start and committed < (offsets.end or 0):
            explanation = (
                "what the group has still to read is not all there any more: retention took records before they were "
                "read. Its reader resets as auto.offset.reset says: with `latest` it skips all that is left"
            )
            evidence = (f"committed {committed:,}, start {offsets.start:,}",)
            remedy = "keep records for longer than the group may be behind; decide where it goes on (--reset-offsets)"
            yield _critical(Cause.OFFSET_BEFORE_START, partition_name(partition), explanation, evidence, remedy)


def transactions(seen: Observation) -> Iterator[GroupFinding]:
    """Transactions that were open all the while, and hold back readers of committed records."""
    before = seen.first.offsets
    for one in seen.last.transactions:
        offsets, earlier = seen.offsets(one.partition), before.get(one.partition)
        if offsets is None or offsets.stable is None or one.start_offset != offsets.stable:
            continue
        if len(seen.surveys) > 1 and earlier is not None and earlier.stable != offsets.stable:
            continue  # the last stable offset moves: transactions come and go
        committed = seen.position(one.partition).committed
        is_waited_for = committed is not None and committed >= offsets.stable
        held = (offsets.end or 0) - offsets.stable
        explanation = (
            f"a transaction that is still open holds back readers of committed records (isolation.level="
            f"read_committed): they get none of the {held:,} records from offset {offsets.stable:,} on"
        )
        yield GroupFinding(
            urgency=Urgency.CRITICAL if is_waited_for else Urgency.WARNING,
            cause=Cause.OPEN_TRANSACTION,
            subject=partition_name(one.partition),
            explanation=explanation,
            evidence=tuple(_evidence(one, committed)),
            remedy=_ending(one, seen.last.at),
        )


def _evidence(one: OpenTransaction, committed: int | None) -> Iterator[str]:
    name = one.transactional_id or "unknown transactional id"
    state = one.state or "state unknown"
    yield f"transaction {name} of producer {one.producer_id}, epoch {one.producer_epoch}: {state}"
    yield f"it wrote last at {clock(one.last_timestamp_ms / 1000)}"
    if committed is not None:
        yield f"the group has committed {committed:,}, the last stable offset is {one.start_offset:,}"


def _ending(one: OpenTransaction, at: float) -> str:
    if one.started_ms is not None and one.timeout_ms is not None:
        until = (one.started_ms + one.timeout_ms) / 1000
        if until > at:
            return (
                f"end it in the producer, or stop that: its coordinator aborts it at {clock(until)} "
                f"(transaction.timeout.ms={one.timeout_ms})"
            )
    return (
        f"no coordinator will end it by itself: kafka-transactions.sh abort --topic {one.partition.topic} "
        f"--partition {one.partition.partition} --start-offset {one.start_offset}"
    )


def conversion(seen: Observation) -> Iterator[GroupFinding]:
    """A classic group of consumers that members of the consumer protocol cannot join."""
    group, settings = seen.group, seen.last.broker_settings
    if group is None or group.protocol.value != "classic" or not group.members:
        return
    policy = settings.get("group.consumer.migration.policy", "").lower()
    protocols = settings.get("group.coordinator.rebalance.protocols", "")
    reasons = []
    if policy in ("disabled", "downgrade"):
        reasons.append(f"the brokers' group.consumer.migration.policy is {policy}")
    if protocols and "consumer" not in protocols:
        reasons.append(f"the brokers' group.coordinator.rebalance.protocols is {protocols}")
    if group.protocol_type != "consumer":
        reasons.append(f"its protocol type is {group.protocol_type!r}, not 'consumer'")
    if reasons:
        yield GroupFinding(
            urgency=Urgency.NOTE,
            cause=Cause.CANNOT_BE_CONVERTED,
            subject=group.group_id,
            explanation="the group is a classic one and stays it: a member of the consumer protocol is refused",
            evidence=tuple(reasons),
            remedy="set group.consumer.migration.policy=bidirectional, or stop all members before a new one joins",
        )


def limits(seen: Observation) -> Iterator[GroupFinding]:
    """What brokers are set to, where it will hurt this group."""
    group, settings = seen.group, {**seen.last.broker_settings, **seen.last.group_settings}
    if group is None:
        return
    key = "group.consumer.max.size" if group.protocol.value == "consumer" else "group.max.size"
    most = settings.get(key, "")
    if most.isdecimal() and 0 < int(most) <= len(group.members):
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.GROUP_FULL,
            subject=group.group_id,
            explanation="the group is full: whoever else wants to join is refused (GROUP_MAX_SIZE_REACHED)",
            evidence=(f"{len(group.members)} members, {key}={most}",),
            remedy=f"raise {key}, or remove members that are not needed",
        )
    session, beat = settings.get("consumer.session.timeout.ms", ""), settings.get("consumer.heartbeat.interval.ms", "")
    if group.protocol.value == "consumer" and session.isdecimal() and beat.isdecimal() and int(session) < 2 * int(beat):
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.SHORT_SESSION,
            subject=group.group_id,
            explanation="one lost heartbeat ends a member's session: it is fenced, and its partitions move",
            evidence=(f"consumer.session.timeout.ms={session}, consumer.heartbeat.interval.ms={beat}",),
            remedy="let a session be three heartbeats or more",
        )
    kept = settings.get("offsets.retention.minutes", "")
    is_left = not group.members and not seen.is_read_without_members
    if is_left and seen.last.committed and kept.isdecimal() and int(kept) <= 24 * 60:
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.OFFSETS_EXPIRE,
            subject=group.group_id,
            explanation="nobody is in the group, and its offsets are kept for a day at most after its last member left",
            evidence=(f"offsets.retention.minutes={kept}",),
            remedy="start its members, or raise offsets.retention.minutes",
        )


def _critical(cause: Cause, subject: str, explanation: str, evidence: tuple[str, ...], remedy: str) -> GroupFinding:
    return GroupFinding(
        urgency=Urgency.CRITICAL,
        cause=cause,
        subject=subject,
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


ACCESS_RULES = (missing_group, untold, topics, leaders, ranges, transactions, conversion, limits)
