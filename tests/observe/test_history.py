"""A coordinator's records as samples: both protocols, before the start time and after it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from consumer_membership.admin import GroupHistory, GroupPresent
from consumer_membership.admin.group_log import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupEpochRecorded,
    LoggedRecord,
    MemberRecorded,
    OffsetRecorded,
    TargetEpochRecorded,
    TargetRecorded,
)
from consumer_membership.observe.history import surveys_of
from consumer_membership.observe.labels import NO_GROUP
from consumer_membership.observe.timeline import Timeline, cause_of
from consumer_membership.types import Assignment, GroupProtocol, OffsetAndMetadata, TopicIdPartition, TopicPartition
from tests.admin.builders import group, member, partitions

ID = UUID(int=7)


def ids(*numbers: int) -> Assignment:
    """Return partitions of the topic `t`, by its id."""
    return frozenset(TopicIdPartition(ID, number) for number in numbers)


def has(at: float, name: str, epoch: int, assigned: Assignment, revoking: Assignment = frozenset()) -> LoggedRecord:
    """Return a record of a member's assignment."""
    return LoggedRecord(at, AssignmentRecorded(member_id=name, epoch=epoch, assigned=assigned, revoking=revoking))


def joined(at: float, name: str) -> LoggedRecord:
    """Return a record of a member."""
    return LoggedRecord(at, MemberRecorded(member_id=name, member=member(name)))


def history_of(*records: LoggedRecord, before: tuple[LoggedRecord, ...] = ()) -> GroupHistory:
    """Return the history of the records from 100 s to 110 s."""
    return GroupHistory(
        group_id="g",
        since=100.0,
        until=110.0,
        before=before,
        records=records,
        topic_names={ID: "t"},
        ends={TopicPartition("t", 0): ((100.0, 0), (110.0, 20))},
    )


def test_history_of_consumer_group_yields_its_states() -> None:
    """A partition pending revocation still belongs to its member; epochs determine the group's state."""
    before = (
        LoggedRecord(90.0, GroupEpochRecorded(epoch=1)),
        LoggedRecord(90.0, TargetEpochRecorded(epoch=1)),
        joined(90.0, "m"),
        LoggedRecord(90.0, TargetRecorded(member_id="m", target=ids(0, 1))),
        has(90.0, "m", 1, ids(0, 1)),
    )
    history = history_of(
        joined(102.0, "n"),
        LoggedRecord(102.0, GroupEpochRecorded(epoch=2)),
        LoggedRecord(103.0, TargetRecorded(member_id="m", target=ids(0))),
        LoggedRecord(103.0, TargetRecorded(member_id="n", target=ids(1))),
        LoggedRecord(103.0, TargetEpochRecorded(epoch=2)),
        has(103.0, "m", 1, ids(0), ids(1)),
        has(104.0, "m", 2, ids(0)),
        has(105.0, "n", 2, ids(1)),
        LoggedRecord(108.0, MemberRecorded(member_id="m", member=None)),
        before=before,
    )
    seen = [
        (one.at, one.group.state, {m.member_id: {p.partition for p in m.assignment} for m in one.group.members})
        for one in surveys_of(history, 60.0)
        if one.group is not None
    ]
    assert seen == [
        (100.0, "Stable", {"m": {0, 1}}),
        (102.0, "Assigning", {"m": {0, 1}, "n": set()}),
        (103.0, "Reconciling", {"m": {0, 1}, "n": set()}),
        (104.0, "Reconciling", {"m": {0}, "n": set()}),
        (105.0, "Stable", {"m": {0}, "n": {1}}),
        (108.0, "Stable", {"n": {1}}),
    ]


def test_history_of_classic_group_yields_each_rebalance() -> None:
    """Each rebalance is one record with all members; before the first rebalance there was no group."""
    classic = GroupProtocol.CLASSIC
    one = group(member("m", assigned=partitions(0, 1), protocol=classic), protocol=classic)
    history = history_of(LoggedRecord(104.0, ClassicGroupRecorded(generation=1, group=one)))
    seen = [survey.group for survey in surveys_of(history, 60.0)]
    assert seen[0] is not None
    assert (seen[0].state, seen[1:]) == (NO_GROUP, [one])
    # There was no group before, so the cause is the join.
    assert cause_of(seen[0], one) == "c (m) joined"


def test_history_of_converted_group_yields_one_protocol_at_a_time() -> None:
    """A classic member in a consumer group has its assignment, and each sample has one protocol."""
    classic = GroupProtocol.CLASSIC
    old = group(member("c", assigned=partitions(0, 1), protocol=classic), protocol=classic)
    stays = member("c", protocol=classic)
    history = history_of(
        LoggedRecord(102.0, ClassicGroupRecorded(generation=-1, group=None)),
        LoggedRecord(102.0, MemberRecorded(member_id="c", member=stays)),
        joined(102.0, "n"),
        LoggedRecord(102.0, GroupEpochRecorded(epoch=2)),
        LoggedRecord(102.0, TargetRecorded(member_id="c", target=ids(0))),
        LoggedRecord(102.0, TargetRecorded(member_id="n", target=ids(1))),
        LoggedRecord(102.0, TargetEpochRecorded(epoch=2)),
        has(102.0, "c", 1, ids(0, 1)),
        has(102.0, "n", 2, ids()),
        has(103.0, "c", 2, ids(0)),
        has(104.0, "n", 2, ids(1)),
        has(106.0, "n", -1, ids()),
        LoggedRecord(106.0, TargetRecorded(member_id="n", target=None)),
        LoggedRecord(106.0, MemberRecorded(member_id="n", member=None)),
        LoggedRecord(106.0, MemberRecorded(member_id="c", member=None)),
        LoggedRecord(106.0, TargetEpochRecorded(epoch=None)),
        LoggedRecord(106.0, GroupEpochRecorded(epoch=None)),
        LoggedRecord(106.0, ClassicGroupRecorded(generation=3, group=old)),
        before=(LoggedRecord(90.0, ClassicGroupRecorded(generation=1, group=old)),),
    )
    seen = [
        (one.at, one.group.protocol, {m.member_id: (m.protocol, len(m.assignment)) for m in one.group.members})
        for one in surveys_of(history, 60.0)
        if one.group is not None
    ]
    consumer = GroupProtocol.CONSUMER
    assert seen == [
        (100.0, classic, {"c": (classic, 2)}),
        (102.0, consumer, {"c": (classic, 2), "n": (consumer, 0)}),
        (103.0, consumer, {"c": (classic, 1), "n": (consumer, 0)}),
        (104.0, consumer, {"c": (classic, 1), "n": (consumer, 1)}),
        (106.0, classic, {"c": (classic, 2)}),
    ]


def test_history_samples_commits_at_given_interval() -> None:
    """Each sample has the end offsets of its time, interpolated linearly between two known end offsets."""
    commits = (
        LoggedRecord(
            at, OffsetRecorded(partition=TopicPartition("t", 0), committed=OffsetAndMetadata(offset=round(at - 100)))
        )
        for at in (101.0, 103.0, 107.0)
    )
    timeline = Timeline("g", 10.0, began=100.0)
    for survey in surveys_of(history_of(*commits), 2.0):
        timeline.add(survey, is_exact=True)
    data = timeline.data()
    assert data["columns"] == [0, 2000, 2000, 2000, 1000, 2000]
    assert data["partitions"] == [["t[0]", [0, -1], [], [-1, 4, 2, 4, -2, 4]]]


def test_history_fills_gaps_from_present_state() -> None:
    """Members, assignments, epochs and commits without records have their current values."""
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    here = (
        replace(member("m", assigned=partitions(0), epoch=2), target=partitions(0)),
        replace(member("n", assigned=partitions(1), epoch=2), target=partitions(1)),
    )
    now = GroupPresent(
        group=replace(group(*here), epoch=2, assignment_epoch=2),
        committed={zero: OffsetAndMetadata(offset=7), one: OffsetAndMetadata(offset=9)},
    )
    commit = LoggedRecord(95.0, OffsetRecorded(partition=one, committed=OffsetAndMetadata(offset=5)))
    history = history_of(
        joined(104.0, "n"),
        LoggedRecord(104.0, GroupEpochRecorded(epoch=2)),
        LoggedRecord(104.0, TargetRecorded(member_id="n", target=ids(1))),
        LoggedRecord(104.0, TargetEpochRecorded(epoch=2)),
        has(104.0, "m", 2, ids(0)),
        has(105.0, "n", 2, ids(1)),
        LoggedRecord(108.0, OffsetRecorded(partition=one, committed=OffsetAndMetadata(offset=9))),
        before=(
            LoggedRecord(90.0, GroupEpochRecorded(epoch=1)),
            LoggedRecord(90.0, TargetEpochRecorded(epoch=1)),
            has(90.0, "m", 1, ids(0, 1)),
            commit,
        ),
    )
    surveys = list(surveys_of(replace(history, now=now), 60.0))
    had = [
        {m.member_id: {p.partition for p in m.assignment} for m in survey.group.members}
        for survey in surveys
        if survey.group is not None
    ]
    assert had == [{"m": {0, 1}}, {"m": {0}, "n": set()}, {"m": {0}, "n": {1}}, {"m": {0}, "n": {1}}]
    committed = [
        [found.offset for _, found in sorted(survey.committed.items()) if isinstance(found, OffsetAndMetadata)]
        for survey in surveys
    ]
    assert committed == [[7, 5], [7, 5], [7, 5], [7, 9]]


def test_history_without_records_yields_present_state() -> None:
    """Without records, the only sample has the current state, for groups of both protocols."""
    for protocol in GroupProtocol:
        one = group(member("m", assigned=partitions(0, 1), protocol=protocol), protocol=protocol)
        (survey,) = surveys_of(replace(history_of(), now=GroupPresent(group=one, committed={})), 60.0)
        assert survey.group is not None
        assert [(m.member_id, m.assignment) for m in survey.group.members] == [("m", partitions(0, 1))]


def test_history_without_records_and_present_state_yields_no_samples() -> None:
    """An unknown group, and a group whose records cannot be read, have no samples."""
    assert list(surveys_of(history_of(), 1.0)) == []
