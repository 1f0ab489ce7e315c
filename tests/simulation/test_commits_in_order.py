"""Committed offsets never go back: bugs of repeated commits that the simulation found."""

from __future__ import annotations

from consumer_membership.membership.effects import CommitCompleted, CommitIdentity, CommitOffsets
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import CommitAnswered, CommitVerdict
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, PendingCommits
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)
STALE = BrokerError(code=113, name="STALE_MEMBER_EPOCH")


def identity(epoch: int) -> CommitIdentity:
    """Return the identity of the member at this epoch."""
    return CommitIdentity(member_id="m", member_epoch=epoch, instance_id=None)


def at(offset: int) -> OffsetAndMetadata:
    """Return this offset without metadata."""
    return OffsetAndMetadata(offset=offset)


class Commits:
    """The pending commits of one member; `at` sets the time, and `effects` has the effects since then."""

    def __init__(self) -> None:
        self._event = EventContext()
        self.sut = PendingCommits(self._event, MemberSettings(group_id="g"), jitter=lambda: 0.5)

    def at(self, now: float) -> PendingCommits:
        """Begin an event at this time, and return the commits."""
        self._event.begin(now)
        return self.sut

    @property
    def effects(self) -> list[GroupEffect]:
        """The effects of this event."""
        return list(self._event.effects())


def stale(commit_id: int, *partitions: TopicPartition) -> CommitAnswered:
    """Return the response to a commit with a stale epoch."""
    return CommitAnswered(
        commit_id=commit_id, verdict=CommitVerdict.STALE_EPOCH, errors=dict.fromkeys(partitions, STALE)
    )


def done(commit_id: int, *partitions: TopicPartition) -> CommitAnswered:
    """Return the response to a successful commit."""
    return CommitAnswered(commit_id=commit_id, verdict=CommitVerdict.FINAL, errors=dict.fromkeys(partitions))


def test_repeated_commit_is_dropped_for_a_newer_commit() -> None:
    """A failed commit is not repeated after a newer commit of the same partition, whose offset it would overwrite."""
    commits = Commits()
    commits.at(0.0).begin(1, {A: at(10)}, 60.0)
    commits.at(0.0).send_due(identity(1), None)
    commits.at(0.0).begin(2, {A: at(20)}, 60.0)
    commits.at(0.1).send_due(identity(2), None)
    commits.at(0.2).answered(stale(1, A))
    commits.at(0.2).send_due(identity(2), None)
    assert (commits.effects, commits.sut.next_deadline(identity(2))) == ([], 60.0)
    commits.at(0.3).answered(done(2, A))
    commits.at(0.3).send_due(identity(2), None)
    assert commits.effects == [CommitCompleted(commit_id=1, offsets={A: at(10)}, errors={A: None})]


def test_repeated_commit_keeps_partitions_without_a_newer_commit() -> None:
    """A repeated commit omits only partitions with a newer commit, whose outcome they get."""
    commits = Commits()
    commits.at(0.0).begin(1, {A: at(10), B: at(5)}, 60.0)
    commits.at(0.0).begin(2, {A: at(20)}, 60.0)
    commits.at(0.0).send_due(identity(1), None)
    commits.at(0.1).answered(stale(1, A, B))
    commits.at(0.1).answered(done(2, A))
    commits.at(0.1).send_due(identity(2), None)
    (again,) = commits.effects
    assert isinstance(again, CommitOffsets)
    assert again.offsets == {B: at(5)}
    commits.at(0.2).answered(done(1, B))
    assert commits.effects == [CommitCompleted(commit_id=1, offsets={A: at(10), B: at(5)}, errors={A: None, B: None})]


def test_commit_of_a_revoked_and_reassigned_partition_is_not_repeated() -> None:
    """A commit is not repeated after its partition was revoked, because another owner may have committed more."""
    commits = Commits()
    commits.at(0.0).begin(1, {A: at(10)}, 60.0)
    commits.at(0.0).send_due(identity(1), None)
    commits.at(0.0).revoked([A])
    commits.at(0.1).answered(stale(1, A))
    commits.at(0.1).send_due(identity(3), None)
    assert commits.effects == [CommitCompleted(commit_id=1, offsets={A: at(10)}, errors={A: ASSIGNMENT_LOST})]
