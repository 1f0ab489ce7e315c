"""The rules about the members: assignments, commits, static members that are away, and rebalances."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from consumer_membership.admin import GroupDescription, MemberDescription
from consumer_membership.observe.findings import Cause, FindingSeverity, GroupFinding
from consumer_membership.observe.labels import clock, member_name, partition_name, partitions_named, several
from consumer_membership.observe.observation import Observation
from consumer_membership.text import counted
from consumer_membership.types import GroupProtocol, TopicPartition

_SESSION = "consumer.session.timeout.ms"
#: At least this many changes between consecutive surveys count as repeated rebalances.
_MANY_CHANGES = 2
#: One partition with this share of the total lag, in a group with more than `_FEW_PARTITIONS`, is reported.
_LARGE_SHARE = 0.8
_FEW_PARTITIONS = 3
#: A smaller lag is less than the records of one poll.
_SMALL_LAG = 100
#: The broker's assignors, which distribute a topic's partitions evenly among its subscribers.
_EVEN_ASSIGNORS = frozenset({"uniform", "range"})
_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def presence(seen: Observation) -> Iterator[GroupFinding]:
    """The group has no members, or no member subscribes to a topic that the group has consumed."""
    group = seen.group
    if group is None:
        return
    lags = seen.lags
    if not group.members:
        yield _no_members(seen, group)
        return
    if group.state in _REBALANCING:
        return
    subscribed = {topic for member in group.members for topic in member.topics}
    held = {partition.topic for partition in seen.owners}
    if not any(member.pattern for member in group.members):
        forgotten: dict[str, int] = defaultdict(int)
        for partition, lag in lags.items():
            if partition.topic not in subscribed | held and partition in seen.last.committed:
                forgotten[partition.topic] += lag
        for topic, lag in forgotten.items():
            yield GroupFinding(
                severity=FindingSeverity.CRITICAL,
                cause=Cause.TOPIC_NOT_SUBSCRIBED,
                subject=topic,
                explanation="the group has committed offsets for this topic, but no member subscribes to it now",
                evidence=(f"lag {lag:,}", f"subscribed topics: {several(sorted(subscribed)) or 'none'}"),
                remedy="subscribe to the topic again, or delete the group's offsets for it",
            )


def _no_members(seen: Observation, group: GroupDescription) -> GroupFinding:
    if seen.has_commits_without_members:
        moved = [one for one in seen.last.committed if seen.has_progress(one)]
        return GroupFinding(
            severity=FindingSeverity.INFO,
            cause=Cause.COMMITS_WITHOUT_MEMBERS,
            subject=group.group_id,
            explanation="the group has no members, but offsets are committed: by a program that uses assign()",
            evidence=(f"commits within {seen.seconds:.0f} s: {partitions_named(moved)}",),
        )
    behind = sum(seen.lags.values())
    return GroupFinding(
        severity=FindingSeverity.CRITICAL if behind else FindingSeverity.INFO,
        cause=Cause.NO_MEMBERS,
        subject=group.group_id,
        explanation="the group has no members" + (" and has lag" if behind else ""),
        evidence=(f"lag {behind:,} in {counted(len(seen.lags), 'partition')}",) if behind else (),
        remedy=(
            "start the members; if they run, check group.id and bootstrap.servers; if they use assign(), they may "
            "commit less often than the observation time (--seconds)"
        ),
    )


def unassigned(seen: Observation) -> Iterator[GroupFinding]:
    """A partition of a subscribed topic has no owner and is in no target assignment."""
    group = seen.group
    if group is None or not group.members or any(one.state in _REBALANCING for one in seen.groups):
        return
    subscribed = {topic for member in group.members for topic in member.topics}
    existing = {
        TopicPartition(name, number)
        for name, topic in seen.last.topics.items()
        if topic.error is None and name in subscribed
        for number in topic.leaders
    }
    targets = {partition for member in group.members for partition in member.target or ()}
    missing = existing - seen.owners.keys()
    if missing and group.protocol is GroupProtocol.CONSUMER and not missing <= targets:
        yield _stale_target(
            group,
            partitions_named(missing - targets),
            "the coordinator considers the assignment complete, but it lacks partitions of subscribed topics",
        )
    elif left_out := _left_out(group):
        yield _stale_target(
            group,
            several(map(member_name, left_out)),
            "these members have no partitions, although members with the same subscription have several partitions of "
            "a topic; the broker's assignors never produce such an assignment",
        )
    elif missing and any(not member.note for member in group.members):
        yield GroupFinding(
            severity=FindingSeverity.CRITICAL,
            cause=Cause.PARTITION_UNASSIGNED,
            subject=partitions_named(missing),
            explanation="members subscribe to the topic of these partitions, but no member owns them",
            evidence=(f"assignor {group.assignor or 'unknown'}, state {group.state}",),
            remedy=(
                "restart any member; if partitions were added, the group leader may not know them yet "
                "(metadata.max.age.ms), or its assignor omits them"
            ),
        )


def _stale_target(group: GroupDescription, subject: str, explanation: str) -> GroupFinding:
    """Return the finding about an outdated assignment, which the coordinator does not compute again."""
    return GroupFinding(
        severity=FindingSeverity.CRITICAL,
        cause=Cause.STALE_TARGET,
        subject=subject,
        explanation=(
            f"{explanation}. The target assignment is stale (KAFKA-21582: a static member of the classic protocol was "
            "replaced by one of the consumer protocol during a rebalance, or after partitions were added to its topic)"
        ),
        evidence=(f"group epoch {group.epoch}, assignment epoch {group.assignment_epoch}, state {group.state}",),
        remedy=(
            "restart a member without group.instance.id, or remove a member with `consumer-membership remove-members`; "
            "the group epoch increases and the coordinator computes a new assignment"
        ),
    )


def _left_out(group: GroupDescription) -> list[MemberDescription]:
    """Return members without partitions although a member with the same subscription has several of one topic."""
    if group.assignor not in _EVEN_ASSIGNORS:
        return []
    crowded = {
        (member.topics, member.pattern)
        for member in group.members
        if max(Counter(partition.topic for partition in member.target or ()).values(), default=0) > 1
    }
    return [
        member
        for member in group.members
        if not (member.target or member.assignment or member.note or member.is_away)
        and (member.topics, member.pattern) in crowded
    ]


def stale_members(seen: Observation) -> Iterator[GroupFinding]:
    """A static member has closed and keeps its partitions until its session ends."""
    since = seen.first.at
    for member in seen.members:
        if not member.is_away or not member.assignment:
            continue
        session = seen.last.group_settings.get(_SESSION, "")
        until = f"{clock(since + int(session) / 1000)} at the latest" if session.isdecimal() else "its session ends"
        behind = sum(seen.lags.get(one, 0) for one in member.assignment)
        yield GroupFinding(
            severity=FindingSeverity.CRITICAL if behind else FindingSeverity.WARNING,
            cause=Cause.STATIC_MEMBER_AWAY,
            subject=member_name(member),
            explanation=f"a static member has closed and not returned; it keeps its partitions until {until}",
            evidence=(f"assigned {partitions_named(member.assignment)}, lag {behind:,}",),
            remedy=(
                f"start it again with group.instance.id={member.instance_id}, or remove it with `consumer-membership "
                f"remove-members --instance-id {member.instance_id}`"
            ),
        )


def rebalances(seen: Observation) -> Iterator[GroupFinding]:
    """The group rebalances repeatedly, or a rebalance does not finish."""
    groups = seen.groups
    if len(groups) <= 1:
        return
    changes = sum(_signature(before) != _signature(after) for before, after in pairwise(groups))
    group = groups[-1]
    if changes >= _MANY_CHANGES and changes >= (len(groups) - 1) / 2:
        new = {one.member_id for one in groups[-1].members} - {one.member_id for one in groups[0].members}
        epochs = "" if group.epoch is None else f"group epoch {groups[0].epoch} -> {group.epoch}"
        evidence = (
            f"{changes} changes in {len(groups)} samples",
            *((epochs,) if epochs else ()),
            *((f"{len(new)} new member ids",) if new else ()),
            f"group states: {', '.join(dict.fromkeys(one.state for one in groups))}",
        )
        yield GroupFinding(
            severity=FindingSeverity.CRITICAL,
            cause=Cause.REBALANCE_STORM,
            subject=group.group_id,
            explanation="members repeatedly join and leave; each time partitions move and consumption is interrupted",
            evidence=evidence,
            remedy=(
                "find the member that leaves and joins: it crashes and restarts, exceeds max.poll.interval.ms between "
                "two polls, or shares its group.instance.id with another process"
            ),
        )
        return
    # A static member that is away never reaches its target assignment; another rule reports it.
    is_waiting = any(_is_late(member, group) and not member.is_away for member in group.members)
    is_stuck = is_waiting or not any(member.is_away for member in group.members)
    if is_stuck and all(one.state in _REBALANCING for one in groups) and changes == 0:
        yield _stuck(seen, group)


def _signature(group: GroupDescription) -> tuple[object, ...]:
    """Return what a rebalance changes: the epoch, or in a classic group the members and whether it rebalances."""
    if group.epoch is not None:
        return (group.epoch,)
    return (tuple(member.member_id for member in group.members), group.state in _REBALANCING)


def _is_late(member: MemberDescription, group: GroupDescription) -> bool:
    """Whether the member has not reached its target assignment."""
    return member.target is not None and (member.assignment != member.target or member.epoch != group.epoch)


def _stuck(seen: Observation, group: GroupDescription) -> GroupFinding:
    late = [member for member in group.members if _is_late(member, group)]
    revoking = [member for member in late if member.assignment - (member.target or frozenset())]
    blocking = revoking or late
    if group.protocol is GroupProtocol.CONSUMER:
        explanation = "a rebalance made no progress during the observation"
        if revoking:
            explanation += ": it waits for a member to revoke partitions, which happens only in poll()"
        evidence = tuple(
            f"{member_name(member)}: epoch {member.epoch} of {group.epoch}, partitions to revoke: "
            f"{partitions_named(member.assignment - (member.target or frozenset())) or 'none'}"
            for member in blocking[:3]
        )
        remedy = (
            "check what these members do between two polls; the coordinator fences them when their rebalance timeout "
            "(max.poll.interval.ms) is exceeded"
        )
    elif group.state == "CompletingRebalance":
        explanation = (
            "all members have joined, but the group leader has not sent the assignment: its assignor hangs, or its "
            "process has ended"
        )
        evidence = (f"state {group.state} in {len(seen.groups)} samples",)
        remedy = "check the process of the group leader; the other members wait until its session ends"
    else:
        explanation = (
            "the coordinator waits for all members to join again, which happens only in poll(); at least one member "
            "has not called it"
        )
        members = counted(len(group.members), "member")
        evidence = (f"state {group.state} in {counted(len(seen.groups), 'sample')}, {members}",)
        remedy = "find the member that does not call poll(); the coordinator removes it after max.poll.interval.ms"
    return GroupFinding(
        severity=FindingSeverity.CRITICAL,
        cause=Cause.STUCK_REBALANCE,
        subject=several(map(member_name, blocking)) or group.group_id,
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


def stalled(seen: Observation) -> Iterator[GroupFinding]:
    """A member or a partition has lag, but nothing is committed."""
    if seen.group is None or any(one.state in _REBALANCING for one in seen.groups[-1:]):
        return
    blocked = {one.partition for one in seen.last.transactions}
    for member in seen.members:
        if member.is_away:
            continue
        partitions = {one for one in member.assignment if seen.is_stalled(one)} - blocked
        if not partitions:
            continue
        behind = sum(seen.lags[one] for one in partitions)
        evidence = tuple(_stalled_partition(seen, one) for one in sorted(partitions)[:3])
        if not any(seen.has_progress(one) for one in member.assignment):
            never = all(seen.position(one).committed is None for one in partitions)
            yield _stalled_member(member, partitions, behind, evidence, never=never)
        else:
            yield GroupFinding(
                severity=FindingSeverity.CRITICAL,
                cause=Cause.PARTITION_STALLED,
                subject=partitions_named(partitions),
                explanation=(
                    "these partitions make no progress while other partitions of the same member do: they are paused, "
                    "or processing a record fails repeatedly"
                ),
                evidence=(member_name(member), *evidence),
                remedy="check for pause() without resume(), and for errors at the committed offset",
            )


def held_back(seen: Observation) -> Iterator[GroupFinding]:
    """The committed offset does not move, because its record is unfinished while later records are finished."""
    for partition, member in sorted(seen.owners.items()):
        finished = seen.finished_beyond(partition)
        if finished is None or not seen.is_held_back(partition):
            continue
        others = len(finished.unfinished) - 1
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.COMMIT_HELD_BACK,
            subject=partition_name(partition),
            explanation=(
                f"the record at offset {finished.base:,} is not finished, so the committed offset does not move, while "
                f"{counted(finished.count, 'later offset')} {'is' if finished.count == 1 else 'are'} finished. The "
                "member runs a Processor: the next owner skips the finished records if it runs one as well; other "
                "consumers receive them again"
            ),
            evidence=(
                f"committed offset {finished.base:,} (unchanged for {seen.seconds:.0f} s)",
                f"finished up to offset {finished.high - 1:,}"
                + (f", except {counted(others, 'other offset')}" if others else ""),
                member_name(member),
            ),
            remedy=(
                "look up the record in the member's health(): its handler runs for a long time, waits for a retry, or "
                "hangs. Set handler_timeout for a handler that hangs, and dead_letter for a record that always fails"
            ),
        )


def _stalled_partition(seen: Observation, partition: TopicPartition) -> str:
    before, after = seen.position(partition, seen.first), seen.position(partition)
    committed = "none" if after.committed is None else f"{after.committed:,}"
    return f"{partition_name(partition)}: committed offset {committed} (unchanged), end {before.end} -> {after.end}"


def _stalled_member(
    member: MemberDescription, partitions: set[TopicPartition], behind: int, evidence: tuple[str, ...], *, never: bool
) -> GroupFinding:
    if never:
        explanation = (
            f"the member owns {counted(len(partitions), 'partition')} with lag {behind:,} and no committed offset"
        )
        remedy = (
            "check that the program calls poll() and commits (enable.auto.commit=true, or commit()); without a "
            "committed offset, the next owner starts according to auto.offset.reset"
        )
    else:
        explanation = (
            f"the member owns {counted(len(partitions), 'partition')} with lag {behind:,} and did not commit during "
            "the observation; its session is active, so its process runs"
        )
        remedy = (
            "check what the program does: it hangs while it processes a record, has paused the partitions, or does not "
            "commit. The coordinator removes the member only if it exceeds max.poll.interval.ms"
        )
    return GroupFinding(
        severity=FindingSeverity.CRITICAL,
        cause=Cause.NEVER_COMMITTED if never else Cause.MEMBER_STALLED,
        subject=member_name(member),
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


def pace(seen: Observation) -> Iterator[GroupFinding]:
    """Members consume more slowly than records are produced."""
    slow = []
    consumed = produced = 0
    for partition, lag in seen.lags.items():
        before, after = seen.position(partition, seen.first), seen.position(partition)
        if before.lag is None or before.progress is None or after.progress is None or not seen.has_progress(partition):
            continue
        if lag > before.lag and lag >= _SMALL_LAG:
            slow.append(partition)
            consumed += max(0, after.progress - before.progress)
            produced += (after.end or 0) - (before.end or 0)
    if slow:
        members = {seen.owners[one].member_id for one in slow if one in seen.owners}
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.TOO_SLOW,
            subject=partitions_named(slow),
            explanation="records are consumed more slowly than they are produced, so the lag grows",
            evidence=(
                f"{counted(produced, 'record')} produced, {consumed:,} consumed in {seen.seconds:.0f} s",
                f"owners: {counted(len(members), 'member')}",
            ),
            remedy="process records faster, or add members, at most one per partition",
        )


def shares(seen: Observation) -> Iterator[GroupFinding]:
    """Members are idle, subscribe to different topics or have unequal shares; or one partition has most of the lag."""
    group = seen.group
    if group is None or not group.members or any(one.state in _REBALANCING for one in seen.groups[-1:]):
        return
    members = [one for one in group.members if not one.is_away]
    idle = [one for one in members if not one.assignment and not one.target]
    subscriptions = Counter((one.topics, one.pattern) for one in members if not one.note)
    if idle and seen.owners and len(members) > len(seen.owners):
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.TOO_MANY_MEMBERS,
            subject=several(map(member_name, idle)),
            explanation="these members are idle, because the group has more members than partitions",
            evidence=(f"{counted(len(members), 'member')}, {counted(len(seen.owners), 'partition')}",),
            remedy="add partitions or run fewer members; an idle member only takes over when another one leaves",
        )
    if len(subscriptions) > 1:
        topics = [f"{several(sorted(names)) or pattern} ({count})" for (names, pattern), count in subscriptions.items()]
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.MIXED_SUBSCRIPTIONS,
            subject=group.group_id,
            explanation="the members subscribe to different topics; perhaps two applications use the same group.id",
            evidence=(f"subscriptions (members): {'; '.join(topics)}",),
            remedy="use a different group.id for each application; during a rolling deployment this is temporary",
        )
    elif len(members) > 1 and not idle:
        counts = sorted((len(one.assignment), one.member_id) for one in members)
        if counts[-1][0] - counts[0][0] > 1:
            yield GroupFinding(
                severity=FindingSeverity.WARNING,
                cause=Cause.SKEWED_ASSIGNMENT,
                subject=group.group_id,
                explanation="members with the same subscription have different numbers of partitions",
                evidence=(
                    f"{counts[0][0]} to {counts[-1][0]} partitions per member, assignor {group.assignor or 'unknown'}",
                ),
                remedy=(
                    "use a sticky or uniform assignor; `range` gives the first members one more partition of each topic"
                ),
            )
    yield from _skewed_lag(seen)


def _skewed_lag(seen: Observation) -> Iterator[GroupFinding]:
    lags = {one: lag for one, lag in seen.lags.items() if one in seen.owners}
    total = sum(lags.values())
    if len(seen.owners) <= _FEW_PARTITIONS or total < _SMALL_LAG:
        return
    partition, most = max(lags.items(), key=lambda item: item[1])
    if most >= _LARGE_SHARE * total and seen.has_progress(partition):
        yield GroupFinding(
            severity=FindingSeverity.WARNING,
            cause=Cause.SKEWED_LAG,
            subject=partition_name(partition),
            explanation="one partition has nearly all of the lag, so more members do not help",
            evidence=(f"lag {most:,} of {total:,} in one of {len(seen.owners)} partitions",),
            remedy="check for a record key that is used too often, and for a slow owner of the partition",
        )


def protocols(seen: Observation) -> Iterator[GroupFinding]:
    """A group has members of both protocols, or members whose metadata cannot be decoded."""
    group = seen.group
    if group is None:
        return
    classic = [one for one in group.members if one.protocol is GroupProtocol.CLASSIC]
    if group.protocol is GroupProtocol.CONSUMER and classic:
        yield GroupFinding(
            severity=FindingSeverity.INFO,
            cause=Cause.CONVERSION_UNFINISHED,
            subject=several(map(member_name, classic)),
            explanation="the group uses the consumer protocol, but these members still use the classic protocol",
            evidence=(f"{len(classic)} of {counted(len(group.members), 'member')}",),
            remedy="upgrade these members; until then each rebalance waits for them to join again",
        )
    unreadable = [one for one in group.members if one.note]
    if unreadable:
        yield GroupFinding(
            severity=FindingSeverity.INFO,
            cause=Cause.UNREADABLE_MEMBER,
            subject=several(map(member_name, unreadable)),
            explanation="the subscription or assignment of these members cannot be decoded and is not diagnosed",
            evidence=tuple(dict.fromkeys(one.note for one in unreadable)),
        )


MEMBER_RULES = (presence, unassigned, stale_members, rebalances, held_back, stalled, pace, shares, protocols)
