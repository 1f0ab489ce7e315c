"""The rules about a group's environment: access rights, coordinator, topics, leaders, offsets, transactions, limits."""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.admin import OpenTransaction, Subject
from consumer_membership.observe.findings import Cause, FindingSeverity, GroupFinding
from consumer_membership.observe.labels import clock, partition_name, partitions_named
from consumer_membership.observe.observation import Observation
from consumer_membership.text import counted
from consumer_membership.types import TopicPartition

_FORBIDDEN = "_AUTHORIZATION_FAILED"
_NOT_FOUND = "GROUP_ID_NOT_FOUND"
_NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"


def missing_group(seen: Observation) -> Iterator[GroupFinding]:
    """The group may not be described, its coordinator does not respond, or it does not exist."""
    refusals = seen.last.refusals
    refused = refusals.get(Subject.COORDINATOR) or refusals.get(Subject.GROUP)
    if seen.group is not None or refused is None:
        return
    name = seen.last.group_id
    check_names = "check group.id and bootstrap.servers of the members; `consumer-membership list` lists all groups"
    broker_error = (f"broker error: {refused}",)
    if refused.name == "GROUP_AUTHORIZATION_FAILED":
        explanation = "this client may not describe the group, so no diagnosis is possible"
        remedy = f"allow the ACL operation DESCRIBE on group {name} and on its topics"
        yield _critical(Cause.GROUP_AUTHORIZATION_FAILED, name, explanation, broker_error, remedy)
    elif refused.name.endswith(_FORBIDDEN):
        explanation = "this client may not describe a topic that the group's members subscribe to"
        remedy = "allow the ACL operation DESCRIBE on all topics of the group"
        yield _critical(Cause.TOPIC_AUTHORIZATION_FAILED, name, explanation, broker_error, remedy)
    elif refused.name == _NOT_FOUND and "is not a" in refused.message:
        explanation = "the group is a share group or a streams group, which this command does not support"
        yield _critical(
            Cause.UNSUPPORTED_GROUP_TYPE,
            name,
            explanation,
            broker_error,
            "use kafka-share-groups.sh or kafka-streams-groups.sh",
        )
    elif refused.name == _NOT_FOUND:
        explanation = (
            "the cluster has no group with this id: no member has joined, nothing was committed, or the committed "
            "offsets have expired"
        )
        kept = seen.last.broker_settings.get("offsets.retention.minutes")
        evidence = (*broker_error, *((f"the offsets of an empty group expire after {kept} minutes",) if kept else ()))
        yield _critical(
            Cause.GROUP_NOT_FOUND,
            name,
            explanation,
            evidence,
            check_names,
        )
    else:
        explanation = (
            "the group coordinator does not respond or is not ready, so members can neither join, nor send heartbeats, "
            "nor commit"
        )
        remedy = (
            "check that the brokers run and that every partition of __consumer_offsets has a leader; a coordinator may "
            "take minutes to load a large partition"
        )
        yield _critical(Cause.COORDINATOR_UNAVAILABLE, name, explanation, broker_error, remedy)


def incomplete_data(seen: Observation) -> Iterator[GroupFinding]:
    """Data is missing because of a denied request or an unavailable broker, although the group was described."""
    for subject, error in seen.last.refusals.items():
        if subject in (Subject.COORDINATOR, Subject.GROUP):
            continue
        explanation = f"{subject.value} could not be read, so problems that depend on them are not detected"
        yield GroupFinding(
            severity=FindingSeverity.WARNING if subject is Subject.COMMITTED else FindingSeverity.INFO,
            cause=Cause.INCOMPLETE_DATA,
            subject=subject.value,
            explanation=explanation,
            evidence=(str(error),),
            remedy="allow DESCRIBE on the group and its topics, and DESCRIBE_CONFIGS on the cluster and the group",
        )


def topics(seen: Observation) -> Iterator[GroupFinding]:
    """A topic does not exist or may not be described."""
    subscribed = {name: member for member in seen.members for name in member.topics}
    for name, topic in seen.last.topics.items():
        if topic.error is None:
            continue
        broker_error = (str(topic.error),)
        if topic.error.name.endswith(_FORBIDDEN):
            explanation = (
                "this client may not describe the topic; members that may not describe it get none of its partitions"
            )
            remedy = f"allow READ and DESCRIBE on topic {name} for the members, and DESCRIBE for this client"
            yield _critical(Cause.TOPIC_AUTHORIZATION_FAILED, name, explanation, broker_error, remedy)
        elif topic.error.name == _NO_TOPIC and name in subscribed:
            explanation = "members subscribe to a topic that does not exist, so they receive no records from it"
            remedy = "create the topic, or correct the name in the members' subscription"
            yield _critical(Cause.TOPIC_MISSING, name, explanation, broker_error, remedy)
        elif topic.error.name == _NO_TOPIC:
            explanation = "the group has committed offsets for a topic that no longer exists; they have no effect"
            yield GroupFinding(
                severity=FindingSeverity.INFO,
                cause=Cause.TOPIC_DELETED,
                subject=name,
                explanation=explanation,
                evidence=broker_error,
                remedy=f"delete them with kafka-consumer-groups.sh --delete-offsets --topic {name}",
            )
    for member in seen.members:
        if member.pattern and not member.assignment and not member.target and not member.topics:
            explanation = f"the member has no partitions from the pattern {member.pattern!r}; perhaps no topic matches"
            remedy = "correct the pattern; a pattern that the broker evaluates (RE2/J) must match the whole topic name"
            yield _critical(Cause.PATTERN_WITHOUT_TOPIC, member.pattern, explanation, (), remedy)


def leaders(seen: Observation) -> Iterator[GroupFinding]:
    """A partition has no leader."""
    offline = [
        TopicPartition(name, number)
        for name, topic in seen.last.topics.items()
        for number, leader in topic.leaders.items()
        if leader is None
    ]
    if offline:
        explanation = "no broker leads these partitions, so no client can consume from them or produce to them"
        remedy = "start a broker that has a replica (kafka-topics.sh --describe lists the replicas)"
        yield _critical(Cause.PARTITION_OFFLINE, partitions_named(offline), explanation, (), remedy)


def ranges(seen: Observation) -> Iterator[GroupFinding]:
    """A committed offset is outside the range of the partition."""
    for partition, offsets in seen.last.offsets.items():
        committed = seen.position(partition).committed
        if committed is None:
            continue
        if offsets.end is not None and committed > offsets.end:
            explanation = (
                "the committed offset is beyond the end of the partition: the topic was recreated or truncated. The "
                "group consumes nothing until its consumer resets the position according to auto.offset.reset"
            )
            evidence = (f"committed {committed:,}, end {offsets.end:,}",)
            remedy = "stop the members and set the offset (kafka-consumer-groups.sh --reset-offsets)"
            yield _critical(Cause.OFFSET_BEYOND_END, partition_name(partition), explanation, evidence, remedy)
        elif offsets.start is not None and committed < offsets.start and committed < (offsets.end or 0):
            explanation = (
                "records were deleted by retention before the group consumed them. The consumer resets the position "
                "according to auto.offset.reset; with `latest` it skips all remaining records"
            )
            evidence = (f"committed {committed:,}, start {offsets.start:,}",)
            remedy = (
                "increase the retention of the topic above the lag of the group, and set the offset from which it "
                "continues (kafka-consumer-groups.sh --reset-offsets)"
            )
            yield _critical(Cause.OFFSET_BEFORE_START, partition_name(partition), explanation, evidence, remedy)


def transactions(seen: Observation) -> Iterator[GroupFinding]:
    """A transaction is open during the whole observation and blocks consumers with read_committed."""
    before = seen.first.offsets
    for one in seen.last.transactions:
        offsets, earlier = seen.offsets(one.partition), before.get(one.partition)
        if offsets is None or offsets.stable is None or one.start_offset != offsets.stable:
            continue
        if len(seen.surveys) > 1 and earlier is not None and earlier.stable != offsets.stable:
            continue  # the last stable offset advances, so transactions end
        committed = seen.position(one.partition).committed
        blocks_group = committed is not None and committed >= offsets.stable
        blocked = (offsets.end or 0) - offsets.stable
        explanation = (
            "an open transaction blocks consumers with isolation.level=read_committed: they do not receive the "
            f"{counted(blocked, 'record')} from offset {offsets.stable:,} on"
        )
        yield GroupFinding(
            severity=FindingSeverity.CRITICAL if blocks_group else FindingSeverity.WARNING,
            cause=Cause.OPEN_TRANSACTION,
            subject=partition_name(one.partition),
            explanation=explanation,
            evidence=tuple(_evidence(one, committed)),
            remedy=_ending(one, seen.last.at),
        )


def _evidence(one: OpenTransaction, committed: int | None) -> Iterator[str]:
    name = one.transactional_id or "unknown"
    state = one.state or "unknown"
    yield f"transactional.id {name}, producer id {one.producer_id}, producer epoch {one.producer_epoch}, state {state}"
    yield f"last write at {clock(one.last_timestamp_ms / 1000)}"
    if committed is not None:
        yield f"committed offset {committed:,}, last stable offset {one.start_offset:,}"


def _ending(one: OpenTransaction, at: float) -> str:
    if one.started_ms is not None and one.timeout_ms is not None:
        until = (one.started_ms + one.timeout_ms) / 1000
        if until > at:
            return (
                "commit or abort it in the producer, or wait: the transaction coordinator aborts it at "
                f"{clock(until)} (transaction.timeout.ms={one.timeout_ms})"
            )
    return (
        f"abort it, because no coordinator does: kafka-transactions.sh abort --topic {one.partition.topic} "
        f"--partition {one.partition.partition} --start-offset {one.start_offset}"
    )


def conversion(seen: Observation) -> Iterator[GroupFinding]:
    """Members of the consumer protocol cannot join a classic group."""
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
        reasons.append(f"the group's protocol type is {group.protocol_type!r} instead of 'consumer'")
    if reasons:
        yield GroupFinding(
            severity=FindingSeverity.INFO,
            cause=Cause.CONVERSION_DISABLED,
            subject=group.group_id,
            explanation="the group uses the classic protocol; the broker rejects members of the consumer protocol",
            evidence=tuple(reasons),
            remedy=(
                "set group.consumer.migration.policy=bidirectional, or stop all members before the first member of "
                "the consumer protocol joins"
            ),
        )


def limits(seen: Observation) -> Iterator[GroupFinding]:
    """A broker setting is or becomes a problem for this group."""
    group, settings = seen.group, {**seen.last.broker_settings, **seen.last.group_settings}
    if group is None:
        return
    key = "group.consumer.max.size" if group.protocol.value == "consumer" else "group.max.size"
    most = settings.get(key, "")
    if most.isdecimal() and 0 < int(most) <= len(group.members):
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.GROUP_FULL,
            subject=group.group_id,
            explanation="the group is full: the broker rejects further members (GROUP_MAX_SIZE_REACHED)",
            evidence=(f"{counted(len(group.members), 'member')}, {key}={most}",),
            remedy=f"increase {key}, or stop members that are not needed",
        )
    session = settings.get("consumer.session.timeout.ms", "")
    interval = settings.get("consumer.heartbeat.interval.ms", "")
    is_known = session.isdecimal() and interval.isdecimal()
    if group.protocol.value == "consumer" and is_known and int(session) < 2 * int(interval):
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.SHORT_SESSION,
            subject=group.group_id,
            explanation="one lost heartbeat ends a member's session; the member is fenced and its partitions move",
            evidence=(f"consumer.session.timeout.ms={session}, consumer.heartbeat.interval.ms={interval}",),
            remedy="set consumer.session.timeout.ms to at least three heartbeat intervals",
        )
    kept = settings.get("offsets.retention.minutes", "")
    is_left = not group.members and not seen.has_commits_without_members
    if is_left and seen.last.committed and kept.isdecimal() and int(kept) <= 24 * 60:
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.OFFSETS_EXPIRE,
            subject=group.group_id,
            explanation=(
                "the group has no members, and its committed offsets expire at most a day after the last member left"
            ),
            evidence=(f"offsets.retention.minutes={kept}",),
            remedy="start the members, or increase offsets.retention.minutes",
        )


def _critical(cause: Cause, subject: str, explanation: str, evidence: tuple[str, ...], remedy: str) -> GroupFinding:
    return GroupFinding(
        severity=FindingSeverity.CRITICAL,
        cause=cause,
        subject=subject,
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


ACCESS_RULES = (missing_group, incomplete_data, topics, leaders, ranges, transactions, conversion, limits)
