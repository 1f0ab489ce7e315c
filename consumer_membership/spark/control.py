"""The line between a driver and its tasks: orders one way, reports the other; one JSON object a line over TCP.

Spark tells a Python task nothing: not that it was cancelled, not that another attempt replaced it, and the driver hears
nothing of a task before its end. The end of the line is a message, too: the driver is gone.

The driver knows its tasks by a secret that travels with the plan; who does not begin with it is not listened to.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from consumer_membership.errors import TransportError
from consumer_membership.spark.context import Partition
from consumer_membership.spark.plan import ControlAddress

_log = logging.getLogger("consumer_membership.spark")

_CONNECT_S = 5.0
_CONNECT_ATTEMPTS = 3
#: Far more than any report; who sends more without a line's end is none of ours.
_LONGEST_LINE = 4 * 1024 * 1024


class Order(StrEnum):
    """What a driver, or the end of it, tells a task."""

    #: Finish the batch in hand, commit, leave.
    STOP = "stop"
    #: A later attempt of the same task is at work: write nothing more.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """One task's member at one moment, as it told the driver.

    `lag`: records of the owned partitions that are not committed, as far as is known; `rate`: records a second given to
    the sink since the report before; `records`: given to the sink since the attempt's start. `waits_for` says in words
    why nothing is consumed, None where nothing is waited for. `at`: seconds since 1970, by the task's clock.
    """

    instance: int
    attempt: int
    host: str
    pid: int
    state: str
    epoch: int
    owned: tuple[Partition, ...]
    records: int
    batches: int
    rate: float
    lag: int
    waits_for: str | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt of a task failed, in its own words; `kind` is the exception's name.

    `was_latest`: no later attempt of this run had called by then.
    """

    instance: int
    attempt: int
    kind: str
    text: str
    was_latest: bool


# ---- the task's end --------------------------------------------------------------------------------------------------


class NoLink:
    """For a task whose driver does not listen; it can be told to stop within its own process."""

    def __init__(self) -> None:
        self.order: Order | None = None

    def report(self, progress: MemberProgress) -> None:
        """Nobody listens."""

    def fail(self, kind: str, text: str) -> None:
        """Nobody listens; Spark has the exception."""

    def hang_up(self) -> None:
        """Order the task to stop: its process is asked to end."""
        self.order = self.order or Order.STOP

    def close(self) -> None:
        """Nothing is held."""


class ControlLink:
    """A task's line to its driver; made in the task, closed at its end.

    Raises:
        TransportError: the driver cannot be reached at the address in the plan.
    """

    def __init__(self, address: ControlAddress, instance: int, attempt: int) -> None:
        self._instance = instance
        self._attempt = attempt
        self._order: Order | None = None
        self._is_closing = False
        self._lock = threading.Lock()
        self._socket = _connected(address)
        self._send({"secret": address.secret, "instance": instance, "attempt": attempt})
        self._reader = threading.Thread(target=self._read, name="consumer-membership-control", daemon=True)
        self._reader.start()

    @property
    def order(self) -> Order | None:
        """What the driver wants; None: that the task goes on."""
        return self._order

    def report(self, progress: MemberProgress) -> None:
        """Tell the driver; never raises."""
        self._send({"progress": asdict(progress)})

    def fail(self, kind: str, text: str) -> None:
        """Tell the driver why the task is about to fail; never raises."""
        self._send({"failed": {"kind": kind, "text": text}})

    def hang_up(self) -> None:
        """Order the task to stop as if the driver had: the process is asked to end."""
        self._order = self._order or Order.STOP

    def close(self) -> None:
        """Say goodbye; the driver then expects nothing more."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(_CONNECT_S)
        self._socket.close()

    def _send(self, words: Mapping[str, object]) -> None:
        # A driver that does not read must not hold a task: the socket's time is bounded, and its end says STOP.
        with contextlib.suppress(OSError), self._lock:
            self._socket.sendall(json.dumps(words).encode() + b"\n")

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for words in _lines(self._socket):
                self._order = Order(str(words["order"]))
                _log.info("Task %s: the driver says %s", self._instance, self._order)
        if self._order is None and not self._is_closing:
            _log.warning("Task %s: the driver is gone; finishing the batch in hand", self._instance)
            self._order = Order.STOP


#: A task's way to its driver.
Link: TypeAlias = NoLink | ControlLink


def _connected(address: ControlAddress) -> socket.socket:
    attempts = Retrying(
        stop=stop_after_attempt(_CONNECT_ATTEMPTS),
        wait=wait_exponential(multiplier=0.2),
        retry=retry_if_exception_type(OSError),
        reraise=True,
    )
    try:
        connection = attempts(socket.create_connection, (address.host, address.port), _CONNECT_S)
    except OSError as failed:
        raise TransportError(
            f"the driver cannot be reached at {address.host}:{address.port} ({failed}); set spark.driver.host to an "
            "address that executors reach, or give control_host"
        ) from failed
    connection.settimeout(None)
    # Seconds, then microseconds (struct timeval): sends are bounded, reads are not.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_CONNECT_S))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _timeval(seconds: float) -> bytes:
    return int(seconds).to_bytes(8, "little") + (0).to_bytes(8, "little")


# ---- the driver's end ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Line:
    """One attempt's line."""

    attempt: int
    socket: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, order: Order) -> None:
        with contextlib.suppress(OSError), self.lock:
            self.socket.sendall(json.dumps({"order": order}).encode() + b"\n")


class ControlServer:
    """Where the tasks of one run call; each instance has one attempt at work, the latest.

    `host` is what tasks connect to; `bind` where the driver listens.
    """

    def __init__(self, host: str, bind: str) -> None:
        self._listener = socket.create_server((bind, 0))
        self.address = ControlAddress(host=host, port=self._listener.getsockname()[1], secret=secrets.token_hex(16))
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lines: dict[int, _Line] = {}
        self._latest: dict[int, int] = {}
        self._progress: dict[int, MemberProgress] = {}
        self._failures: list[Failure] = []
        self._has_replacements = False
        self._order: Order | None = None
        self._thread = threading.Thread(target=self._accept, name="consumer-membership-driver", daemon=True)
        self._thread.start()

    def progress(self) -> tuple[MemberProgress, ...]:
        """What each instance said last, by instance."""
        with self._lock:
            return tuple(self._progress[instance] for instance in sorted(self._progress))

    def failures(self) -> tuple[Failure, ...]:
        """Why attempts failed, the latest last."""
        with self._lock:
            return tuple(self._failures)

    def attempts(self) -> Mapping[int, int]:
        """The latest attempt of each instance that called."""
        with self._lock:
            return dict(self._latest)

    @property
    def has_replacements(self) -> bool:
        """Whether any instance had more than one attempt that called."""
        with self._lock:
            return self._has_replacements

    def stop(self) -> None:
        """Order every task to stop, those too that call later."""
        with self._lock:
            self._order = Order.STOP
            lines = list(self._lines.values())
        for line in lines:
            line.send(Order.STOP)

    def close(self) -> None:
        """Hang up; tasks that are still there take it for the driver's end."""
        with contextlib.suppress(OSError):
            # Wakes the accepting thread, which closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CONNECT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="consumer-membership-task", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        line: _Line | None = None
        instance = -1
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for words in _lines(connection):
                if line is not None:
                    self._heard(instance, line, words)
                    continue
                if not hmac.compare_digest(str(words["secret"]), self.address.secret):
                    return
                instance = int(str(words["instance"]))
                line = _Line(attempt=int(str(words["attempt"])), socket=connection)
                self._enter(instance, line)
        with self._changed:
            if line is not None and self._lines.get(instance) is line:
                del self._lines[instance]
            self._changed.notify_all()

    def _enter(self, instance: int, line: _Line) -> None:
        """The latest attempt is the one at work; an older one hears of it, whichever called first."""
        with self._lock:
            latest = self._latest.get(instance, -1)
            self._has_replacements = self._has_replacements or instance in self._latest
            is_latest = line.attempt >= latest
            replaced = self._lines.get(instance) if is_latest else line
            if is_latest:
                self._latest[instance] = line.attempt
                self._lines[instance] = line
            order = self._order
        if replaced is not None:
            replaced.send(Order.SUPERSEDED)
        if order is not None:
            line.send(order)

    def _heard(self, instance: int, line: _Line, words: Mapping[str, object]) -> None:
        with self._changed:
            match words:
                case {"progress": dict() as said}:
                    if self._lines.get(instance) is line:
                        owned = tuple((str(topic), int(number)) for topic, number in said["owned"])
                        self._progress[instance] = MemberProgress(**{**said, "owned": owned})
                case {"failed": {"kind": str() as kind, "text": str() as text}}:
                    was_latest = self._latest.get(instance) == line.attempt
                    self._failures.append(
                        Failure(instance=instance, attempt=line.attempt, kind=kind, text=text, was_latest=was_latest)
                    )
            self._changed.notify_all()

    def wait_for_change(self, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Return when a task said something, when it was woken, or after this time; at once if it is over."""
        with self._changed:
            if not is_over():
                self._changed.wait(timeout_s)

    def wait_for_ends(self, timeout_s: float) -> bool:
        """Return when every task at work has hung up, or after this time; whether every one has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines, timeout_s)

    def wake(self) -> None:
        """Have whoever waits look again."""
        with self._changed:
            self._changed.notify_all()


def _lines(connection: socket.socket) -> Iterator[Mapping[str, object]]:
    """The objects that the other end sends, until it closes."""
    with connection.makefile("rb") as stream:
        while line := stream.readline(_LONGEST_LINE):
            words = json.loads(line)
            if not isinstance(words, dict):
                raise TypeError(f"not an object: {line[:80]!r}")
            yield words
