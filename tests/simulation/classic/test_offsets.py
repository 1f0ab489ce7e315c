"""Commits to a classic group and fetches of committed offsets (rules 3.6 and 3.7), on the simulation and on brokers.

Each test runs on the simulated coordinator and, marked integration, on a real coordinator.
"""

from __future__ import annotations

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import Commit, CommitResults, Fetch, Fetched
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.simulation.classic.rule_scene import Sut, gathering, join, rejoin, send_and_see, stable
from tests.simulation.classic.scene import A, sync

#: A character of two UTF-16 code units, and four bytes in UTF-8.
G_CLEF = "\N{MUSICAL SYMBOL G CLEF}"
OFFSETS = {A[0]: OffsetAndMetadata(offset=7)}


def commit(sut: Sut, member_id: str = "", generation: int = -1, partition: TopicPartition = A[0]) -> int:
    """Commit an offset; return the partition's error code."""
    offsets = {partition: OFFSETS[A[0]]}
    answer = sut.call(Commit(member_id=member_id, generation=generation, offsets=offsets))
    assert isinstance(answer, CommitResults), answer
    return answer.codes[partition]


def test_commits_are_fenced_by_member_and_generation(classic: Sut) -> None:
    """Rules 3.6 and 4.7: Commits need the current generation, and are refused while the leader assigns."""
    leader, follower = gathering(classic, join(), join())
    good, old = leader.generation, leader.generation - 1

    def codes() -> list[int]:
        return [
            commit(classic, who, at) for who, at in (("m9", good), (leader.member_id, old), (leader.member_id, good))
        ]

    refusals = [code.UNKNOWN_MEMBER_ID, code.ILLEGAL_GENERATION]
    assert codes() == [*refusals, code.REBALANCE_IN_PROGRESS]
    classic.call(sync(leader))
    assert codes() == [*refusals, 0]
    send_and_see(classic, "follower", rejoin(join(topics=("b",)), follower))
    assert codes() == [*refusals, 0]


def test_commits_without_a_member_are_accepted_only_in_an_empty_group(classic: Sut) -> None:
    """Rules 3.6: A commit without a member (manual assignment) needs an empty group, and creates a missing group."""
    assert commit(classic, "m9", 3) == code.GROUP_ID_NOT_FOUND
    assert commit(classic) == 0
    assert commit(classic, "m9", 3) == code.UNKNOWN_MEMBER_ID
    (leader,) = stable(classic, join())
    assert commit(classic) == code.UNKNOWN_MEMBER_ID
    assert commit(classic, leader.member_id) == code.ILLEGAL_GENERATION


def test_committed_offsets_are_returned_without_a_member_check(classic: Sut) -> None:
    """Rules 3.7: OffsetFetch returns committed offsets without a member check, also of a group that does not exist."""
    wanted = Fetch(partitions=frozenset(A[:2]))
    assert classic.call(wanted) == Fetched(offsets=dict.fromkeys(A[:2]))
    assert commit(classic) == 0
    committed = Fetched(offsets={A[0]: OFFSETS[A[0]], A[1]: None})
    stable(classic, join())
    strange = Fetch(partitions=wanted.partitions, member_id="m9", member_epoch=3)
    assert [classic.call(one) for one in (wanted, strange)] == [committed, committed]


def test_committed_offsets_of_a_deleted_topic_are_removed(classic: Sut) -> None:
    """Rules 3.7: The offsets of a deleted topic are removed, and its commits get UNKNOWN_TOPIC_OR_PARTITION."""
    topic = classic.create_topic(1)
    partition = TopicPartition(topic.name, 0)
    wanted = Fetch(partitions=frozenset({partition}))
    assert commit(classic, partition=partition) == 0
    assert classic.call(wanted) == Fetched(offsets={partition: OFFSETS[A[0]]})
    classic.delete_topic(topic)
    classic.until(lambda: classic.call(wanted) == Fetched(offsets={partition: None}))
    assert commit(classic, partition=partition) == code.UNKNOWN_TOPIC_OR_PARTITION


def test_commit_with_too_long_metadata_is_refused_for_its_partition(classic: Sut) -> None:
    """Rules 3.6: Metadata may have up to offset.metadata.max.bytes (4096) UTF-16 code units."""
    kept, refused = A[0], A[1]
    offsets = {
        kept: OffsetAndMetadata(offset=7, metadata=G_CLEF * 2048),
        refused: OffsetAndMetadata(offset=7, metadata=G_CLEF * 2048 + "m"),
    }
    assert classic.call(Commit(offsets=offsets)) == CommitResults(
        codes={kept: 0, refused: code.OFFSET_METADATA_TOO_LARGE}
    )
    wanted = Fetch(partitions=frozenset(offsets))
    assert classic.call(wanted) == Fetched(offsets={kept: offsets[kept], refused: None})
