"""The doctor's rules, tested with values: states without a fault, and faults that a test cannot cause on a broker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from consumer_membership.admin import GroupSurvey, Subject, TopicSurvey
from consumer_membership.cli.doctor import findings_json, findings_text
from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.findings import Cause, FindingSeverity, GroupFinding, ranked
from consumer_membership.observe.observation import Observation
from consumer_membership.translation.offset_metadata import FinishedOffsets, encode
from consumer_membership.types import GroupProtocol, OffsetAndMetadata, TopicPartition
from tests.admin.builders import group, member, partitions
from tests.observe.builders import refusal, seen, survey

ONE = group(member("m", assigned=partitions(0), epoch=6))


def first(observation: Observation) -> Cause:
    """Return the cause of the first finding."""
    return diagnose(observation)[0].cause


def test_doctor_reports_reading_group_as_well() -> None:
    """A group with lag that progresses is healthy."""
    watched = seen(survey(ONE, {0: (5, 10)}), survey(ONE, {0: (8, 12)}, at=12.0))
    assert [one.cause for one in diagnose(watched)] == [Cause.HEALTHY]


def test_doctor_does_not_report_idle_partition_as_stalled() -> None:
    """A partition without unread records is not stalled; without commits, its reader may have begun at its end."""
    for committed in (10, None):
        watched = seen(survey(ONE, {0: (committed, 10)}), survey(ONE, {0: (committed, 10)}, at=60.0))
        assert first(watched) is Cause.HEALTHY


def test_doctor_does_not_report_lag_of_one_transaction_marker_as_stall() -> None:
    """A transaction marker keeps the committed offset one below the end. Without new records, this proves nothing."""
    before = survey(ONE, {0: (9, 10)})
    assert first(seen(before, survey(ONE, {0: (9, 10)}, at=12.0))) is Cause.HEALTHY
    assert first(seen(before, survey(ONE, {0: (9, 11)}, at=12.0))) is Cause.MEMBER_STALLED
    two = {0: (9, 10), 1: (4, 10)}
    held = group(member("m", assigned=partitions(0, 1), epoch=6))
    (standing,) = (
        one
        for one in diagnose(seen(survey(held, two), survey(held, two, at=12.0)))
        if one.severity is FindingSeverity.CRITICAL
    )
    assert "t[0]" not in " ".join(standing.evidence)


def test_doctor_reports_manually_assigned_reader_as_well() -> None:
    """A program with manually assigned partitions commits without group members, and no partition stalls."""
    empty = replace(group(), state="Empty")
    before, day = survey(empty, {0: (5, 10)}), {"offsets.retention.minutes": "1440"}
    watched = seen(before, survey(empty, {0: (8, 12)}, at=12.0, broker_settings=day))
    assert [one.cause for one in diagnose(watched)] == [Cause.COMMITS_WITHOUT_MEMBERS, Cause.HEALTHY]
    assert first(seen(before, survey(empty, {0: (5, 12)}, at=12.0))) is Cause.NO_MEMBERS
    # A member was in the group at first and may have made the commits.
    assert first(seen(survey(ONE, {0: (5, 10)}), survey(empty, {0: (8, 12)}, at=12.0))) is Cause.NO_MEMBERS


def test_doctor_reports_stall_only_after_time_or_new_records() -> None:
    """Two samples within a second prove nothing about a member that commits every five seconds."""
    before = survey(ONE, {0: (5, 10)})
    assert first(seen(before)) is Cause.HEALTHY
    assert first(seen(before, survey(ONE, {0: (5, 10)}, at=1.0))) is Cause.HEALTHY
    assert first(seen(before, survey(ONE, {0: (5, 10)}, at=8.0))) is Cause.MEMBER_STALLED
    assert first(seen(before, survey(ONE, {0: (5, 11)}, at=1.0))) is Cause.MEMBER_STALLED


def held_back(unfinished: tuple[int, ...], high: int, end: int, at: float = 0.0) -> GroupSurvey:
    """Return a survey of a member that has finished the other offsets from the first unfinished one up to `high`."""
    finished = FinishedOffsets(base=unfinished[0], high=high, unfinished=unfinished)
    committed = OffsetAndMetadata(offset=finished.base, metadata=encode(finished, 4095))
    offsets = survey(ONE, {0: (finished.base, end)}, at=at)
    return replace(offsets, committed={TopicPartition("t", 0): committed})


def test_doctor_reports_record_that_holds_back_committed_offset() -> None:
    """The finding names the offset and how many later ones are finished; the partition itself is not stalled."""
    (found,) = diagnose(seen(held_back((5,), 8, 20), held_back((5, 9), 18, 20, at=12.0)))
    assert (found.cause, found.severity, found.subject) == (
        Cause.COMMIT_HELD_BACK,
        FindingSeverity.WARNING,
        "t[0]",
    )
    assert found.explanation.startswith("the record at offset 5 is not finished")
    assert "11 later offsets are finished" in found.explanation
    assert found.evidence[:2] == (
        "committed offset 5 (unchanged for 12 s)",
        "finished up to offset 17, except 1 other offset",
    )


def test_doctor_reports_held_back_offset_only_after_time_or_progress() -> None:
    """Records that finish out of order are normal; only a committed offset that does not move is reported."""
    early = held_back((5,), 18, 18)
    assert first(seen(early)) is Cause.HEALTHY
    assert first(seen(early, held_back((5,), 18, 18, at=1.0))) is Cause.HEALTHY
    assert first(seen(early, held_back((6,), 18, 18, at=12.0))) is Cause.HEALTHY
    assert first(seen(early, held_back((5,), 18, 18, at=12.0))) is Cause.COMMIT_HELD_BACK
    assert first(seen(early, held_back((5,), 19, 19, at=1.0))) is Cause.COMMIT_HELD_BACK


def test_doctor_reports_held_back_partition_as_stalled_if_other_records_wait() -> None:
    """If the partition also has records that the member has not received, the member no longer finishes records."""
    causes = [one.cause for one in diagnose(seen(held_back((5,), 18, 30), held_back((5,), 18, 30, at=12.0)))]
    assert causes == [Cause.MEMBER_STALLED, Cause.COMMIT_HELD_BACK]


def test_doctor_measures_pace_by_finished_records() -> None:
    """A lag that grows only because a record holds back the committed offset is not slow consumption."""
    growing = seen(held_back((5,), 18, 20), held_back((5,), 2018, 2020, at=12.0))
    assert [one.cause for one in diagnose(growing)] == [Cause.COMMIT_HELD_BACK]


def test_doctor_distinguishes_stale_target_from_rebalance() -> None:
    """A stable group whose epochs match but whose target lacks a partition has a stale target."""
    offsets: dict[int, tuple[int | None, int]] = {0: (0, 0), 1: (0, 0)}
    assert first(seen(survey(ONE, offsets))) is Cause.STALE_TARGET
    assert first(seen(survey(replace(ONE, state="Reconciling"), offsets))) is Cause.HEALTHY
    classic = group(member("m", assigned=partitions(0), protocol=GroupProtocol.CLASSIC), protocol=GroupProtocol.CLASSIC)
    assert first(seen(survey(classic, offsets))) is Cause.PARTITION_UNASSIGNED


def test_doctor_distinguishes_omitted_member_from_idle_one() -> None:
    """The broker's assignors give each subscriber a partition before any subscriber receives a second one."""
    offsets: dict[int, tuple[int | None, int]] = {0: (0, 0), 1: (0, 0)}
    idle = member("idle", assigned=frozenset(), target=frozenset())
    crowded = member("m", assigned=partitions(0, 1), target=partitions(0, 1))
    assert first(seen(survey(group(idle, crowded), offsets))) is Cause.STALE_TARGET
    others = replace(idle, topics=frozenset({"another"}))
    assert first(seen(survey(group(others, crowded), offsets))) is Cause.MIXED_SUBSCRIPTIONS
    plugged = replace(group(idle, crowded), assignor="of-our-own")
    assert first(seen(survey(plugged, offsets))) is Cause.HEALTHY
    one = member("m", assigned=partitions(0), target=partitions(0))
    assert first(seen(survey(group(idle, one), {0: (0, 0)}))) is Cause.TOO_MANY_MEMBERS


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("COORDINATOR_NOT_AVAILABLE", "", Cause.COORDINATOR_UNAVAILABLE),
        ("COORDINATOR_LOAD_IN_PROGRESS", "", Cause.COORDINATOR_UNAVAILABLE),
        ("_TIMED_OUT", "no answer", Cause.COORDINATOR_UNAVAILABLE),
        ("GROUP_AUTHORIZATION_FAILED", "", Cause.GROUP_AUTHORIZATION_FAILED),
        ("GROUP_ID_NOT_FOUND", "Group g not found.", Cause.GROUP_NOT_FOUND),
        ("GROUP_ID_NOT_FOUND", "Group g is not a classic group.", Cause.UNSUPPORTED_GROUP_TYPE),
    ],
)
def test_doctor_reports_reason_of_refused_group_description(name: str, message: str, expected: Cause) -> None:
    """If the group cannot be described, the first finding is the reason, because nothing else is known."""
    refused = survey(None, refusals={Subject.GROUP: refusal(name, message)})
    assert first(seen(refused)) is expected


def test_doctor_ranks_offline_partition_critical_and_deleted_topic_as_note() -> None:
    """A partition without leader explains a stalled member; a deleted topic is only a note."""
    offline = TopicSurvey(leaders={0: None}, is_internal=False, error=None)
    standing = survey(ONE, {0: (5, 10)}), survey(ONE, {0: (5, 12)}, at=12.0, topics={"t": offline})
    found = diagnose(seen(*standing))
    assert [one.cause for one in found] == [Cause.PARTITION_OFFLINE, Cause.MEMBER_STALLED]
    gone = TopicSurvey(leaders={}, is_internal=False, error=refusal("UNKNOWN_TOPIC_OR_PARTITION"))
    findings = diagnose(seen(survey(ONE, {0: (1, 1)}, topics={"gone": gone})))
    assert [one.cause for one in findings] == [Cause.TOPIC_DELETED, Cause.HEALTHY]


def test_ranked_orders_findings_by_urgency_then_cause() -> None:
    """Of two equally urgent findings, the one that explains the other comes first."""

    def finding(severity: FindingSeverity, cause: Cause) -> GroupFinding:
        return GroupFinding(severity=severity, cause=cause, subject="s", explanation="e")

    given = [
        finding(FindingSeverity.INFO, Cause.GROUP_NOT_FOUND),
        finding(FindingSeverity.CRITICAL, Cause.MEMBER_STALLED),
        finding(FindingSeverity.CRITICAL, Cause.OPEN_TRANSACTION),
    ]
    assert ranked(given) == (given[2], given[1], given[0])


def test_findings_print_as_text_or_json() -> None:
    """A finding has title, evidence and fix; programs may rely on the name of its cause."""
    watched = seen(survey(ONE, {0: (5, 10)}), survey(ONE, {0: (5, 12)}, at=12.0))
    findings = diagnose(watched)
    lines = list(findings_text(watched, findings))
    assert lines[:3] == [
        "Group g, Stable: observed for 12 s, 2 samples",
        "",
        "1. CRITICAL  member is stalled: client c on 10.0.0.1 (member m)",
    ]
    assert "   - t[0]: committed offset 5 (unchanged), end 10 -> 12" in lines
    document = json.loads(findings_json(watched, findings))
    assert [(one["cause"], one["severity"]) for one in document["findings"]] == [("member_stalled", "critical")]
