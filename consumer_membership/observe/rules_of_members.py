"""Rules about who is in the group: what each has, whether it reads and commits, and rebalances that do not end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from consumer_membership.admin import GroupDescription, MemberDescription
from consumer_membership.observe.findings import Cause, GroupFinding, Urgency
from consumer_membership.observe.labels import clock, member_name, partition_name, partitions_named, several
from consumer_membership.observe.observation import Observation
from consumer_membership.types import GroupProtocol, TopicPartition

_SESSION = "consumer.session.timeout.ms"
#: Of so many surveys, or more, each may differ from the one before it before a group counts as never at rest.
_RESTLESS = 2
#: One of several partitions that has this share of the whole lag.
_MOST_OF_IT = 0.8
_MANY = 3
#: A lag below this is a poll's worth, not a problem.
_SMALL_LAG = 100
#: The broker's own: each shares a topic's partitions evenly among its subscribers.
_EVEN_ASSIGNORS = frozenset({"uniform", "range"})
_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def presence(seen: Observation) -> Iterator[GroupFinding]:
    """Whether anybody is there for what there is to read."""
    group = seen.group
    if group is None:
        return
    lags = seen.lags
    if not group.members:
        yield _deserted(seen, group)
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
                urgency=Urgency.CRITICAL,
                cause=Cause.NOT_SUBSCRIBED,
                subject=topic,
                explanation="the group has read this topic before, and none of its members subscribes to it now",
                evidence=(f"{lag:,} records to read", f"they subscribe to {several(sorted(subscribed)) or 'nothing'}"),
                remedy="subscribe to it again, or delete the group's offsets of it",
            )


def _deserted(seen: Observation, group: GroupDescription) -> GroupFinding:
    if seen.is_read_without_members:
        moved = [one for one in seen.last.committed if seen.moves(one)]
        return GroupFinding(
            urgency=Urgency.NOTE,
            cause=Cause.READ_WITHOUT_MEMBERS,
            subject=group.group_id,
            explanation="nobody is in the group, and offsets are committed: by a program that assigns its partitions",
            evidence=(f"committed in {seen.seconds:.0f} s: {partitions_named(moved)}",),
        )
    behind = sum(seen.lags.values())
    return GroupFinding(
        urgency=Urgency.CRITICAL if behind else Urgency.NOTE,
        cause=Cause.NO_MEMBERS,
        subject=group.group_id,
        explanation="nobody is in the group" + (", and there is something to read" if behind else ""),
        evidence=(f"{behind:,} records to read in {len(seen.lags)} partitions",) if behind else (),
        remedy=(
            "start its members; if they run, they have another group.id or another cluster, or assign partitions by "
            "hand and commit less often than it was watched (--seconds)"
        ),
    )


def unassigned(seen: Observation) -> Iterator[GroupFinding]:
    """Partitions of subscribed topics that nobody has, and that nobody is to have."""
    group = seen.group
    if group is None or not group.members or any(one.state in _REBALANCING for one in seen.groups):
        return
    subscribed = {topic for member in group.members for topic in member.topics}
    there = {
        TopicPartition(name, number)
        for name, topic in seen.last.topics.items()
        if topic.error is None and name in subscribed
        for number in topic.leaders
    }
    targets = {partition for member in group.members for partition in member.target or ()}
    missing = there - seen.owners.keys()
    if missing and group.protocol is GroupProtocol.CONSUMER and not missing <= targets:
        yield _stale_target(
            group,
            partitions_named(missing - targets),
            "the coordinator counts the group's assignment as complete, and it leaves out partitions that members "
            "subscribe to",
        )
    elif left_out := _left_out(group):
        yield _stale_target(
            group,
            several(map(member_name, left_out)),
            "these members have nothing, and others of the same subscription have several partitions of a topic: no "
            "assignor of the broker leaves it like that",
        )
    elif missing and any(not member.note for member in group.members):
        yield GroupFinding(
            urgency=Urgency.CRITICAL,
            cause=Cause.NOT_ASSIGNED,
            subject=partitions_named(missing),
            explanation="members subscribe to these partitions, and none of them has them",
            evidence=(f"assignor {group.assignor or 'unknown'}, state {group.state}",),
            remedy=(
                "if the topic has grown, the leader has not seen it yet (metadata.max.age.ms), or its assignor leaves "
                "them out; have any member leave and join again"
            ),
        )


def _stale_target(group: GroupDescription, subject: str, explanation: str) -> GroupFinding:
    """An assignment that was computed before something changed, and will not be computed again by itself."""
    return GroupFinding(
        urgency=Urgency.CRITICAL,
        cause=Cause.STALE_TARGET,
        subject=subject,
        explanation=(
            f"{explanation}. The target assignment is stale (KAFKA-21582: a static member of the classic protocol was "
            "replaced by one of the consumer protocol while the group rebalanced, or while its topic had grown)"
        ),
        evidence=(f"group epoch {group.epoch}, assignment epoch {group.assignment_epoch}, state {group.state}",),
        remedy=(
            "restart a member that has no group.instance.id (or take one out: `consumer-membership remove-members`): "
            "its leave makes a new group epoch, whose assignment is computed anew"
        ),
    )


def _left_out(group: GroupDescription) -> list[MemberDescription]:
    """Members without a partition although a member of their subscription has two of one topic or more."""
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
    """Static members that closed and keep their partitions."""
    since = seen.first.at
    for member in seen.members:
        if not member.is_away or not member.assignment:
            continue
        session = seen.last.group_settings.get(_SESSION, "")
        until = f"until {clock(since + int(session) / 1000)} at the latest" if session.isdecimal() else "for a session"
        behind = sum(seen.lags.get(one, 0) for one in member.assignment)
        yield GroupFinding(
            urgency=Urgency.CRITICAL if behind else Urgency.WARNING,
            cause=Cause.STATIC_GHOST,
            subject=member_name(member),
            explanation=f"a static member closed and has not come back; it keeps its partitions {until}",
            evidence=(f"it keeps {partitions_named(member.assignment)}, with {behind:,} records to read",),
            remedy=(
                f"start it again with group.instance.id={member.instance_id}, or take it out: `consumer-membership "
                f"remove-members --instance-id {member.instance_id}`"
            ),
        )


def rebalances(seen: Observation) -> Iterator[GroupFinding]:
    """Rebalances that follow each other, and one that does not end."""
    groups = seen.groups
    if len(groups) <= 1:
        return
    changes = sum(_signature(before) != _signature(after) for before, after in pairwise(groups))
    group = groups[-1]
    if changes >= _RESTLESS and changes >= (len(groups) - 1) / 2:
        came = {one.member_id for one in groups[-1].members} - {one.member_id for one in groups[0].members}
        epochs = "" if group.epoch is None else f"group epoch {groups[0].epoch} -> {group.epoch}"
        evidence = (
            f"{changes} changes in {len(groups)} looks",
            *((epochs,) if epochs else ()),
            *((f"{len(came)} member ids that were not there before",) if came else ()),
            f"states seen: {', '.join(dict.fromkeys(one.state for one in groups))}",
        )
        yield GroupFinding(
            urgency=Urgency.CRITICAL,
            cause=Cause.REBALANCE_STORM,
            subject=group.group_id,
            explanation="the group does not come to rest: members come and go, and each time partitions move or stop",
            evidence=evidence,
            remedy=(
                "find the member that comes and goes: one that crashes and is restarted, or takes longer between two "
                "polls than max.poll.interval.ms, or two processes with the same group.instance.id"
            ),
        )
        return
    # One that is away never takes what it is to have: its stale member is a finding of its own.
    is_waiting = any(_is_late(member, group) and not member.is_away for member in group.members)
    is_stuck = is_waiting or not any(member.is_away for member in group.members)
    if is_stuck and all(one.state in _REBALANCING for one in groups) and changes == 0:
        yield _stuck(seen, group)


def _signature(group: GroupDescription) -> tuple[object, ...]:
    """What a rebalance changes: the epoch, or of a classic group who is in it and whether it is at rest."""
    if group.epoch is not None:
        return (group.epoch,)
    return (tuple(member.member_id for member in group.members), group.state in _REBALANCING)


def _is_late(member: MemberDescription, group: GroupDescription) -> bool:
    """Whether it has not got what it is to have."""
    return member.target is not None and (member.assignment != member.target or member.epoch != group.epoch)


def _stuck(seen: Observation, group: GroupDescription) -> GroupFinding:
    late = [member for member in group.members if _is_late(member, group)]
    holding = [member for member in late if member.assignment - (member.target or frozenset())]
    meant = holding or late
    if group.protocol is GroupProtocol.CONSUMER:
        explanation = (
            "a rebalance has not moved while it was watched: it waits for a member to give up partitions, which that "
            "does in poll() only"
            if holding
            else "a rebalance has not moved while it was watched"
        )
        evidence = tuple(
            f"{member_name(member)}: epoch {member.epoch} of {group.epoch}, still has "
            f"{partitions_named(member.assignment - (member.target or frozenset())) or 'nothing to give up'}"
            for member in meant[:3]
        )
        remedy = (
            "see what those members do between two polls; they are fenced when their rebalance timeout "
            "(max.poll.interval.ms) is over"
        )
    elif group.state == "CompletingRebalance":
        explanation = "all have joined, and the leader has not said who gets what: its assignor hangs, or it is gone"
        evidence = (f"state {group.state} in {len(seen.groups)} looks",)
        remedy = "see what the leader does; the others wait for it until its session ends"
    else:
        explanation = (
            "the coordinator waits for members to join again, which they do in poll() only: one of them has not polled"
        )
        evidence = (f"state {group.state} in {len(seen.groups)} looks, {len(group.members)} members",)
        remedy = "find the member that does not poll; it is taken out when max.poll.interval.ms is over"
    return GroupFinding(
        urgency=Urgency.CRITICAL,
        cause=Cause.STUCK_REBALANCE,
        subject=several(map(member_name, meant)) or group.group_id,
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


def standing(seen: Observation) -> Iterator[GroupFinding]:
    """Members and partitions of which nothing is committed although there is something to read."""
    if seen.group is None or any(one.state in _REBALANCING for one in seen.groups[-1:]):
        return
    held_up = {one.partition for one in seen.last.transactions}
    for member in seen.members:
        if member.is_away:
            continue
        still = {one for one in member.assignment if seen.stands(one)} - held_up
        if not still:
            continue
        behind = sum(seen.lags[one] for one in still)
        evidence = tuple(_still_partition(seen, one) for one in sorted(still)[:3])
        if not any(seen.moves(one) for one in member.assignment):
            never = all(seen.position(one).committed is None for one in still)
            yield _still_member(member, still, behind, evidence, never=never)
        else:
            yield GroupFinding(
                urgency=Urgency.CRITICAL,
                cause=Cause.PARTITION_STANDS,
                subject=partitions_named(still),
                explanation=(
                    "these partitions stand still while others of the same member move: they are paused, or a record "
                    "in them fails again and again"
                ),
                evidence=(member_name(member), *evidence),
                remedy="look for pause() without resume(), and for errors at the committed offset",
            )


def _still_partition(seen: Observation, partition: TopicPartition) -> str:
    before, after = seen.position(partition, seen.first), seen.position(partition)
    committed = "nothing" if after.committed is None else f"{after.committed:,}"
    return f"{partition_name(partition)}: committed {committed} all the while, end {before.end} -> {after.end}"


def _still_member(
    member: MemberDescription, still: set[TopicPartition], behind: int, evidence: tuple[str, ...], *, never: bool
) -> GroupFinding:
    if never:
        explanation = f"it has {len(still)} partitions with {behind:,} records to read, and has never committed in them"
        remedy = (
            "see that it commits (enable.auto.commit, or commit() by hand), and that its program calls poll(); "
            "whoever takes over begins where auto.offset.reset says"
        )
    else:
        explanation = (
            f"it has {len(still)} partitions, and committed nothing in them while it was watched, with {behind:,} "
            "records to read; it is in session, so its process lives"
        )
        remedy = (
            "see what its program does: it hangs in its handler, has paused, or reads without committing. The group "
            "notices when it does not poll for max.poll.interval.ms, and only then"
        )
    return GroupFinding(
        urgency=Urgency.CRITICAL,
        cause=Cause.NEVER_COMMITTED if never else Cause.MEMBER_STANDS,
        subject=member_name(member),
        explanation=explanation,
        evidence=evidence,
        remedy=remedy,
    )


def pace(seen: Observation) -> Iterator[GroupFinding]:
    """Members that do read, more slowly than others write."""
    slow = []
    read = written = 0
    for partition, lag in seen.lags.items():
        before, after = seen.position(partition, seen.first), seen.position(partition)
        if before.lag is None or before.committed is None or after.committed is None or not seen.moves(partition):
            continue
        if lag > before.lag and lag >= _SMALL_LAG:
            slow.append(partition)
            read += max(0, after.committed - before.committed)
            written += (after.end or 0) - (before.end or 0)
    if slow:
        members = {seen.owners[one].member_id for one in slow if one in seen.owners}
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.TOO_SLOW,
            subject=partitions_named(slow),
            explanation="they are read more slowly than they are written to: the lag grows",
            evidence=(
                f"{written:,} records written and {read:,} read in {seen.seconds:.0f} s, by {len(members)} members",
            ),
            remedy="make the handler faster, or add members, up to one for each partition",
        )


def shares(seen: Observation) -> Iterator[GroupFinding]:
    """Who has how much: idle members, uneven shares, and a lag that is one partition's."""
    group = seen.group
    if group is None or not group.members or any(one.state in _REBALANCING for one in seen.groups[-1:]):
        return
    members = [one for one in group.members if not one.is_away]
    idle = [one for one in members if not one.assignment and not one.target]
    subscriptions = Counter((one.topics, one.pattern) for one in members if not one.note)
    if idle and seen.owners and len(members) > len(seen.owners):
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.TOO_MANY_MEMBERS,
            subject=several(map(member_name, idle)),
            explanation="these members have nothing to do: the group has more members than partitions",
            evidence=(f"{len(members)} members, {len(seen.owners)} partitions",),
            remedy="add partitions, or run fewer members; spare ones only take over when others leave",
        )
    if len(subscriptions) > 1:
        topics = [
            f"{count} to {several(sorted(names)) or pattern}" for (names, pattern), count in subscriptions.items()
        ]
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.MIXED_SUBSCRIPTIONS,
            subject=group.group_id,
            explanation="its members subscribe to different topics: two applications may use the same group.id",
            evidence=(f"of {len(members)} members subscribe {'; '.join(topics)}",),
            remedy="give each application a group.id of its own; in the middle of a deployment it passes",
        )
    elif len(members) > 1 and not idle:
        counts = sorted((len(one.assignment), one.member_id) for one in members)
        if counts[-1][0] - counts[0][0] > 1:
            yield GroupFinding(
                urgency=Urgency.WARNING,
                cause=Cause.SKEWED_ASSIGNMENT,
                subject=group.group_id,
                explanation="members with the same subscription have unequal shares",
                evidence=(
                    f"from {counts[0][0]} to {counts[-1][0]} partitions, assignor {group.assignor or 'unknown'}",
                ),
                remedy="`range` gives the first members one more of each topic: use a sticky or uniform assignor",
            )
    yield from _skewed_lag(seen)


def _skewed_lag(seen: Observation) -> Iterator[GroupFinding]:
    lags = {one: lag for one, lag in seen.lags.items() if one in seen.owners}
    total = sum(lags.values())
    if len(seen.owners) <= _MANY or total < _SMALL_LAG:
        return
    partition, most = max(lags.items(), key=lambda item: item[1])
    if most >= _MOST_OF_IT * total and seen.moves(partition):
        yield GroupFinding(
            urgency=Urgency.WARNING,
            cause=Cause.SKEWED_LAG,
            subject=partition_name(partition),
            explanation="nearly all of the lag is in this one partition: more members do not help",
            evidence=(f"{most:,} of {total:,} records, in one of {len(seen.owners)} partitions",),
            remedy="look for a key that most records have, or for a slow member that owns it",
        )


def protocols(seen: Observation) -> Iterator[GroupFinding]:
    """Members of both protocols in one group, and members that nobody can read."""
    group = seen.group
    if group is None:
        return
    classic = [one for one in group.members if one.protocol is GroupProtocol.CLASSIC]
    if group.protocol is GroupProtocol.CONSUMER and classic:
        yield GroupFinding(
            urgency=Urgency.NOTE,
            cause=Cause.CONVERSION_UNFINISHED,
            subject=several(map(member_name, classic)),
            explanation="the group is of the consumer protocol, and members of it still speak the classic one",
            evidence=(f"{len(classic)} of {len(group.members)} members",),
            remedy="upgrade them; until then each rebalance waits for them to join again",
        )
    unreadable = [one for one in group.members if one.note]
    if unreadable:
        yield GroupFinding(
            urgency=Urgency.NOTE,
            cause=Cause.UNREADABLE_MEMBER,
            subject=several(map(member_name, unreadable)),
            explanation="what these members subscribe to or have cannot be read, so nothing is said about it",
            evidence=tuple(dict.fromkeys(one.note for one in unreadable)),
        )


MEMBER_RULES = (presence, unassigned, stale_members, rebalances, standing, pace, shares, protocols)
