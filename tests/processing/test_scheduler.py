"""Rules of the scheduler: order within lanes, turns between lanes, limits, retries, revocations and commits."""

from __future__ import annotations

import pytest

from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler
from consumer_membership.types import OffsetAndMetadata
from tests.processing.records import A, B, offsets_of, record, records, scheduler_of, take_all, taken

KEY, PARTITION, NONE = ProcessingOrder.KEY, ProcessingOrder.PARTITION, ProcessingOrder.NONE
FAILED = ValueError("failed")


def committable(scheduler: Scheduler) -> dict[int, int]:
    """Return the offset to commit of each partition, by its number."""
    return {partition.partition: at.offset for partition, at in scheduler.commits().items()}


# ---- order ----


@pytest.mark.parametrize(
    ("order", "first_round"),
    [(KEY, [[0], [1]]), (PARTITION, [[0]]), (NONE, [[0], [1], [2], [3]])],
)
def test_take_returns_the_records_that_may_run_at_the_same_time(
    order: ProcessingOrder, first_round: list[list[int]]
) -> None:
    """Records of one key or of one partition run one after another; without an order, all records run together."""
    scheduler = scheduler_of(order)
    scheduler.admit(records("a", "b", "a", "b"), 0.0)
    assert [offsets_of(task) for task in take_all(scheduler)] == first_round


def test_records_without_a_key_run_one_after_the_other() -> None:
    """Records without a key form one lane for each partition."""
    scheduler = scheduler_of()
    scheduler.admit(records(None, None, "a") + records(None, partition=B), 0.0)
    assert sorted((task.owned.partition, offsets_of(task)) for task in take_all(scheduler)) == [
        (A, [0]),
        (A, [2]),
        (B, [0]),
    ]


def test_lane_continues_after_its_task_has_finished() -> None:
    """The next record of a key runs when the one before it has finished, in the order of the offsets."""
    scheduler = scheduler_of()
    scheduler.admit(records("a", "a", "a"), 0.0)
    order = []
    while (task := scheduler.take(0.0)) is not None:
        order += offsets_of(task)
        assert scheduler.take(0.0) is None
        scheduler.finish(task, 0.0)
    assert order == [0, 1, 2]


def test_hot_key_takes_turns_with_other_keys() -> None:
    """Even if one key has many records, each other key waits for one of them at most."""
    scheduler = scheduler_of()
    scheduler.admit(records(*["hot"] * 50, "a", "b", "a", "b"), 0.0)
    ran = []
    for _ in range(6):
        task = taken(scheduler)
        ran.append(task.messages[0].key())
        scheduler.finish(task, 0.0)
    assert ran == [b"hot", b"a", b"b", b"hot", b"a", b"b"]


def test_partitions_take_turns() -> None:
    """Even if one partition has many keys, another partition waits for one of its records at most."""
    scheduler = scheduler_of()
    scheduler.admit(records(*"abcdef") + records("a", "b", partition=B), 0.0)
    assert [task.owned.partition for task in take_all(scheduler)][:4] == [A, B, A, B]


# ---- retries ----


def test_failed_record_delays_only_its_own_key() -> None:
    """The lane of a failed record stays locked until the next attempt; other lanes continue."""
    scheduler = scheduler_of()
    scheduler.admit(records("a", "a", "b", "b"), 0.0)
    failed, other = take_all(scheduler)
    scheduler.retry(failed, 5.0, FAILED)
    scheduler.finish(other, 0.0)
    assert [offsets_of(task) for task in take_all(scheduler, 4.9)] == [[3]]
    assert scheduler.next_at == 5.0
    again = taken(scheduler, 5.0)
    assert (again.attempt, offsets_of(again), again.last_error) == (2, [0], FAILED)
    scheduler.finish(again, 5.0)
    assert offsets_of(taken(scheduler, 5.0)) == [1]


def test_failed_batch_is_split_so_that_only_the_bad_record_fails() -> None:
    """Each record of a split batch runs alone, in the order of its lane; then batches continue."""
    scheduler = scheduler_of(max_batch=4)
    scheduler.admit(records("a", "b", "a", "a", "a", "a"), 0.0)
    batch = taken(scheduler)
    assert offsets_of(batch) == [0, 2, 3, 4]
    scheduler.split(batch, 0.0)
    ran = []
    while (task := scheduler.take(0.0)) is not None:
        ran.append(offsets_of(task))
        scheduler.finish(task, 0.0)
    assert [offsets for offsets in ran if 1 not in offsets] == [[0], [2], [3], [4], [5]]


@pytest.mark.parametrize("splits", [[0, 1], [1, 0]])
@pytest.mark.parametrize("order", [KEY, NONE])
def test_records_of_split_batches_run_although_later_records_wait_for_metadata(
    order: ProcessingOrder, splits: list[int]
) -> None:
    """The record that holds back the committed offset always runs, whatever the order in which batches fail."""
    scheduler = scheduler_of(order, max_batch=2)
    scheduler.admit(records("a", "b", "c", "d", "e"), 0.0)
    batches = [taken(scheduler), taken(scheduler)]
    scheduler.partitions[A].offsets.capacity = 0
    assert scheduler.take(0.0) is None
    for number in splits:
        scheduler.split(batches[number], 0.0)
    ran = []
    while (task := scheduler.take(0.0)) is not None:
        ran += offsets_of(task)
        scheduler.finish(task, 0.0)
    assert sorted(ran) == [0, 1, 2, 3, 4]


# ---- batches ----


def test_batch_has_records_of_one_partition_and_of_several_keys() -> None:
    """A batch takes records from the ready lanes of one partition, in the order of each lane."""
    scheduler = scheduler_of(max_batch=10)
    scheduler.admit(records("a", "b", "a") + records("a", partition=B), 0.0)
    assert [(task.owned.partition, offsets_of(task)) for task in take_all(scheduler)] == [(A, [0, 2, 1]), (B, [0])]


def test_small_batch_waits_for_more_records() -> None:
    """A batch that is not full starts after max_wait; a full batch starts immediately."""
    scheduler = scheduler_of(max_batch=3, max_wait_s=2.0)
    scheduler.admit(records("a", "b"), 10.0)
    assert scheduler.take(11.9) is None
    assert scheduler.next_at == 12.0
    scheduler.admit([record(2, "c")], 11.9)
    assert offsets_of(taken(scheduler, 11.9)) == [0, 1, 2]
    scheduler.admit([record(3, "d")], 20.0)
    assert scheduler.take(21.9) is None
    assert offsets_of(taken(scheduler, 22.0)) == [3]


# ---- bounds ----


def test_full_partition_is_paused_until_half_of_its_records_are_finished() -> None:
    """A partition with max_queued records in hand is paused, and resumed when half of them have finished."""
    scheduler = scheduler_of(NONE, max_queued=4)
    scheduler.admit(records("a", "b", "c"), 0.0)
    assert not scheduler.has_full
    scheduler.admit([record(3, "d")], 0.0)
    assert scheduler.pause_full() == [A]
    tasks = take_all(scheduler)
    scheduler.finish(tasks[0], 0.0)
    assert not scheduler.has_space
    scheduler.finish(tasks[1], 0.0)
    assert scheduler.resume_spacious() == [A]


def test_record_waits_while_the_metadata_of_a_commit_could_not_describe_it() -> None:
    """Records far beyond the committed offset wait until the record that holds it back has finished."""
    scheduler = scheduler_of(NONE, capacity=0)
    scheduler.admit(records("a", "b", "c"), 0.0)
    first = taken(scheduler)
    assert scheduler.take(0.0) is None
    scheduler.finish(first, 0.0)
    assert offsets_of(taken(scheduler)) == [1]


# ---- commits ----


def test_commit_ends_before_the_first_unfinished_record() -> None:
    """The committed offset never passes an unfinished record; the metadata lists the finished records beyond it."""
    scheduler = scheduler_of(NONE)
    scheduler.admit(records("a", "b", "c"), 0.0)
    first, second, third = take_all(scheduler)
    scheduler.finish(third, 0.0)
    scheduler.finish(second, 0.0)
    found = scheduler.commits()
    assert found[A].offset == 0
    assert found[A].metadata
    scheduler.finish(first, 0.0)
    assert scheduler.commits([A]) == {A: OffsetAndMetadata(offset=3, leader_epoch=0, metadata="")}
    scheduler.committed(scheduler.commits([A]))
    assert A not in scheduler.commits()


# ---- revocations ----


def test_closing_partition_starts_nothing_and_counts_its_running_tasks() -> None:
    """After close, queued records and retries of the partition are dropped; running tasks may finish."""
    scheduler = scheduler_of()
    scheduler.admit(records("a", "b", "a"), 0.0)
    running, failed = take_all(scheduler)
    scheduler.retry(failed, 1.0, FAILED)
    scheduler.close([A])
    assert scheduler.take(2.0) is None
    assert not scheduler.is_drained([A])
    scheduler.finish(running, 2.0)
    assert scheduler.is_drained([A])
    assert scheduler.take(2.0) is None
    assert committable(scheduler)[0] == 1


def test_lane_of_a_closed_partition_forgets_its_split_batch() -> None:
    """The lane is reused for another key, whose records run in batches although a batch of the earlier key failed."""
    scheduler = scheduler_of(max_batch=2)
    scheduler.admit(records("a", "a"), 0.0)
    scheduler.split(taken(scheduler), 0.0)
    first = taken(scheduler)
    scheduler.close([A])
    scheduler.finish(first, 0.0)
    scheduler.admit(records("b", "b", partition=B), 0.0)
    assert offsets_of(taken(scheduler)) == [0, 1]


def test_record_that_fails_while_its_partition_closes_stays_unfinished() -> None:
    """The next owner processes a record whose attempt failed during a revocation."""
    scheduler = scheduler_of()
    scheduler.admit(records("a"), 0.0)
    task = taken(scheduler)
    scheduler.close([A])
    assert not scheduler.retry(task, 1.0, FAILED)
    assert scheduler.is_drained([A])
    assert committable(scheduler).get(0, 0) == 0


def test_result_of_a_disowned_task_is_ignored() -> None:
    """A task whose partition was released changes nothing when it ends, also after the partition has returned."""
    scheduler = scheduler_of()
    scheduler.admit(records("a", "a"), 0.0)
    task = taken(scheduler)
    assert scheduler.release([A]) == [task]
    assert (task.is_disowned, task.is_cancelled) == (True, True)
    returned = scheduler_of()
    scheduler.assign(A, 9, returned.partitions[A].offsets)
    scheduler.admit(records("a", "a"), 0.0)
    assert not scheduler.finish(task, 0.0)
    assert not scheduler.retry(task, 0.0, FAILED)
    assert offsets_of(taken(scheduler)) == [0]


def test_records_of_other_partitions_are_dropped() -> None:
    """Records that were buffered before their partition was released are not processed."""
    scheduler = scheduler_of()
    scheduler.release([A])
    scheduler.admit(records("a"), 0.0)
    assert scheduler.take(0.0) is None


# ---- truncated logs ----


@pytest.mark.parametrize("order", list(ProcessingOrder))
def test_records_that_arrive_again_replace_the_earlier_ones(order: ProcessingOrder) -> None:
    """After a truncation the partition continues at an earlier offset, and later records in hand are dropped."""
    scheduler = scheduler_of(order)
    scheduler.admit(records("a", "a", "a", "a"), 0.0)
    running = take_all(scheduler)
    scheduler.admit([record(2, "a"), record(3, "b")], 0.0)
    assert [offsets_of(task) for task in scheduler.orphans] == [
        offsets for task in running if (offsets := offsets_of(task)) >= [2]
    ]
    ran = []
    pending = [task for task in running if not task.is_disowned]
    while pending:
        task = pending.pop(0)
        ran += offsets_of(task)
        scheduler.finish(task, 0.0)
        pending += take_all(scheduler)
    assert sorted(ran) == [0, 1, 2, 3]
    assert committable(scheduler)[0] == 4


def test_batch_that_fails_after_later_records_arrived_again_is_split() -> None:
    """Without an order, running tasks of earlier records belong to the same lane as the records that arrive again."""
    scheduler = scheduler_of(NONE, max_batch=2)
    scheduler.admit(records("a", "b", "c"), 0.0)
    batch = taken(scheduler)
    scheduler.admit([record(2, "d")], 0.0)
    scheduler.split(batch, 0.0)
    assert sorted(offset for task in take_all(scheduler) for offset in offsets_of(task)) == [0, 1, 2]


# ---- handlers beyond their timeout ----


def test_overdue_returns_the_tasks_that_began_long_ago() -> None:
    """Attempts that began at least the timeout ago are overdue; a retry starts the time again."""
    scheduler = scheduler_of(NONE)
    scheduler.admit(records("a", "b"), 0.0)
    old = taken(scheduler, 1.0)
    young = taken(scheduler, 5.0)
    assert scheduler.overdue(6.0, 5.0) == [old]
    assert scheduler.overdue(10.0, 5.0) == [old, young]
    scheduler.retry(old, 6.0, FAILED)
    again = taken(scheduler, 8.0)
    assert again is old
    assert scheduler.overdue(10.0, 5.0) == [young]


def test_next_attempt_of_a_cancelled_task_is_not_cancelled() -> None:
    """Each attempt has its full timeout; otherwise a second attempt could never be cancelled."""
    scheduler = scheduler_of()
    scheduler.admit(records("a"), 0.0)
    task = taken(scheduler)
    task.is_cancelled = True
    scheduler.retry(task, 1.0, TimeoutError())
    again = taken(scheduler, 1.0)
    assert (again.attempt, again.is_cancelled) == (2, False)
