"""`UnfinishedOffsets`: the offset to commit, the metadata, and the records that the next owner skips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import OffsetAndMetadata

#: Brokers' default for offset.metadata.max.bytes.
CAPACITY = 4096


def started(offsets: UnfinishedOffsets, *received: int, leader_epoch: int | None = None) -> list[bool]:
    """Admit and start these records; return for each record whether it is to be processed."""
    admitted = [offsets.admit(offset, leader_epoch) for offset in received]
    for offset, is_new in zip(received, admitted, strict=True):
        assert not is_new or offsets.start(offset)
    return admitted


def owner(start: int | None = 100, capacity: int = CAPACITY) -> UnfinishedOffsets:
    """Return the offsets of an owner that has no metadata from an earlier owner."""
    return UnfinishedOffsets(start, None, capacity)


def next_owner(committed: OffsetAndMetadata | None, capacity: int = CAPACITY) -> UnfinishedOffsets:
    """Return the offsets of the next owner after this commit."""
    assert committed is not None
    finished = decode(committed.metadata, committed.offset)
    return UnfinishedOffsets(committed.offset, finished, capacity, leader_epoch=committed.leader_epoch)


def finished_beyond(commit: OffsetAndMetadata | None) -> set[int]:
    """Return the finished offsets in the metadata of a commit."""
    assert commit is not None
    found = decode(commit.metadata, commit.offset)
    return set() if found is None else set(range(found.base, found.high)) - set(found.unfinished)


# ---- one owner -------------------------------------------------------------------------------------------------------


def test_offsets_base_moves_only_past_finished_records() -> None:
    """`finish` returns True only for the first unfinished record, and the base moves to the next unfinished one."""
    offsets = owner()
    started(offsets, 100, 101, 102, 103)
    assert (offsets.finish(101), offsets.base) == (False, 100)
    assert (offsets.finish(100), offsets.base) == (True, 102)
    assert (offsets.finish(103), offsets.finish(102), offsets.base) == (False, True, 104)
    assert (offsets.unfinished, offsets.finished_beyond) == (0, 0)


def test_offsets_without_committed_offset_begin_at_the_first_record() -> None:
    """Without a committed offset, nothing is committed before the first record; then its offset is committed."""
    offsets = owner(start=None)
    assert (offsets.base, offsets.to_commit()) == (None, None)
    started(offsets, 500)
    assert (offsets.base, offsets.to_commit()) == (500, OffsetAndMetadata(offset=500))


def test_offsets_count_offsets_without_records_as_finished() -> None:
    """Offsets that compaction removed, and transaction markers, never delay a commit."""
    offsets = owner()
    started(offsets, 105, 110, 111)
    assert offsets.base == 105
    offsets.finish(111)
    assert finished_beyond(offsets.to_commit()) == {106, 107, 108, 109, 111}
    assert offsets.finished_beyond == 5
    offsets.finish(105)
    assert offsets.base == 110
    offsets.finish(110)
    assert offsets.base == 112


def test_offsets_ignore_the_end_of_records_that_are_not_unfinished() -> None:
    """A second `finish` of a record changes nothing."""
    offsets = owner()
    started(offsets, 100, 101)
    assert [offsets.finish(100), offsets.finish(100), offsets.finish(99)] == [True, False, False]
    assert (offsets.base, offsets.unfinished) == (101, 1)


def test_offsets_keep_memory_for_unfinished_records_only() -> None:
    """Finished records behind an unfinished record are not kept, and the metadata stays short."""
    offsets = owner(0)
    started(offsets, 0)
    for offset in range(1, 50_000):
        started(offsets, offset)
        offsets.finish(offset)
    commit = offsets.to_commit()
    assert commit is not None
    assert (offsets.unfinished, offsets.finished_beyond, len(commit.metadata)) == (1, 49_999, 20)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_to_commit_returns_none_if_nothing_changed() -> None:
    """A commit that would repeat the last committed offset and metadata is not made."""
    offsets = owner()
    assert offsets.to_commit() is None
    started(offsets, 100, 101)
    assert offsets.to_commit() is None
    offsets.finish(101)
    commit = offsets.to_commit()
    assert commit is not None
    assert offsets.to_commit() == commit
    offsets.committed(commit)
    assert offsets.to_commit() is None


def test_to_commit_includes_records_that_finish_while_a_commit_is_in_flight() -> None:
    """The response to a commit confirms only the records of that commit."""
    offsets = owner()
    started(offsets, 100, 101, 102)
    offsets.finish(100)
    in_flight = offsets.to_commit()
    offsets.finish(101)
    assert in_flight is not None
    offsets.committed(in_flight)
    assert offsets.to_commit() == OffsetAndMetadata(offset=102)


def test_committed_never_goes_back() -> None:
    """The late response to an older commit does not cause another commit of the current offset."""
    offsets = owner()
    started(offsets, 100, 101)
    offsets.finish(100)
    older = offsets.to_commit()
    offsets.finish(101)
    newer = offsets.to_commit()
    assert older is not None
    assert newer is not None
    offsets.committed(newer)
    offsets.committed(older)
    assert offsets.to_commit() is None


def test_to_commit_leaves_foreign_metadata_until_the_base_moves() -> None:
    """A commit of the same offset without finished offsets would only erase another program's metadata."""
    offsets = next_owner(OffsetAndMetadata(offset=100, metadata="of another program"))
    started(offsets, 100)
    assert offsets.to_commit() is None
    offsets.finish(100)
    assert offsets.to_commit() == OffsetAndMetadata(offset=101)


def test_to_commit_has_leader_epoch_of_the_record_before_the_base() -> None:
    """KIP-320: a later leader epoch could hide a truncation; an earlier one would report a false truncation."""
    offsets = UnfinishedOffsets(100, None, CAPACITY, leader_epoch=3)
    started(offsets, 100, 101, leader_epoch=4)
    started(offsets, 102, leader_epoch=6)
    offsets.finish(101)
    commits = [offsets.to_commit()]
    for offset in (100, 102):
        offsets.finish(offset)
        commits.append(offsets.to_commit())
    assert [(one.offset, one.leader_epoch) for one in commits if one] == [(100, 3), (102, 4), (103, 6)]


# ---- the next owner --------------------------------------------------------------------------------------------------


def test_next_owner_skips_exactly_the_finished_records() -> None:
    """The next owner processes the unfinished records, and all records after the last finished one."""
    earlier = owner()
    started(earlier, *range(100, 108))
    for offset in (101, 102, 105):
        earlier.finish(offset)
    offsets = next_owner(earlier.to_commit())
    assert (offsets.base, offsets.unfinished, offsets.to_commit()) == (100, 3, None)
    admitted = dict(zip(range(100, 110), started(offsets, *range(100, 110)), strict=True))
    assert [offset for offset, is_new in admitted.items() if not is_new] == [101, 102, 105]
    assert (offsets.finish(100), offsets.base) == (True, 103)
    assert [offsets.finish(offset) for offset in (103, 104)] == [True, True]
    assert offsets.base == 106


def test_next_owner_commits_beyond_finished_records_before_it_has_received_them() -> None:
    """After the last unfinished record, the whole range of the earlier owner is finished."""
    earlier = owner()
    started(earlier, 100, 101, 102)
    earlier.finish(101)
    earlier.finish(102)
    offsets = next_owner(earlier.to_commit())
    started(offsets, 100)
    assert (offsets.finish(100), offsets.base) == (True, 103)
    assert started(offsets, 101, 102, 103) == [False, False, True]


def test_next_owner_drops_unfinished_records_that_no_longer_exist() -> None:
    """Unfinished offsets whose records compaction or retention removed do not hold back the committed offset."""
    earlier = owner()
    started(earlier, 100, 101, 102, 103, 104)
    for offset in (101, 103):
        earlier.finish(offset)
    offsets = next_owner(earlier.to_commit())
    assert started(offsets, 103) == [False]
    assert (offsets.base, offsets.unfinished) == (104, 0)
    assert started(offsets, 110) == [True]
    assert offsets.base == 110


def test_next_owner_passes_on_what_its_predecessor_finished() -> None:
    """A commit before the first record arrives still lists all offsets that the predecessor finished."""
    earlier = owner()
    started(earlier, 100, 101, 102, 103, leader_epoch=5)
    earlier.finish(101)
    earlier.finish(103)
    offsets = next_owner(earlier.to_commit())
    started(offsets, 100, leader_epoch=4)
    offsets.finish(100)
    commit = offsets.to_commit()
    assert finished_beyond(commit) == {103}
    assert commit is not None
    found = decode(commit.metadata, commit.offset)
    assert found is not None
    assert found.leader_epoch == 5


# ---- restarts at an earlier offset -----------------------------------------------------------------------------------


def with_finished(base: int, finished: int, leader_epoch: int | None = None) -> UnfinishedOffsets:
    """Return the offsets of an owner whose predecessor finished a single record beyond the base."""
    earlier = UnfinishedOffsets(base, None, CAPACITY)
    started(earlier, base, finished, leader_epoch=leader_epoch)
    earlier.finish(finished)
    return next_owner(earlier.to_commit())


def test_records_before_the_committed_offset_end_the_skipping() -> None:
    """If auto.offset.reset moved the consumer back, the log has changed, so no record is skipped."""
    offsets = with_finished(100, 105)
    assert started(offsets, 0) == [True]
    assert (offsets.base, offsets.unfinished) == (0, 1)
    assert started(offsets, *range(1, 110)) == [True] * 109
    assert offsets.to_commit() == OffsetAndMetadata(offset=0)


def test_records_after_the_committed_offset_continue_the_skipping() -> None:
    """If retention removed the committed offset, the consumer starts later in the same log, and skipping continues."""
    offsets = with_finished(100, 105)
    assert started(offsets, 104, 105, 106) == [False, False, True]
    assert offsets.base == 106


def test_truncation_during_ownership_forgets_finished_offsets_from_there_on() -> None:
    """Unfinished records before the truncation stay unfinished, and the records after it are processed again."""
    offsets = owner()
    started(offsets, *range(100, 110), leader_epoch=1)
    for offset in (100, 102, 103, 106, 107):
        offsets.finish(offset)
    assert started(offsets, 104, leader_epoch=2) == [True]
    assert (offsets.base, offsets.unfinished) == (101, 2)
    assert finished_beyond(offsets.to_commit()) == {102, 103}
    assert offsets.finish(108) is False
    assert started(offsets, 105, 106, leader_epoch=2) == [True, True]
    assert [offsets.finish(offset) for offset in (101, 104, 105, 106)] == [True] * 4
    assert offsets.to_commit() == OffsetAndMetadata(offset=107, leader_epoch=2)


def test_truncation_between_owners_is_found_by_its_leader_epoch() -> None:
    """A record below the finished records with a higher leader epoch was written after them, so it is not skipped."""
    offsets = with_finished(100, 105, leader_epoch=3)
    assert started(offsets, 100, 101, leader_epoch=3) == [True, False]
    assert started(offsets, 103, 104, 105, leader_epoch=4) == [True, True, True]
    assert offsets.base == 100
    assert finished_beyond(offsets.to_commit()) == {101, 102}


def test_truncation_between_owners_drops_unfinished_records_that_no_longer_exist() -> None:
    """Unfinished offsets before the truncation that the consumer has passed do not hold back the committed offset."""
    earlier = owner()
    started(earlier, *range(100, 106), leader_epoch=3)
    for offset in (101, 105):
        earlier.finish(offset)
    offsets = next_owner(earlier.to_commit())
    assert started(offsets, 104, leader_epoch=4) == [True]
    assert (offsets.base, offsets.unfinished) == (104, 1)


def test_higher_leader_epoch_after_the_finished_records_is_not_a_truncation() -> None:
    """Only records that the earlier owner could have received show a truncation."""
    offsets = with_finished(100, 105, leader_epoch=3)
    started(offsets, 100, leader_epoch=2)
    assert started(offsets, 105, leader_epoch=3) == [False]
    assert started(offsets, 106, leader_epoch=9) == [True]
    assert offsets.base == 100


def test_commit_follows_the_consumer_to_an_earlier_offset() -> None:
    """After a restart the committed offset is out of range; late responses to older commits must not hide that."""
    offsets = owner()
    started(offsets, 100, 101)
    offsets.finish(100)
    in_flight = offsets.to_commit()
    started(offsets, 0)
    assert in_flight is not None
    offsets.committed(in_flight)
    offsets.finish(0)
    commit = offsets.to_commit()
    assert commit == OffsetAndMetadata(offset=1)
    offsets.committed(commit)
    assert offsets.to_commit() is None


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_start_without_space_for_metadata_allows_only_the_base() -> None:
    """With a limit of 0 or 10 characters, the records of a partition run one after another."""
    for capacity in (0, 10):
        offsets = owner(capacity=capacity)
        for offset in (100, 101, 102):
            offsets.admit(offset)
        for offset in (100, 101, 102):
            assert [one for one in range(offset, 103) if offsets.start(one)] == [offset]
            offsets.finish(offset)
        assert offsets.to_commit() == OffsetAndMetadata(offset=103)


def test_start_allows_a_started_record_to_start_again() -> None:
    """A retry needs no additional space in the metadata."""
    offsets = owner(capacity=40)
    for offset in range(100, 10_000):
        offsets.admit(offset)
    last = next(offset for offset in range(100, 10_000) if not offsets.start(offset)) - 1
    assert offsets.start(last)
    assert not offsets.start(last + 1)


def started_until_full(offsets: UnfinishedOffsets, first: int, every: int) -> int:
    """Start all records and finish all except each `every`-th record; return the first offset that must wait."""
    for offset in range(first, first + 100_000):
        assert offsets.admit(offset)
        if not offsets.start(offset):
            return offset
        if offset % every:
            offsets.finish(offset)
    raise AssertionError("no record had to wait")


@pytest.mark.parametrize("every", [2, 20])
@pytest.mark.parametrize("capacity", [30, 64, 400, CAPACITY])
def test_start_uses_most_of_the_limit_and_never_more(capacity: int, every: int) -> None:
    """The metadata lists all finished offsets; a record must wait only if at least 85% of the limit is used."""
    offsets = owner(0, capacity)
    end = started_until_full(offsets, 0, every)
    commit = offsets.to_commit()
    assert finished_beyond(commit) == {offset for offset in range(end) if offset % every}
    assert commit is not None
    assert 0.85 * capacity <= len(commit.metadata) < capacity


@pytest.mark.parametrize("every", [2, 20])
def test_restart_frees_the_space_of_forgotten_offsets(every: int) -> None:
    """After a restart at an earlier offset, as many records may start as for a new owner in the same state."""
    offsets, other = owner(0, 64), owner(0, 64)
    for one, received in ((offsets, 5000), (other, 4)):
        started(one, 0)
        for offset in range(1, received):
            started(one, offset)
            one.finish(offset)
    assert started_until_full(offsets, 4, every) == started_until_full(other, 4, every)
    assert offsets.to_commit() == other.to_commit()


def test_default_limit_fits_a_thousand_unfinished_records_over_a_million() -> None:
    """With the brokers' default limit, 1,000 unfinished records of a partition never wait for space."""
    offsets = owner(0)
    for offset in range(0, 1_000_000, 20):
        assert offsets.admit(offset)
        assert offsets.start(offset)
        if offset % 1000:
            offsets.finish(offset)
    commit = offsets.to_commit()
    assert commit is not None
    assert (offsets.unfinished, len(finished_beyond(commit))) == (1000, 999_981 - 1000)
    assert len(commit.metadata) < CAPACITY


def test_smaller_capacity_shortens_the_metadata() -> None:
    """If a broker answers OFFSET_METADATA_TOO_LARGE, the next commit has the lowest finished offsets that fit."""
    offsets = owner(0)
    for offset in range(2000):
        started(offsets, offset)
        if offset % 2:
            offsets.finish(offset)
    offsets.capacity = 100
    commit = offsets.to_commit()
    assert commit is not None
    assert 80 < len(commit.metadata) < 100
    found = finished_beyond(commit)
    assert found == set(range(1, 2 * len(found), 2))
    offsets.committed(commit)
    offsets.capacity = 0
    assert offsets.to_commit() == OffsetAndMetadata(offset=0)


def test_terminating_zero_is_part_of_the_limit() -> None:
    """confluent-kafka appends a zero to the metadata, so the text has at most `capacity` - 1 characters."""
    offsets = owner(capacity=19)
    started(offsets, 100, 101)
    offsets.finish(101)
    commit = offsets.to_commit()
    assert commit is not None
    assert len(commit.metadata) == 18
    offsets.capacity = 18
    assert offsets.to_commit() is None


# ---- compared with sets ----------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.data())
def test_offsets_agree_with_sets_over_several_owners(data: st.DataObject) -> None:
    """Never ahead of an unfinished record, never too long, and the next owner skips exactly what had finished.

    Each owner continues from the last commit of the one before it, in a log with gaps.
    """
    log = sorted(data.draw(st.sets(st.integers(10, 400), min_size=1, max_size=120), label="log"))
    capacity = data.draw(st.one_of(st.just(0), st.integers(15, 60), st.just(CAPACITY)), label="capacity")
    committed = OffsetAndMetadata(offset=10)
    done: set[int] = set()
    for _ in range(3):
        offsets = next_owner(committed, capacity)
        to_come = [offset for offset in log if offset >= committed.offset]
        skipped = finished_beyond(committed)
        assert {offset for offset in skipped if offset in log} <= done
        waiting: list[int] = []
        running: list[int] = []
        for action in data.draw(st.lists(st.sampled_from("aaassffc"), max_size=150), label="actions"):
            if action == "a" and to_come:
                offset = to_come.pop(0)
                assert offsets.admit(offset) is (offset not in skipped)
                waiting += [offset] if offset not in skipped else []
            elif action == "s" and waiting:
                offset = waiting[data.draw(st.integers(0, len(waiting) - 1))]
                if offsets.start(offset):
                    waiting.remove(offset)
                    running.append(offset)
                else:
                    assert offset != offsets.base
            elif action == "f" and running:
                offset = running.pop(data.draw(st.integers(0, len(running) - 1)))
                before = offsets.base
                assert offsets.finish(offset) is (offset == before)
                done.add(offset)
            elif action == "c" and (commit := offsets.to_commit()) is not None:
                offsets.committed(commit)
                committed = commit
            assert offsets.base is not None
            assert {offset for offset in log if offset < offsets.base} <= done
            assert not running or offsets.base <= min(running)
        if (commit := offsets.to_commit()) is not None:
            committed = commit
        assert len(committed.metadata) < max(capacity, 1)
        listed = {offset for offset in log if offset < committed.offset} | (finished_beyond(committed) & set(log))
        assert listed == done
