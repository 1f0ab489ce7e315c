"""The facts about a processor's work that health, metrics and `progress` show."""

from __future__ import annotations

import signal
from types import FrameType

import pytest
import tenacity

from consumer_membership.errors import HandlerError
from consumer_membership.health.handlers import UnfinishedRecord
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.processing.observation import HandlerObservation, gauges_of
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler
from consumer_membership.processing.work import Work
from tests.processing.records import A, B, records, scheduler_of, taken

TIMEOUT_S = 60.0


class Call:
    """A running call with a stack; `can_cancel` is chosen by the test."""

    def __init__(self, *, can_cancel: bool) -> None:
        self.can_cancel = can_cancel

    def cancel(self) -> None:
        """Do nothing; no test calls it."""
        raise NotImplementedError

    def stack(self) -> str:
        """Return a stack of one frame."""
        return '  File "/app/orders.py", line 12, in handle\n    sleep(3600)\n'


@pytest.fixture
def scheduler() -> Scheduler:
    """Return a scheduler that owns both partitions, which start at offset 0."""
    return scheduler_of()


def observation_of(scheduler: Scheduler, timeout_s: float | None = TIMEOUT_S) -> HandlerObservation:
    """Return the observation of this scheduler's work."""
    ledger = HandlerLedger(lambda now: gauges_of(scheduler, now))
    work = Work(scheduler, ledger, RetryPolicy.from_argument(None), has_target=False, max_batch=1)
    return HandlerObservation(work, timeout_s)


def test_oldest_unfinished_record_is_found_in_each_stage(scheduler: Scheduler) -> None:
    """The record that holds back the committed offset is queued, runs, waits for a retry, runs again, and finishes."""
    observed = observation_of(scheduler)
    assert observed.health(0.0).oldest == {}
    scheduler.admit(records("a", "a", "b"), 10.0)
    assert observed.health(11.0).oldest == {A: UnfinishedRecord(offset=0, since=10.0)}
    first = taken(scheduler, 12.0)
    assert observed.health(13.0).oldest == {A: UnfinishedRecord(offset=0, since=10.0, attempt=1)}
    scheduler.retry(first, 20.0, ValueError("no"))
    failed = UnfinishedRecord(offset=0, since=10.0, attempt=1, last_error="ValueError: no")
    assert observed.health(14.0).oldest == {A: failed}
    other = taken(scheduler, 15.0)
    scheduler.finish(other, 16.0)
    assert observed.health(17.0).oldest == {A: failed}
    again = taken(scheduler, 20.0)
    assert observed.health(21.0).oldest[A].attempt == 2
    scheduler.finish(again, 22.0)
    assert observed.health(23.0).oldest == {A: UnfinishedRecord(offset=1, since=10.0)}


def test_oldest_unfinished_record_behind_a_hot_key_is_found(scheduler: Scheduler) -> None:
    """The first unfinished record of a partition may be in any lane."""
    scheduler.admit(records("hot", "hot", "cold", "hot"), 10.0)
    hot = taken(scheduler, 10.0)
    cold = taken(scheduler, 10.0)
    scheduler.finish(hot, 11.0)
    scheduler.finish(taken(scheduler, 11.0), 11.0)
    assert observation_of(scheduler).health(12.0).oldest == {A: UnfinishedRecord(offset=2, since=10.0, attempt=1)}
    scheduler.finish(cold, 12.0)
    assert observation_of(scheduler).health(12.0).oldest == {A: UnfinishedRecord(offset=3, since=10.0)}


def test_handlers_beyond_their_timeout_are_stuck_with_their_stacks(scheduler: Scheduler) -> None:
    """Only overdue handlers are stuck, the oldest first; stacks are taken only of them."""
    observed = observation_of(scheduler)
    scheduler.admit(records("a", "b", "c"), 0.0)
    for began_at in (10.0, 11.0, 60.0):
        task = taken(scheduler, began_at)
        task.runner = Call(can_cancel=began_at == 11.0)
    assert observed.health(69.9).stuck == ()
    stuck = observed.health(71.5).stuck
    assert [(one.partition, one.offset, one.key, one.deadline) for one in stuck] == [
        (A, 0, b"a", 70.0),
        (A, 1, b"b", 71.0),
    ]
    assert [one.can_be_cancelled for one in stuck] == [False, True]
    assert {one.location for one in stuck} == {"orders.py:12 in handle"}
    assert {one.stack for one in observed.progress().running} == {""}
    assert observation_of(scheduler, None).health(1e9).stuck == ()


@pytest.mark.parametrize("has_failed", [True, False])
def test_handler_of_a_released_partition_is_stuck_until_it_ends(scheduler: Scheduler, *, has_failed: bool) -> None:
    """The thread still runs, although the partition was released and its result is ignored; only a restart ends it."""
    work = Work(
        scheduler,
        HandlerLedger(lambda _: HandlerGauges()),
        RetryPolicy.from_argument(None),
        has_target=False,
        max_batch=1,
    )
    observed = HandlerObservation(work, TIMEOUT_S)
    scheduler.admit(records("a"), 0.0)
    task = taken(scheduler, 10.0)
    task.runner = Call(can_cancel=False)
    assert work.disown([A]) == [task]
    assert work.release([A]) == []
    assert observed.health(69.9).stuck == ()
    (stuck,) = observed.health(70.0).stuck
    assert (stuck.partition, stuck.offset, stuck.is_disowned) == (A, 0, True)
    assert stuck.location == "orders.py:12 in handle"
    if has_failed:
        assert not work.failed(task, ValueError("too late"))
    else:
        with work.lock:
            work.finished(task)
    assert observed.health(71.0).stuck == ()
    assert work.ledger.finished == 0


def test_dead_letter_counts_the_time_of_its_handler_once(scheduler: Scheduler) -> None:
    """The time in which the dead letter is written does not count as the handler's time."""
    work = Work(
        scheduler,
        HandlerLedger(lambda _: HandlerGauges()),
        RetryPolicy.from_argument(tenacity.Retrying(stop=tenacity.stop_after_attempt(1))),
        has_target=True,
        max_batch=1,
    )
    scheduler.admit(records("a"), 0.0)
    task = taken(scheduler)
    assert work.failed(task, ValueError("no"))
    work.dead_lettered(task)
    counts = work.ledger.counts(0.0)
    assert (counts.handler_time.count, counts.finished, counts.dead_letters) == (1, 1, 1)


def test_handler_that_ends_while_its_stack_is_read_is_not_stuck(scheduler: Scheduler) -> None:
    """Stacks are read without the lock, so the thread may already handle another record."""
    observed = observation_of(scheduler)
    scheduler.admit(records("a", "b"), 0.0)
    ends, stays = taken(scheduler), taken(scheduler)

    class Ending(Call):
        def stack(self) -> str:
            scheduler.finish(ends, 100.0)
            return super().stack()

    ends.runner, stays.runner = Ending(can_cancel=False), Call(can_cancel=False)
    assert [one.offset for one in observed.health(100.0).stuck] == [1]


def test_failure_of_the_processor_is_in_its_health(scheduler: Scheduler) -> None:
    """The first failure is reported with its time; a later one does not replace it."""
    ledger = HandlerLedger(lambda _: HandlerGauges())
    work = Work(scheduler, ledger, RetryPolicy.from_argument(None), has_target=False, max_batch=1)
    observed = HandlerObservation(work, TIMEOUT_S)
    assert (observed.health(0.0).failure, observed.health(0.0).failed_at) == (None, None)
    for text in ("first", "second"):
        work.fail(HandlerError(text, A, 0))
    assert observed.health(0.0).failure == "first"
    assert observed.health(0.0).failed_at == work.failed_at


def test_health_and_progress_can_be_read_by_a_signal_handler_while_its_thread_holds_the_lock(
    scheduler: Scheduler,
) -> None:
    """A signal handler interrupts the polling thread at any time, so it must not wait for a lock of that thread."""
    work = Work(
        scheduler,
        HandlerLedger(lambda _: HandlerGauges()),
        RetryPolicy.from_argument(None),
        has_target=False,
        max_batch=1,
    )
    observed = HandlerObservation(work, TIMEOUT_S)

    def read(_: int, __: FrameType | None) -> None:
        found.append((observed.health(0.0).failure, len(observed.progress().partitions)))

    found: list[tuple[str | None, int]] = []
    before = signal.signal(signal.SIGUSR1, read)
    try:
        with work.lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [(None, 2)]


def test_progress_counts_the_records_of_each_partition(scheduler: Scheduler) -> None:
    """Queued, running and retried records are disjoint, and finished records beyond the base are counted."""
    scheduler.admit(records("a", "b", "c", "d", "d") + records("x", partition=B), 0.0)
    tasks = {task.first_offset: task for task in (taken(scheduler) for _ in range(5)) if task.owned.partition == A}
    scheduler.finish(tasks[1], 1.0)
    scheduler.retry(tasks[2], 1e9, ValueError("no"))
    found = observation_of(scheduler).progress()
    of_a = found.partitions[A]
    assert (of_a.queued, of_a.running, of_a.retrying, of_a.finished_beyond) == (1, 2, 1, 1)
    assert (of_a.last_error, of_a.epoch, of_a.committed) == ("ValueError: no", 7, None)
    assert of_a.oldest_unfinished is not None
    assert of_a.oldest_unfinished.offset == 0
    of_b = found.partitions[B]
    assert (of_b.queued, of_b.running, of_b.retrying, of_b.finished_beyond, of_b.last_error) == (0, 1, 0, 0, "")
    assert sorted((one.partition, one.offset) for one in found.running) == [(A, 0), (A, 3), (B, 0)]


def test_gauges_count_lanes_and_records() -> None:
    """All records of a batch are in flight, and their lanes are busy."""
    scheduler = scheduler_of(ProcessingOrder.KEY, max_batch=2)
    assert gauges_of(scheduler, 0.0) == HandlerGauges()
    scheduler.admit(records("a", "b", "c", "c", "c"), 0.0)
    taken(scheduler, 1.0)
    assert gauges_of(scheduler, 5.0) == HandlerGauges(lanes=3, busy=2, queued=3, in_flight=2, oldest_in_flight_s=4.0)
