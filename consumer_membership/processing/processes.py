"""Runs handlers that use the CPU in worker processes: one process for each worker thread, which waits for the result.

A process is spawned, never forked, so it inherits neither the consumer's connections nor the threads of librdkafka. It
imports the handler by its name, and handles one call after the other. If it ends in the middle of a call, only that
call fails, and the next call starts another process.

A worker process has its own process group and ignores SIGINT and SIGTERM: the parent ends it, so that a stop can drain
it first. It ends with its parent, however that ends, and with it the processes that its handler started.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Protocol

from confluent_kafka import Message

from consumer_membership.clients.exceptions import raises_as_confluent
from consumer_membership.clients.lease import Lease, leases_are_off
from consumer_membership.errors import ConfigurationError, MembershipError, RemoteHandlerError, WorkerDiedError
from consumer_membership.processing.handlers import RecordHandler, checked_handler
from consumer_membership.processing.records import portable
from consumer_membership.processing.shared_lease import LeaseGrant, SharedLease, lease_in
from consumer_membership.processing.stacks import traceback_of_handler
from consumer_membership.types import Instant, TopicPartition

#: How long a process may take to end after its last call, before it is killed: its `atexit` functions run.
_END_S = 5.0
#: How long to wait for the exit code of a process that has ended.
_EXIT_CODE_S = 1.0

_SPAWN = get_context("spawn")
_NAME = "consumer-membership-worker"
#: Whether the platform has process groups and signal masks (POSIX).
_HAS_GROUPS = hasattr(os, "setpgid")
#: What a service manager or a terminal may send to all processes of a service.
_IGNORED = (signal.SIGINT, signal.SIGTERM)


#: In a worker process: the shared memory with the lease, if there is one.
_SHARED: list[MutableSequence[float]] = []


class CallContext(Protocol):
    """What a `HandlerContext` has, and a worker process receives."""

    @property
    def partition(self) -> TopicPartition: ...  # noqa: D102
    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def attempt(self) -> int: ...  # noqa: D102
    @property
    def deadline(self) -> Instant | None: ...  # noqa: D102
    @property
    def last_error(self) -> BaseException | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """The context of a call in a worker process: the values of a `HandlerContext`.

    A process whose call is cancelled, or whose partition is given up, is killed; so the call is always current.
    """

    partition: TopicPartition
    epoch: int
    attempt: int
    deadline: Instant | None
    last_error: BaseException | None
    grant: LeaseGrant | None = None

    @property
    @raises_as_confluent
    def lease(self) -> Lease:
        """The lease of the partition; a call that is running sees its renewals.

        Raises:
            KafkaException: leases are not enabled; set `ownership.lease.enable`.
        """
        memory = _SHARED[0] if _SHARED else None
        if memory is None or self.grant is None:
            raise leases_are_off()
        return lease_in(memory, self.partition, self.grant)

    @property
    def is_current(self) -> bool:
        """Always True: a process with a call that no longer counts is killed."""
        return True

    @property
    def is_ending(self) -> bool:
        """Always False: a worker process is not informed of a revocation or a stop, which waits for this call."""
        return False

    @property
    def is_cancelled(self) -> bool:
        """Always False: a process with a call that should end is killed."""
        return False


# ---- the parent ----


class WorkerProcess:
    """A process that runs a handler, for one thread; a call starts it if it is not running.

    `cancel` may be called from any thread, all other methods only from the thread that calls.
    """

    def __init__(self, handler: RecordHandler, lease: SharedLease | None = None) -> None:
        self._handler = handler
        self._lease = lease
        self._pickled = pickle.dumps(handler.given)
        self._child: _Child | None = None
        #: A cancellation waits for a process that is about to start.
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The id of the process; None before the first call, and after `close`."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the process before the first call, so that the time of its start is not part of the call.

        If the process cannot be started, the first call tries again and raises the error.
        """
        with suppress(WorkerDiedError, ConfigurationError):
            self._started()

    def call(self, given: Message | list[Message], context: CallContext | None) -> object:
        """Run the handler with a record, or with a list of records, and return its result.

        `context` may be None if the handler takes no context.

        Raises:
            WorkerDiedError: the process ended during the call, or was cancelled.
            ConfigurationError: the process cannot be started, or its arguments or result cannot be sent.
            RemoteHandlerError: the handler raised an exception that cannot be sent; the message describes it.
            BaseException: the handler's own, with a note that has its stack trace.
        """
        request = self._request(given, context)
        child = self._started()
        try:
            child.send(request)
            reply = child.receive()
        except (EOFError, OSError):
            raise WorkerDiedError(f"worker process {child.pid} of {self._handler.name} {self._end(child)}") from None
        return _result_of(reply)

    def cancel(self) -> None:
        """Kill the process, and the processes that its handler started; a running call raises `WorkerDiedError`."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """End the process after its last call; kill it if it has not ended after 5 s. Idempotent."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close(_END_S)

    def _request(self, given: Message | list[Message], context: CallContext | None) -> bytes:
        records = [*map(portable, given)] if isinstance(given, list) else portable(given)
        try:
            return pickle.dumps((records, self._values_of(context)))
        except (pickle.PicklingError, AttributeError, TypeError) as refused:
            remedy = f"its record cannot be sent to a worker process: {refused}; deserialize it in the handler"
            raise ConfigurationError("handler", self._handler.name, remedy) from refused

    def _values_of(self, context: CallContext | None) -> ProcessContext | None:
        if context is None or not self._handler.takes_context:
            return None
        error = context.last_error
        return ProcessContext(
            partition=context.partition,
            epoch=context.epoch,
            attempt=context.attempt,
            deadline=context.deadline,
            last_error=None if error is None else _portable_error(error),
            grant=None if self._lease is None else self._lease.grant(context.partition, context.epoch),
        )

    def _started(self) -> _Child:
        """Return the process, after it has been started if necessary."""
        if self._child is not None and self._child.is_usable:
            return self._child
        if self._child is not None:
            self._end(self._child)
        with self._lock:
            child = self._child = _Child(self._pickled, None if self._lease is None else self._lease.memory)
        try:
            reply = child.receive()
        except (EOFError, OSError):
            code = child.exit_code(_EXIT_CODE_S)
            how = self._end(child)
            if code is None or code <= 0:  # killed
                raise WorkerDiedError(f"worker process {child.pid} of {self._handler.name} {how}") from None
            remedy = (
                f"a worker process {how} while it imported the program's main module; its stack trace is on stderr. "
                "Put the code that starts the program under: if __name__ == '__main__':"
            )
            raise ConfigurationError("processes", True, remedy) from None
        if isinstance(reply, _Raised):
            self._end(child)
            remedy = (
                f"worker processes cannot import it ({reply.error}); define it at the top level of a module, outside "
                "of: if __name__ == '__main__':"
            )
            raise ConfigurationError("handler", self._handler.name, remedy) from reply.error
        return child

    def _end(self, child: _Child) -> str:
        """Release a process that has ended, or is unusable, and return how it ended."""
        code = child.exit_code(_EXIT_CODE_S)
        is_cancelled = child.is_killed
        with self._lock:
            self._child = None
        child.close(0.0)
        if is_cancelled:
            return "was cancelled"
        if code is None:
            return "ended"
        if code >= 0:
            return f"ended with exit code {code}"
        advice = ", possibly because memory ran out" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{advice}"


class _Child:
    """One process, its connection, and a file descriptor that becomes readable when it ends."""

    def __init__(self, handler: bytes, memory: MutableSequence[float] | None) -> None:
        ours, theirs = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(target=serve, args=(theirs, handler, memory), name=_NAME)
        self._connection: Connection[bytes, bytes] = ours
        self.is_killed = False
        _CHILDREN.start(self)
        theirs.close()
        # The end of the connection alone is not enough: a process that the handler forked keeps it open.
        self._pidfd = _pidfd_of(self._process)
        self._ended = self._process.sentinel if self._pidfd is None else self._pidfd

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether the process can receive a call."""
        return not self.is_killed and not self._connection.poll(0)

    def start(self) -> None:
        """Start the process; it inherits that signals are blocked, so none ends it before it ignores them."""
        with _blocked_signals():
            self._process.start()

    def send(self, request: bytes) -> None:
        """Send a request.

        Raises:
            OSError: the process ended.
        """
        self._connection.send_bytes(request)

    def receive(self) -> object:
        """Return the next reply.

        Raises:
            EOFError: the process ended.
        """
        is_received = self._connection in connections.wait([self._connection, self._ended])
        if not is_received and not self._connection.poll(0):
            raise EOFError
        return pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from the worker process

    def kill(self) -> None:
        """Kill the process group, which has the processes that the handler started."""
        self.is_killed = True
        with _CHILDREN.lock, suppress(ProcessLookupError, PermissionError):
            if self._process.exitcode is None:
                self._process.kill()  # it may have no group yet
                if _HAS_GROUPS:
                    os.killpg(self._process.ident or 0, signal.SIGKILL)

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit code, negative for a signal; None if the process has not ended after the time."""
        connections.wait([self._ended], timeout_s)
        with _CHILDREN.lock:
            return self._process.exitcode

    def close(self, timeout_s: float) -> None:
        """Close the connection, which ends the process; kill it if it has not ended after the time."""
        self._connection.close()
        if self.exit_code(timeout_s) is None:
            self.kill()
            self.exit_code(_EXIT_CODE_S)
        _CHILDREN.forget(self)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class _Children:
    """The processes of this program, which end with it.

    multiprocessing's own list is not made for threads that start and reap processes at the same time, and it waits for
    processes at the exit of the program.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._alive: set[_Child] = set()
        self._is_over = False
        # multiprocessing has already registered its own function, which therefore runs later.
        atexit.register(self._kill_all)

    def start(self, child: _Child) -> None:
        """Start a process."""
        with self.lock:
            if self._is_over:
                raise WorkerDiedError("the program exits, so no worker process is started")
            child.start()
            self._alive.add(child)

    def forget(self, child: _Child) -> None:
        """Remove a process that has ended."""
        with self.lock:
            self._alive.discard(child)

    def forget_all(self) -> None:
        """Remove all processes, in a process that was forked from their parent."""
        self._alive.clear()
        self.lock = threading.RLock()

    def _kill_all(self) -> None:
        with self.lock:
            self._is_over = True
            for child in self._alive:
                child.kill()


_CHILDREN = _Children()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHILDREN.forget_all)


def _pidfd_of(process: SpawnProcess) -> int | None:
    if process.pid is not None and hasattr(os, "pidfd_open"):
        with suppress(OSError):  # an old kernel, or a sandbox
            return os.pidfd_open(process.pid)
    return None


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block the ignored signals in this thread."""
    if not _HAS_GROUPS:
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _portable_error(error: BaseException) -> BaseException:
    """Return the error if it can be sent to another process, or else a description of it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - classes of the program may raise anything
        kind = type(error)
        return RemoteHandlerError(f"{kind.__module__}.{kind.__qualname__}: {error}")
    return error


# ---- messages of the process ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _Returned:
    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raised:
    error: BaseException
    trace: str


def _result_of(reply: object) -> object:
    match reply:
        case _Returned():
            return reply.result
        case _Raised():
            reply.error.add_note(f"In the worker process:\n{reply.trace}")
            raise reply.error
        case _:
            raise MembershipError(f"a worker process returned {reply!r}")


# ---- the process ----


def serve(connection: Connection[bytes, bytes], pickled: bytes, memory: MutableSequence[float] | None) -> None:
    """Run the handler for each request until the connection ends: the main function of a worker process."""
    if memory is not None:
        _SHARED.append(memory)
    _separate()
    threading.Thread(target=_end_with_parent, name="consumer-membership-parent", daemon=True).start()
    try:
        handler = checked_handler(pickle.loads(pickled))  # noqa: S301 - from the parent
    except Exception as error:  # noqa: BLE001 - the import of the handler's module may raise anything
        connection.send_bytes(_raised(error))
        return
    connection.send_bytes(pickle.dumps(_Returned(result=None)))
    with suppress(EOFError, BrokenPipeError):
        while True:
            connection.send_bytes(_answer(handler, connection.recv_bytes()))


def _separate() -> None:
    """Leave the process group, and ignore its signals."""
    if _HAS_GROUPS:
        os.setpgid(0, 0)
    for number in _IGNORED:
        # A function, because programs that the handler starts would inherit SIG_IGN.
        signal.signal(number, _ignore)
    if _HAS_GROUPS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: the parent ends this process."""


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is None:
        return
    connections.wait([parent.sentinel])
    if _HAS_GROUPS:
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _answer(handler: RecordHandler, request: bytes) -> bytes:
    try:
        given, context = pickle.loads(request)  # noqa: S301 - from the parent
        result = handler.run(given, context)
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything
        return _raised(error)
    try:
        return pickle.dumps(_Returned(result=result))
    except (pickle.PicklingError, AttributeError, TypeError) as refused:
        remedy = f"its result, a {type(result).__name__}, cannot be sent to the processor: {refused}"
        return _raised(ConfigurationError("handler", handler.name, remedy))


def _raised(error: BaseException) -> bytes:
    shown = traceback_of_handler(error.__traceback__) or error.__traceback__
    trace = "".join(traceback.format_exception(type(error), error, shown))
    return pickle.dumps(_Raised(error=_portable_error(error), trace=trace))
