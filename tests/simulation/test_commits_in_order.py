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
    """The member at this epoch."""
    return CommitIdentity(member_id="m", member_epoch=epoch, instance_id=None)


def at(offset: int) -> OffsetAndMetadata:
    """An offset."""
    return OffsetAndMetadata(offset=offset)


class Commits:
    """The commits of one member, each call at its moment; what was emitted since is in `effects`."""

    def __init__(self) -> None:
        self._event = EventContext()
        self.sut = PendingCommits(self._event, MemberSettings(group_id="g"), jitter=lambda: 0.5)

    def at(self, now: float) -> PendingCommits:
        """The commits, in an event at this moment."""
        self._event.begin(now)
        return self.sut

    @property
    def effects(self) -> list[GroupEffect]:
        """What was emitted in this event."""
        return list(self._event.effects())


def stale(commit_id: int, *partitions: TopicPartition) -> CommitAnswered:
    """The coordinator has moved on."""
    return CommitAnswered(
        commit_id=commit_id, verdict=CommitVerdict.STALE_EPOCH, errors=dict.fromkeys(partitions, STALE)
    )


def done(commit_id: int, *partitions: TopicPartition) -> CommitAnswered:
    """Committed."""
    return CommitAnswered(commit_id=commit_id, verdict=CommitVerdict.FINAL, errors=dict.fromkeys(partitions))


def test_commit_that_must_be_repeated_yields_to_a_younger_one() -> None:
    """Sent again after a younger commit of the same partition, an old one would take the committed offset back."""
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


def test_repeated_commit_keeps_the_partitions_that_no_younger_one_has() -> None:
    """Only the partitions that were committed again are left out; they have the younger commit's outcome."""
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


def test_commit_of_a_partition_that_was_revoked_is_not_repeated_even_if_it_came_back() -> None:
    """Its owner in between may have committed further."""
    commits = Commits()
    commits.at(0.0).begin(1, {A: at(10)}, 60.0)
    commits.at(0.0).send_due(identity(1), None)
    commits.at(0.0).revoked([A])
    commits.at(0.1).answered(stale(1, A))
    commits.at(0.1).send_due(identity(3), None)
    assert commits.effects == [CommitCompleted(commit_id=1, offsets={A: at(10)}, errors={A: ASSIGNMENT_LOST})]
