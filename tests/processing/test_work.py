"""Rules of the work that workers and the poll loop share, with threads: order, limits, no lost task or wake-up."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from math import inf
from time import monotonic

import pytest
import tenacity

from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.processing.coroutines import CoroutineWorkers, HandlerCancelledError, own_event_loop
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder, Task
from consumer_membership.processing.threads import ThreadWorkers
from consumer_membership.processing.work import HandlerInterruptedError, Work
from consumer_membership.types import TopicPartition
from tests.processing.records import A, B, offsets_of, records, scheduler_of
from tests.support.waiting import wait_until

RETRY = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(0.001))


def work_of(order: ProcessingOrder = ProcessingOrder.KEY, *, has_target: bool = False, max_batch: int = 1) -> Work:
    """Return work that owns both partitions."""
    return Work(
        scheduler_of(order, max_batch=max_batch),
        HandlerLedger(lambda _: HandlerGauges()),
        RetryPolicy(RETRY),
        has_target=has_target,
        max_batch=max_batch,
    )


class ScriptedCall:
    """The call of a worker thread: it runs a function of the test, and records its end."""

    can_cancel = False

    def __init__(self, function: Callable[[Task], None]) -> None:
        self._function = function
        self.is_closed = False

    def run(self, task: Task) -> Collection[OutputRecord]:
        """Call the function."""
        self._function(task)
        return ()

    def cancel(self) -> None:
        """Do nothing."""

    def stack(self) -> str:
        """Return no stack."""
        return ""

    def close(self) -> None:
        """Record the end of the thread."""
        self.is_closed = True


class Pool:
    """Worker threads that call a function, and their calls."""

    def __init__(
        self,
        work: Work,
        function: Callable[[Task], None],
        count: int = 8,
        write_dead_letter: Callable[[Task], Collection[OutputRecord]] | None = None,
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self.dead: list[list[int]] = []
        self._function = function
        self.workers = ThreadWorkers(work, self._make, write_dead_letter or self._write_dead_letter, count)

    def _make(self) -> ScriptedCall:
        call = ScriptedCall(self._function)
        self.calls.append(call)
        return call

    def _write_dead_letter(self, task: Task) -> Collection[OutputRecord]:
        self.dead.append(offsets_of(task))
        return ()

    def stop(self) -> None:
        """End all threads and wait for them."""
        self.workers.stop()
        wait_until(lambda: all(call.is_closed for call in self.calls), "the end of the threads")


def drained(work: Work, *partitions: TopicPartition) -> None:
    """Wait until all records in hand are finished."""

    def is_idle() -> bool:
        return all(work.scheduler.partitions[one].in_hand == 0 for one in partitions or (A, B))

    assert work.wait_until(is_idle, 60.0), "records are left"


@pytest.mark.parametrize("order", list(ProcessingOrder))
def test_threads_finish_each_record_once_and_in_the_order_of_its_lane(order: ProcessingOrder) -> None:
    """With any interleaving of the threads, no record is lost or repeated, and each lane keeps its order."""
    work = work_of(order)
    seen: list[tuple[TopicPartition, bytes, int]] = []
    running: Counter[object] = Counter()
    lock = threading.Lock()

    def handle(task: Task) -> None:
        message = task.messages[0]
        lane = {
            ProcessingOrder.KEY: (task.owned.partition, message.key()),
            ProcessingOrder.PARTITION: task.owned.partition,
        }
        with lock:
            running[lane.get(order)] += 1
            if order is not ProcessingOrder.NONE:
                assert running[lane.get(order)] == 1
            seen.append((task.owned.partition, bytes(message.key() or b""), task.first_offset))
        with lock:
            running[lane.get(order)] -= 1

    pool = Pool(work, handle)
    for start in range(0, 2000, 100):
        for partition in (A, B):
            work.admit(records(*[f"k{n % 5}" for n in range(100)], partition=partition, start=start))
    drained(work)
    pool.stop()
    assert len(seen) == len(set(seen)) == 4000
    places: defaultdict[object, list[int]] = defaultdict(list)
    for partition, key, offset in seen:
        places[partition, key if order is ProcessingOrder.KEY else None].append(offset)
    if order is not ProcessingOrder.NONE:
        assert all(offsets == sorted(offsets) for offsets in places.values())
    assert {partition: at.offset for partition, at in work.scheduler.commits().items()} == {A: 2000, B: 2000}


def test_failing_records_are_retried_and_dead_lettered_without_an_idle_worker_missing_one() -> None:
    """Each failing record has three attempts, and a due retry wakes a worker even if all workers are idle."""
    work = work_of(has_target=True)
    attempts: Counter[int] = Counter()
    lock = threading.Lock()

    def handle(task: Task) -> None:
        with lock:
            attempts[task.first_offset] += 1
        if task.first_offset % 10 == 0:
            raise ValueError("poison")

    pool = Pool(work, handle)
    work.admit(records(*[f"k{n % 7}" for n in range(200)]))
    drained(work)
    pool.stop()
    assert sorted(pool.dead) == [[n] for n in range(0, 200, 10)]
    assert attempts == {n: 3 if n % 10 == 0 else 1 for n in range(200)}
    assert (work.ledger.finished, work.ledger.retries, work.ledger.dead_letters) == (200, 40, 20)


def test_disowned_thread_is_replaced_and_its_result_is_ignored() -> None:
    """A thread whose partition was released does not take the place of another thread."""
    work = work_of()
    held = threading.Event()
    began = threading.Event()
    ended: list[int] = []

    def handle(task: Task) -> None:
        if task.owned.partition == A:
            began.set()
            held.wait(60)
        else:
            ended.append(task.first_offset)

    pool = Pool(work, handle, count=1)
    work.admit(records("a"))
    began.wait(60)
    work.close([A])
    pool.workers.replace(work.release([A]))
    work.admit(records("b", "b", partition=B))
    drained(work, B)
    held.set()
    pool.stop()
    assert ended == [0, 1]
    assert work.ledger.finished == 2


@pytest.mark.parametrize("renewed", [inf, None], ids=["lease", "no session"])
def test_nothing_starts_while_the_lease_is_over(renewed: float | None) -> None:
    """Other members may own the partitions; the records start after the coordinator has confirmed the member."""
    work, until = work_of(), [monotonic() - 1.0]
    work.lease = lambda: renewed if not until else until[0]
    handled: list[int] = []
    pool = Pool(work, lambda task: handled.append(task.first_offset))
    work.admit(records("a", "b", "c"))
    wait_until(lambda: work.is_suspended, "a thread that may not start a record")
    work.resume()
    assert (handled, work.is_suspended) == ([], True)
    until.clear()
    work.resume()
    drained(work)
    pool.stop()
    assert sorted(handled) == [0, 1, 2]


def test_task_that_is_due_does_not_wake_workers_while_the_lease_is_over() -> None:
    """Otherwise an idle worker would wake up again and again without a task."""
    work = work_of()
    work.admit(records("a"))
    with work.lock:
        task = work.take()
        assert task is not None
        work.scheduler.retry(task, monotonic(), ValueError())
        assert work.next_at is not None
        work.lease = lambda: 0.0
        work._owned_until = 0.0
        assert (work.take(), work.next_at) == (None, None)


def test_record_that_cannot_be_handled_stops_the_work_at_its_partition() -> None:
    """Without a dead-letter target, the work fails, and no more records of that partition start."""
    work = work_of()

    def handle(task: Task) -> None:
        if task.first_offset == 1:
            raise ValueError("broken")

    pool = Pool(work, handle, count=1)
    work.admit(records("a", "a", "a"))
    assert work.wait_until(lambda: work.failure is not None, 60.0)
    pool.stop()
    assert str(work.failure).startswith(
        "the handler failed for offset 1 of orders-0 after 3 attempts: ValueError: broken"
    )
    assert work.scheduler.commits()[A].offset == 1


def test_dead_letter_that_cannot_be_written_stops_the_work_with_both_errors() -> None:
    """The message names the target's error, which has to be fixed, and the handler's."""
    work = work_of(has_target=True)

    def handle(_: Task) -> None:
        raise ValueError("broken")

    def write_dead_letter(_: Task) -> Collection[OutputRecord]:
        raise OSError("no space")

    pool = Pool(work, handle, count=1, write_dead_letter=write_dead_letter)
    work.admit(records("a"))
    assert work.wait_until(lambda: work.failure is not None, 60.0)
    pool.stop()
    assert str(work.failure) == (
        "the dead letter for offset 0 of orders-0 cannot be written: OSError: no space. The handler had failed with "
        "ValueError: broken. The offset is not committed. Fix the target of dead_letter"
    )


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_target_that_raises_anything_stops_the_work(error: BaseException, *, is_coroutine: bool) -> None:
    """No error of a dead-letter function may end a worker silently, or its record would stay in hand forever."""
    work = work_of(has_target=True)

    def write_dead_letter(_: Task) -> Collection[OutputRecord]:
        raise error

    def handle(_: Task) -> None:
        raise ValueError("broken")

    async def handle_async(task: Task) -> None:
        handle(task)

    if is_coroutine:
        workers: Loop | Pool = Loop(work, handle_async, 1, write_dead_letter)
    else:
        workers = Pool(work, handle, count=1, write_dead_letter=write_dead_letter)
    work.admit(records("a"))
    assert work.wait_until(lambda: work.failure is not None, 60.0)
    workers.stop()
    assert work.failure is not None
    assert work.failure.__cause__ is error


def test_dead_letters_of_coroutines_are_written_on_daemon_threads() -> None:
    """A target that blocks forever does not prevent the exit of the program."""
    work = work_of(has_target=True)
    threads: list[threading.Thread] = []

    async def handle(_: Task) -> None:
        raise ValueError("broken")

    def write_dead_letter(_: Task) -> Collection[OutputRecord]:
        threads.append(threading.current_thread())
        return ()

    loop = Loop(work, handle, 1, write_dead_letter)
    work.admit(records("a"))
    drained(work, A)
    loop.stop()
    assert [thread.daemon for thread in threads] == [True]
    threads[0].join(60)
    assert not threads[0].is_alive()


# ---- coroutines ----


class Loop:
    """An event loop on its own thread, with coroutine workers."""

    def __init__(
        self,
        work: Work,
        function: Callable[[Task], object],
        count: int,
        write_dead_letter: Callable[[Task], Collection[OutputRecord]] = lambda _: (),
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.workers = CoroutineWorkers(work, function, lambda _, __: (), write_dead_letter, count, self.loop)  # type: ignore[arg-type]

    def cancel_all(self) -> None:
        """Cancel all tasks of the loop, as `asyncio.run` does at its end; wait until the tasks have received it."""
        noticed = threading.Event()

        def cancel() -> None:
            for one in asyncio.all_tasks(self.loop):
                one.cancel()
            self.loop.call_soon(noticed.set)

        self.loop.call_soon_threadsafe(cancel)
        noticed.wait()

    def stop(self) -> None:
        """End the workers and the loop."""
        self.workers.stop()
        self.loop.call_soon_threadsafe(lambda: self.loop.call_soon(self.loop.stop))
        self._thread.join(60)
        self.loop.close()


def test_coroutines_finish_each_record_once_in_the_order_of_its_key() -> None:
    """Workers that wait in their handlers run at the same time; no record is lost or repeated."""
    work = work_of()
    seen: list[tuple[bytes, int]] = []
    most = 0
    inside = 0

    async def handle(task: Task) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        seen.append((bytes(task.messages[0].key() or b""), task.first_offset))
        inside -= 1

    loop = Loop(work, handle, 4)
    for start in range(0, 1000, 100):
        work.admit(records(*[f"k{n % 9}" for n in range(100)], start=start))
    drained(work, A)
    loop.stop()
    assert len(seen) == len(set(seen)) == 1000
    assert most == 4
    for key in {key for key, _ in seen}:
        offsets = [offset for one, offset in seen if one == key]
        assert offsets == sorted(offsets)


def test_cancelled_coroutine_fails_its_record_only() -> None:
    """A cancellation ends one call; its worker continues with other records, and the record is retried."""
    work = work_of()
    attempts: Counter[int] = Counter()
    errors: list[BaseException | None] = []

    async def handle(task: Task) -> None:
        attempts[task.first_offset] += 1
        errors.append(task.last_error)
        if task.first_offset == 0 and task.attempt == 1:
            await asyncio.Event().wait()

    loop = Loop(work, handle, 1)
    work.admit(records("a", "a", "b"))
    wait_until(lambda: attempts[0], "the first attempt")
    assert work.cancel(list(work.scheduler.running)) == []
    drained(work, A)
    loop.stop()
    assert attempts == {0: 2, 1: 1, 2: 1}
    assert [type(error) for error in errors if error is not None] == [HandlerCancelledError]


def test_record_whose_coroutine_the_program_cancels_is_not_dead_lettered() -> None:
    """The record has not failed: after its last attempt, the work stops at it, and the next owner handles it."""
    work = work_of(has_target=True)
    dead: list[Task] = []
    attempts: Counter[int] = Counter()

    async def handle(task: Task) -> None:
        attempts[task.attempt] += 1
        await asyncio.Event().wait()

    def write_dead_letter(task: Task) -> Collection[OutputRecord]:
        dead.append(task)
        return ()

    loop = Loop(work, handle, 1, write_dead_letter)
    work.admit(records("a"))
    for attempt in (1, 2, 3):
        wait_until(lambda attempt=attempt: attempts[attempt], f"attempt {attempt}")  # type: ignore[misc]
        loop.cancel_all()
    assert work.wait_until(lambda: work.failure is not None, 60.0)
    loop.stop()
    assert work.failure is not None
    assert isinstance(work.failure.__cause__, HandlerInterruptedError)
    assert dead == []


def test_idle_coroutine_workers_continue_after_the_program_cancels_them() -> None:
    """Only `stop` ends a worker; otherwise the records that arrive later would have no worker."""
    work = work_of()
    seen: list[int] = []

    async def handle(task: Task) -> None:
        seen.append(task.first_offset)

    loop = Loop(work, handle, 1)
    work.admit(records("a"))
    drained(work, A)
    loop.cancel_all()
    work.admit(records("a", start=1))
    drained(work, A)
    loop.stop()
    assert seen == [0, 1]


def test_dead_letter_of_a_coroutine_counts_although_the_program_cancels_its_worker() -> None:
    """A dead letter that is being written is completed, and then its record is finished."""
    work = work_of(has_target=True)
    is_writing, may_end = threading.Event(), threading.Event()

    async def handle(_: Task) -> None:
        raise ValueError("broken")

    def write_dead_letter(_: Task) -> Collection[OutputRecord]:
        is_writing.set()
        may_end.wait()
        return ()

    loop = Loop(work, handle, 1, write_dead_letter)
    work.admit(records("a"))
    is_writing.wait()
    loop.cancel_all()
    may_end.set()
    drained(work, A)
    loop.stop()
    assert work.ledger.dead_letters == 1


def test_end_of_an_own_event_loop_cancels_its_tasks() -> None:
    """Tasks that handlers have created can release their resources, as with `asyncio.run`."""
    ends: list[str] = []

    async def wait() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("released")

    began = threading.Event()
    with own_event_loop() as loop:
        asyncio.run_coroutine_threadsafe(wait(), loop)
        began.wait()
    assert ends == ["released"]


# ---- the timeout and dead letters ----


def test_dead_letter_that_takes_long_does_not_count_as_a_handler_beyond_its_timeout() -> None:
    """The timeout applies to handlers, so a slow dead-letter target does not make the processor stop."""
    work = work_of(has_target=True)
    work.admit(records("a", "b"))
    with work.lock:
        failed, running = (work.take() for _ in range(2))
    assert failed is not None
    failed.attempt = 3  # the last attempt of the policy
    assert work.failed(failed, ValueError("poison"))
    now = failed.began_at + 1000.0
    assert work.scheduler.overdue(now, 1.0) == [running]
    work.dead_lettered(failed)
    assert work.scheduler.commits()[A].offset == 1
