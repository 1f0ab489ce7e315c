"""Commits to a classic group, and what is read back (rules 3.6 and 3.7)."""

from __future__ import annotations

from consumer_membership.types import OffsetAndMetadata
from tests.simulation import rules as code
from tests.simulation.classic.scene import A, answer, ask, coordinator, gathering, join, journal, stable, sync
from tests.simulation.exchanges import Commit, CommitResults, Fetch, Fetched
from tests.simulation.journal import Committed

OFFSETS = {A[0]: OffsetAndMetadata(offset=7)}


def commit(member_id: str = "", generation: int = -1) -> Commit:
    """A commit of one offset."""
    return Commit(member_id=member_id, generation=generation, offsets=OFFSETS)


def test_commits_are_fenced_by_member_and_generation() -> None:
    """Rules 3.6 and 4.7: and refused while the leader assigns; in the join phase they count."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    member_id = leader.member_id

    def codes(*commits: Commit) -> list[int]:
        return [given.codes[A[0]] for one in commits if isinstance(given := answer(sut, one), CommitResults)]

    good, strange, old = commit(member_id, 1), commit("m9", 1), commit(member_id, 0)
    refusals = [code.UNKNOWN_MEMBER_ID, code.ILLEGAL_GENERATION]
    assert codes(strange, old, good) == [*refusals, code.REBALANCE_IN_PROGRESS]
    ask(sut, 1, sync(leader))
    assert codes(strange, old, good) == [*refusals, 0]
    ask(sut, 2, join(follower.member_id, topics=("b",)))
    assert codes(strange, old, good) == [*refusals, 0]
    assert [entry.generation for entry in journal(sut, Committed)] == [1, 1]


def test_accepted_commit_counts_as_a_heartbeat() -> None:
    """Rules 3.6."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    answer(sut, commit(leader.member_id, 1), 7.0)
    assert sut.next_deadline() == 17.0


def test_commits_without_a_member_count_in_an_empty_group_only() -> None:
    """Rules 3.6: a consumer that assigns by hand; a group that is not there is made for it."""
    sut = coordinator()
    assert answer(sut, commit("m9", 3)) == CommitResults(codes={A[0]: code.GROUP_ID_NOT_FOUND})
    assert answer(sut, commit()) == CommitResults(codes={A[0]: 0})
    assert answer(sut, commit("m9", 3)) == CommitResults(codes={A[0]: code.UNKNOWN_MEMBER_ID})
    (leader,) = stable(sut, join())
    assert answer(sut, commit()) == CommitResults(codes={A[0]: code.UNKNOWN_MEMBER_ID})
    assert answer(sut, commit(leader.member_id)) == CommitResults(codes={A[0]: code.ILLEGAL_GENERATION})


def test_committed_offsets_are_read_without_looking_at_members() -> None:
    """Rules 3.7: also where there is no such group; a deleted topic's are gone."""
    sut = coordinator()
    wanted = Fetch(partitions=frozenset(A[:2]))
    assert answer(sut, wanted) == Fetched(offsets=dict.fromkeys(A[:2]))
    answer(sut, commit())
    assert answer(sut, wanted) == Fetched(offsets={A[0]: OFFSETS[A[0]], A[1]: None})
    sut.delete_topic("a")
    assert answer(sut, wanted) == Fetched(offsets=dict.fromkeys(A[:2]))
    assert answer(sut, commit()) == CommitResults(codes={A[0]: code.UNKNOWN_TOPIC_OR_PARTITION})
