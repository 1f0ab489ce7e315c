"""Worker processes run handlers; if a process fails, only the call that it was running fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Message

from consumer_membership.errors import ConfigurationError, RemoteHandlerError, WorkerDiedError
from consumer_membership.processing import records
from consumer_membership.processing.handlers import checked_handler
from consumer_membership.processing.processes import ProcessContext, WorkerProcess
from consumer_membership.processing.shared_lease import SharedLease
from consumer_membership.runtime.session_clock import session_time
from consumer_membership.types import TopicPartition
from tests.processing import process_handlers as handlers
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

CONTEXT = ProcessContext(partition=TopicPartition("orders", 0), epoch=4, attempt=1, deadline=None, last_error=None)

Start = Callable[[Callable[..., object]], WorkerProcess]
Lend = Callable[[Callable[..., object], SharedLease], WorkerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Create worker processes that are closed after the test."""
    workers: list[WorkerProcess] = []

    def made(handler: Callable[..., object]) -> WorkerProcess:
        workers.append(WorkerProcess(checked_handler(handler, processes=True)))
        return workers[-1]

    yield made
    for worker in workers:
        worker.close()


@pytest.fixture
def lend() -> Iterator[Lend]:
    """Create worker processes that read a lease, and are closed after the test."""
    with ExitStack() as workers:

        def made(handler: Callable[..., object], lease: SharedLease) -> WorkerProcess:
            worker = WorkerProcess(checked_handler(handler, processes=True), lease)
            workers.callback(worker.close)
            return worker

        yield made


def record_at(offset: int = 0, value: bytes = b"value") -> Message:
    """Return a record with all of its fields."""
    return Message(
        topic="orders",
        partition=0,
        offset=offset,
        key=b"key",
        value=value,
        headers=[("trace", b"1"), ("empty", None)],
        timestamp=(1, 1_700_000_000_123),
        leader_epoch=3,
    )


def pids_in(path: Path) -> list[int]:
    """Return the process ids that a handler wrote."""
    wait_until(path.exists, f"a handler that writes {path}")
    return [*map(int, path.read_text().split())]


def wait_for_end(*pids: int) -> None:
    """Wait until all of these processes have ended; a zombie counts as ended."""

    def alive() -> list[int]:
        found = []
        for pid in pids:
            try:
                found += [pid] if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else []
            except psutil.NoSuchProcess:
                continue
        return found

    wait_until(lambda: not alive(), "the end of the processes", seen=alive)


# ---- calls ----


def test_worker_process_handles_one_call_after_the_other(start: Start) -> None:
    """All calls of a worker run in the same separate process and return the handler's results."""
    worker = start(handlers.process_and_offset)
    assert worker.pid is None
    assert [worker.call(record_at(offset), CONTEXT) for offset in range(3)] == [
        (worker.pid, "orders", offset) for offset in range(3)
    ]
    assert worker.pid not in {None, os.getpid()}


def test_process_can_be_started_before_its_first_call(start: Start) -> None:
    """The first call uses the process that was started before it."""
    worker = start(handlers.process_and_offset)
    worker.start()
    pid = worker.pid
    assert worker.call(record_at(), CONTEXT) == (pid, "orders", 0)


@pytest.mark.parametrize("is_pickled", [True, False])
def test_handler_receives_everything_that_the_record_has(
    start: Start, monkeypatch: pytest.MonkeyPatch, *, is_pickled: bool
) -> None:
    """If a Message cannot be pickled, a Record with the same methods replaces it."""
    monkeypatch.setattr(records, "_IS_COMPLETE", is_pickled and records._IS_COMPLETE)
    record = record_at(offset=5)
    assert start(handlers.content).call(record, CONTEXT) == handlers.content(record)


def test_handler_that_takes_no_context_needs_none(start: Start) -> None:
    """The context is not sent if the handler takes no context."""
    assert start(handlers.offsets).call([record_at(3)], None) == [3]


def test_batch_handler_receives_a_list(start: Start) -> None:
    """The records of a batch arrive in their order."""
    assert start(handlers.offsets).call([record_at(offset) for offset in range(3)], CONTEXT) == [0, 1, 2]


def test_handler_receives_the_values_of_its_context(start: Start) -> None:
    """The context has the partition, the epoch, the attempt, the deadline and the last error."""
    error = handlers.MissingRecordError("orders", 5)
    given = ProcessContext(partition=TopicPartition("orders", 7), epoch=9, attempt=2, deadline=12.5, last_error=error)
    found = start(handlers.context_of).call(record_at(), given)
    assert isinstance(found, ProcessContext)
    assert (found.partition, found.epoch, found.attempt, found.deadline) == (TopicPartition("orders", 7), 9, 2, 12.5)
    assert (found.is_current, found.is_cancelled) == (True, False)
    assert str(found.last_error).endswith("MissingRecordError: no record 5 in orders")


# ---- leases ----


def owned(*, ends_at: float, reason: str = "") -> SharedLease:
    """Return the lease of a consumer that owns partition 0 at epoch 4."""
    lease = SharedLease({TopicPartition("orders", 0): 4}.get, lambda: reason)
    lease.follow(ends_at)
    return lease


def test_running_call_sees_the_renewals_and_the_end_of_the_lease(
    lend: Lend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message is sent to the process: it reads the clock and the shared memory."""
    log = tmp_path / "log"
    monkeypatch.setenv("HANDLER_LOG", str(log))
    lease = owned(ends_at=session_time() + PATIENCE_S)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(lend(handlers.follow_lease, lease).call, record_at(), CONTEXT)
        wait_until(lambda: log.exists() and log.read_text() == "holds\n", "the start of the call")
        lease.follow(session_time() + 0.01)
        wait_until(lambda: log.read_text() == "holds\nover\n", "the end of the lease")
        lease.follow(session_time() + PATIENCE_S)
        assert call.result(PATIENCE_S) == 4


def test_lease_of_a_later_membership_does_not_cover_the_call(
    lend: Lend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition had another owner in between, even if this consumer has the same epoch again."""
    log = tmp_path / "log"
    monkeypatch.setenv("HANDLER_LOG", str(log))
    lease = owned(ends_at=session_time() + PATIENCE_S)
    process = lend(handlers.holds_twice, lease)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(process.call, record_at(), CONTEXT)
        wait_until(log.exists, "the start of the call")
        lease.follow(inf)
        lease.follow(session_time() + PATIENCE_S)
        log.unlink()
        assert call.result(PATIENCE_S) == (True, False)
    assert lease.grant(TopicPartition("orders", 0), 4).membership == 1.0


def test_call_of_a_former_assignment_has_no_lease(lend: Lend) -> None:
    """The consumer has another epoch, or owns nothing."""
    lease = owned(ends_at=session_time() + PATIENCE_S)
    process = lend(handlers.lease_of_call, lease)
    assert process.call(record_at(), replace(CONTEXT, epoch=3)) == (False, 3)
    assert process.call(record_at(), CONTEXT) == (True, 4)
    lease.follow(inf)
    assert process.call(record_at(), CONTEXT) == (False, 4)


def test_process_without_lease_or_token_raises_with_the_reason(start: Start, lend: Lend) -> None:
    """The exceptions are the same as those of `Consumer.lease`; an uncaught one cannot be sent and is described."""
    with pytest.raises(RemoteHandlerError, match=r"set ownership\.lease\.enable=true"):
        start(handlers.lease_of_call).call(record_at(), CONTEXT)
    lease = owned(ends_at=session_time() + PATIENCE_S, reason="the group is full")
    with pytest.raises(RemoteHandlerError, match="the lease of orders-0 has no token: the group is full"):
        lend(handlers.lease_of_call, lease).call(record_at(), CONTEXT)


# ---- errors of the handler ----


def test_error_of_the_handler_is_raised_with_the_trace_of_the_process(start: Start) -> None:
    """The exception has its class; a note has the stack trace and the cause in the worker process."""
    worker = start(handlers.fail)
    with pytest.raises(ValueError, match="no price") as raised:
        worker.call(record_at(), CONTEXT)
    (note,) = raised.value.__notes__
    assert "process_handlers.py" in note
    assert "KeyError: 'price'" in note
    assert "in _answer" not in note


def test_error_that_cannot_be_pickled_is_described(start: Start) -> None:
    """The message has the class and the text; the worker remains usable."""
    worker = start(handlers.fail_with_own_error)
    for _ in range(2):
        with pytest.raises(RemoteHandlerError, match=r"process_handlers\.MissingRecordError: no record 5 in orders"):
            worker.call(record_at(), CONTEXT)


def test_system_exit_of_the_handler_is_raised_and_does_not_end_the_process(start: Start) -> None:
    """`sys.exit` in a handler fails the call, as it does on a thread."""
    worker = start(handlers.leave)
    with pytest.raises(SystemExit):
        worker.call(record_at(), CONTEXT)
    pid = worker.pid
    with pytest.raises(SystemExit):
        worker.call(record_at(), CONTEXT)
    assert worker.pid == pid


def test_policy_of_a_decorated_handler_is_not_followed_in_the_process(start: Start) -> None:
    """The function inside `tenacity.retry` is called, as on a thread; the processor retries."""
    with pytest.raises(ValueError, match="once"):
        start(handlers.failing_with_policy).call(record_at(), CONTEXT)


def test_result_that_cannot_be_sent_raises_error(start: Start) -> None:
    """The error names the handler and the type."""
    with pytest.raises(
        ConfigurationError, match=r"process_handlers\.generator.*its result, a generator, cannot be sent"
    ):
        start(handlers.generator).call(record_at(), CONTEXT)


def test_record_that_cannot_be_sent_raises_error(start: Start) -> None:
    """The error names a deserialized value that cannot be pickled, and no process is started for it."""
    record, worker = record_at(), start(handlers.process_and_offset)
    record.set_value(threading.Lock())
    with pytest.raises(ConfigurationError, match="its record cannot be sent to a worker process: cannot pickle"):
        worker.call(record, CONTEXT)
    assert worker.pid is None


# ---- processes that end ----


@pytest.mark.parametrize(
    ("handler", "how"),
    [(handlers.end, "ended with exit code 7"), (handlers.crash, "was killed by SIGSEGV")],
)
def test_end_of_the_process_fails_the_call(start: Start, handler: Callable[..., object], how: str) -> None:
    """The error has the process, the handler and the exit code or signal."""
    with pytest.raises(WorkerDiedError, match=rf"^worker process \d+ of .*process_handlers\.\w+ {how}$"):
        start(handler).call(record_at(), CONTEXT)


def test_process_that_ended_is_replaced_by_the_next_call(start: Start) -> None:
    """Only the record that the process was handling fails."""
    worker = start(handlers.end_at_offset_one)
    assert worker.call(record_at(0), CONTEXT) == 0
    with pytest.raises(WorkerDiedError):
        worker.call(record_at(1), CONTEXT)
    assert worker.call(record_at(2), CONTEXT) == 2


def test_idle_process_that_is_killed_fails_no_call(start: Start) -> None:
    """The next call starts another process."""
    worker = start(handlers.process_and_offset)
    worker.call(record_at(), CONTEXT)
    first = worker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert worker.call(record_at(), CONTEXT) == (worker.pid, "orders", 0)
    assert worker.pid != first


def test_killed_process_fails_its_call(start: Start, tmp_path: Path) -> None:
    """SIGKILL from outside, for example when memory runs out, raises an error that can be retried."""
    worker, path = start(handlers.wait), tmp_path / "pid"
    with ThreadPoolExecutor() as threads:
        call = threads.submit(worker.call, record_at(value=bytes(path)), CONTEXT)
        os.kill(pids_in(path)[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="was killed by SIGKILL, possibly because memory ran out"):
            call.result(PATIENCE_S)


@pytest.mark.parametrize("handler", [handlers.wait, handlers.wait_with_child])
def test_cancel_ends_the_process_and_what_its_handler_started(
    start: Start, tmp_path: Path, handler: Callable[..., object]
) -> None:
    """The call raises immediately, even if a forked process keeps the connection open; the next call works again."""
    worker, path = start(handler), tmp_path / "pid"
    for _ in range(2):
        with ThreadPoolExecutor() as threads:
            call: Future[object] = threads.submit(worker.call, record_at(value=bytes(path)), CONTEXT)
            pids = pids_in(path)
            worker.cancel()
            with pytest.raises(WorkerDiedError, match="was cancelled"):
                call.result(PATIENCE_S)
        wait_for_end(*pids)
        path.unlink()


def test_cancel_without_a_call_fails_no_later_call(start: Start) -> None:
    """A cancellation that arrives after the end of its call ends the process, but fails no call."""
    worker = start(handlers.process_and_offset)
    worker.cancel()
    worker.call(record_at(), CONTEXT)
    worker.cancel()
    assert worker.call(record_at(5), CONTEXT) == (worker.pid, "orders", 5)


def test_close_ends_the_process_and_is_idempotent(start: Start) -> None:
    """The process ends after its last call."""
    worker = start(handlers.process_and_offset)
    worker.close()
    worker.call(record_at(), CONTEXT)
    pid = worker.pid
    assert pid is not None
    worker.close()
    worker.close()
    assert (worker.pid, psutil.pid_exists(pid)) == (None, False)


# ---- signals, groups and files ----


def test_process_ignores_what_is_sent_to_the_whole_program(start: Start) -> None:
    """SIGINT and SIGTERM do not end the process; in programs that a handler starts, they have their default action."""
    assert start(handlers.send_signals).call(record_at(), CONTEXT) == "True set()\n"


def test_worker_process_has_its_own_group(start: Start) -> None:
    """Ctrl-C and signals to the program's group do not reach the process."""
    worker = start(handlers.group_of)
    assert worker.call(record_at(), CONTEXT) == (worker.pid, worker.pid)


def test_process_inherits_no_sockets(start: Start) -> None:
    """The consumer's connections stay in the parent; the process has only its socket to the parent."""
    found = start(handlers.files_of).call(record_at(), CONTEXT)
    assert isinstance(found, list)
    assert len([name for name in found if name.startswith("socket:")]) == 1


# ---- programs ----

PROGRAM = """
import sys, threading
from pathlib import Path
from confluent_kafka import Message
from consumer_membership.processing.handlers import checked_handler
from consumer_membership.processing.processes import ProcessContext, WorkerProcess
from consumer_membership.types import TopicPartition
{definitions}
def call():
    context = ProcessContext(partition=TopicPartition("t", 0), epoch=1, attempt=1, deadline=None, last_error=None)
    worker = WorkerProcess(checked_handler(handle, processes=True))
    try:
        return worker.call(Message(topic="t", partition=0, offset=5, value=sys.argv[1].encode()), context)
    finally:
        worker.close()
{main}
"""
HANDLE = """
def handle(record):
    return record.offset()
"""


def run(folder: Path, definitions: str, main: str) -> subprocess.CompletedProcess[str]:
    """Run a script that handles a record in a worker process."""
    script = folder / "program.py"
    script.write_text(PROGRAM.format(definitions=definitions, main=main))
    return subprocess.run(
        [sys.executable, script, folder / "pid"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_handler_of_a_script_runs_in_a_worker_process(tmp_path: Path) -> None:
    """The worker process imports the script, which starts and prints nothing there."""
    done = run(tmp_path, HANDLE, "if __name__ == '__main__': print(call())")
    assert (done.stdout, done.stderr, done.returncode) == ("5\n", "", 0)


def test_script_without_a_guard_raises_error_with_the_fix(tmp_path: Path) -> None:
    """Without the guard, the worker process would run the program again; both processes report the missing guard."""
    done = run(tmp_path, HANDLE, "call()")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("Put the code that starts the program under: if __name__ == '__main__':")
    assert "which must not create a processor again" in done.stderr


INSIDE = """
if __name__ == "__main__":
    def handle(record):
        return record.offset()
    print(call())
"""


def test_handler_inside_the_guard_raises_error_with_the_fix(tmp_path: Path) -> None:
    """The script defines the function only in its main program, so a worker process cannot import it."""
    done = run(tmp_path, "", INSIDE)
    assert done.returncode == 1
    assert "define it at the top level of a module, outside of: if __name__ == '__main__':" in done.stderr


WAITING = """
import os
from tests.processing.process_handlers import wait_with_child as handle
"""
IN_A_THREAD = """
if __name__ == "__main__":
    from tests.support.waiting import wait_until
    threading.Thread(target=call, daemon=True).start()
    wait_until(Path(sys.argv[1]).exists, "the handler runs")
"""


@pytest.mark.parametrize("end", ["", "    os._exit(0)", "    os.kill(os.getpid(), 9)", "    raise SystemExit(0)"])
def test_process_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """However the parent ends during a call, the process and the processes of its handler end also."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))
    done = run(tmp_path, WAITING, IN_A_THREAD + end)
    assert done.returncode == (-9 if end.endswith("9)") else 0), done.stderr
    wait_for_end(*pids_in(tmp_path / "pid"))


FORKING = """
if __name__ == "__main__":
    worker = WorkerProcess(checked_handler(handle, processes=True))
    context = ProcessContext(partition=TopicPartition("t", 0), epoch=1, attempt=1, deadline=None, last_error=None)
    record = Message(topic="t", partition=0, offset=5)
    worker.call(record, context)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    before = worker.pid
    print(worker.call(record, context), worker.pid == before)
    worker.close()
"""


def test_process_forked_from_the_parent_does_not_end_the_workers(tmp_path: Path) -> None:
    """Workers belong to the process that started them."""
    done = run(tmp_path, "import os\n" + HANDLE, FORKING)
    # In the forked process, multiprocessing itself reports that the workers are not its children.
    assert (done.stdout, done.returncode) == ("5 True\n", 0)
