"""The line between a driver and its tasks: orders one way, reports the other; one JSON object a line over TCP.

Spark tells a Python task nothing: not that it was cancelled, not that another attempt replaced it, and the driver hears
nothing of a task before its end. A line that breaks is made again while the task works on: networks are cut, and
firewalls forget connections. The driver is gone when nobody listens at its address, or after two minutes without an
answer, which is when Spark gives up an executor of which it hears nothing (`spark.network.timeout`).

The driver knows its tasks by a secret that travels with the plan; who does not begin with it is not listened to.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from consumer_membership.errors import TransportError
from consumer_membership.spark.context import Partition
from consumer_membership.spark.plan import ControlAddress

_log = logging.getLogger("consumer_membership.spark")

_CONNECT_S = 5.0
_CONNECT_ATTEMPTS = 3
#: How long what is sent may stay unconfirmed, and a line without words unproven, until it counts as broken: the
#: system's own patience is a quarter of an hour, and two hours.
_UNCONFIRMED_S = 10
#: How long a driver that does not answer is called again, and the pause between two calls.
_GONE_AFTER_S, _CALL_EVERY_S = 120.0, 0.5
#: Far more than any report; who sends more without a line's end is none of ours.
_LONGEST_LINE = 4 * 1024 * 1024
#: What a line may end with: a connection that broke, or words that are none of ours.
_BROKEN = (OSError, ValueError, KeyError, TypeError)


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


class Link:
    """A task's way to its driver; this one has no driver that listens, and is told to stop by its own process only.

    `order` is what the driver wants; None: that the task goes on.
    """

    def __init__(self) -> None:
        self.order: Order | None = None
        #: Why the task stops though nobody who wants the run has said so, in words: Spark is to start it again.
        self.cut_short: str | None = None

    def report(self, progress: MemberProgress) -> None:
        """Tell the driver; never raises."""

    def fail(self, kind: str, text: str) -> None:
        """Tell the driver why the task is about to fail; never raises."""

    def hang_up(self) -> None:
        """Order the task to stop: its process is asked to end."""
        if self.order is None:
            self.cut_short = "its process was told to end"
            self.order = Order.STOP

    def close(self) -> None:
        """Say goodbye; the driver then expects nothing more."""


class ControlLink(Link):
    """A task's line to its driver; made in the task, closed at its end.

    `gone_after_s`: how long a driver that does not answer is called again after the line broke.

    Raises:
        TransportError: the driver cannot be reached at the address in the plan.
    """

    def __init__(
        self, address: ControlAddress, instance: int, attempt: int, gone_after_s: float = _GONE_AFTER_S
    ) -> None:
        super().__init__()
        self._address = address
        self._hello = {"secret": address.secret, "instance": instance, "attempt": attempt}
        self._instance = instance
        self._gone_after_s = gone_after_s
        self._closing = threading.Event()
        self._line = _Line(_connected(address))
        self._line.send(self._hello)
        self._reader = threading.Thread(target=self._read, name="consumer-membership-control", daemon=True)
        self._reader.start()

    def report(self, progress: MemberProgress) -> None:
        """Tell the driver; never raises."""
        self._line.send({"progress": asdict(progress)})

    def fail(self, kind: str, text: str) -> None:
        """Tell the driver why the task is about to fail; never raises."""
        self._line.send({"failed": {"kind": kind, "text": text}})

    def close(self) -> None:
        """Say goodbye; the driver then expects nothing more."""
        self._closing.set()
        self._line.hang_up()
        self._reader.join(2 * _CONNECT_S)
        self._line.socket.close()

    def _read(self) -> None:
        while self._is_served() and self.order is None and self._has_called_again():
            _log.info("Task %s: the line to the driver was broken, and is made again", self._instance)
        if self.order is None and not self._closing.is_set():
            _log.warning("Task %s: the driver is gone; finishing the batch in hand", self._instance)
            self.cut_short = "it could not reach the driver any more"
            self.order = Order.STOP

    def _is_served(self) -> bool:
        """Whether it was this run's driver that listened; returns when the line ends."""
        is_served = False
        with contextlib.suppress(*_BROKEN):
            for words in self._line.received():
                is_served = True
                if "order" in words:
                    self.order, self.cut_short = Order(str(words["order"])), None
                    _log.info("Task %s: the driver says %s", self._instance, self.order)
        return is_served

    def _has_called_again(self) -> bool:
        """Whether there is a new line; none where nobody listens any more, nobody answers for long, or at the end."""
        deadline = time.monotonic() + self._gone_after_s
        while not self._closing.is_set():
            try:
                line = _Line(
                    _configured(socket.create_connection((self._address.host, self._address.port), _CONNECT_S))
                )
            except ConnectionRefusedError:
                return False
            except OSError as failed:
                _log.debug("Task %s: the driver does not answer: %s", self._instance, failed)
                if time.monotonic() > deadline:
                    return False
                self._closing.wait(_CALL_EVERY_S)
            else:
                line.send(self._hello)
                self._line.socket.close()
                self._line = line
                if self._closing.is_set():
                    # It was not there yet when whoever closes hung up.
                    line.hang_up()
                return True
        return False


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
    return _configured(connection)


def _configured(connection: socket.socket) -> socket.socket:
    """For either end: who does not read, or cannot be reached any more, holds nobody."""
    connection.settimeout(None)
    # Sends are bounded, by a struct timeval; reads are not.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("<qq", int(_CONNECT_S), 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wishes = {
        "TCP_USER_TIMEOUT": 1000 * _UNCONFIRMED_S,
        "TCP_KEEPIDLE": _UNCONFIRMED_S // 2,
        "TCP_KEEPINTVL": _UNCONFIRMED_S // 2,
        "TCP_KEEPCNT": 1,
    }
    for name, value in wishes.items():
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


@dataclass(slots=True, eq=False)
class _Line:
    """One end of a connection; nothing that is sent raises, for the end of a line says STOP."""

    socket: socket.socket
    attempt: int = -1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, words: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError), self.lock:
            self.socket.sendall(json.dumps(words).encode() + b"\n")

    def received(self) -> Iterator[Mapping[str, object]]:
        """The objects that the other end sends, until it closes."""
        with self.socket.makefile("rb") as stream:
            while line := stream.readline(_LONGEST_LINE):
                words = json.loads(line)
                if not isinstance(words, dict):
                    raise TypeError(f"not an object: {line[:80]!r}")
                yield words

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


# ---- the driver's end ------------------------------------------------------------------------------------------------


class ControlServer:
    """Where the tasks of one run call; each instance has one attempt at work, the latest.

    `host` is what tasks connect to; `bind` where the driver listens.
    """

    def __init__(self, host: str, bind: str) -> None:
        self._listener = socket.create_server((bind, 0))
        self.address = ControlAddress(host=host, port=self._listener.getsockname()[1], secret=secrets.token_hex(16))
        self._changed = threading.Condition()
        self._lines: dict[int, _Line] = {}
        self._latest: dict[int, int] = {}
        self._progress: dict[int, MemberProgress] = {}
        self._failures: list[Failure] = []
        #: Whether any instance had more than one attempt that called.
        self.has_replacements = False
        self._order: Order | None = None
        self._thread = threading.Thread(target=self._accept, name="consumer-membership-driver", daemon=True)
        self._thread.start()

    def progress(self) -> tuple[MemberProgress, ...]:
        """What each instance said last, by instance."""
        with self._changed:
            return tuple(self._progress[instance] for instance in sorted(self._progress))

    def failures(self) -> tuple[Failure, ...]:
        """Why attempts failed, the latest last."""
        with self._changed:
            return tuple(self._failures)

    def attempts(self) -> Mapping[int, int]:
        """The latest attempt of each instance that called."""
        with self._changed:
            return dict(self._latest)

    def stop(self) -> None:
        """Order every task to stop, those too that call later."""
        with self._changed:
            self._order = Order.STOP
            lines = list(self._lines.values())
        for line in lines:
            line.send({"order": Order.STOP})

    def close(self) -> None:
        """Hang up; tasks that are still there take it for the driver's end."""
        with contextlib.suppress(OSError):
            # Wakes the accepting thread, which closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            lines = list(self._lines.values())
        for line in lines:
            line.hang_up()
        self._thread.join(_CONNECT_S)

    def wait_for_change(self, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Return when a task said something, when it was woken, or after this time; at once if it is over."""
        with self._changed:
            if not is_over():
                self._changed.wait(timeout_s)

    def wait_for_ends(self, timeout_s: float) -> None:
        """Return when every task at work has hung up, or after this time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, timeout_s)

    def wake(self) -> None:
        """Have whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                serving = threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True)
                serving.name = "consumer-membership-task"
                serving.start()

    def _serve(self, connection: socket.socket) -> None:
        line, instance = _Line(_configured(connection)), -1
        with connection, contextlib.suppress(*_BROKEN):
            words = line.received()
            first = next(words, {})
            if not hmac.compare_digest(str(first["secret"]), self.address.secret):
                return
            instance, line.attempt = int(str(first["instance"])), int(str(first["attempt"]))
            self._enter(instance, line)
            for said in words:
                self._hear(instance, line, said)
        with self._changed:
            if self._lines.get(instance) is line:
                del self._lines[instance]
            self._changed.notify_all()

    def _enter(self, instance: int, line: _Line) -> None:
        """The latest attempt is the one at work; an older one hears of it, whichever called first."""
        with self._changed:
            latest = self._latest.get(instance, line.attempt)
            self.has_replacements = self.has_replacements or latest != line.attempt
            replaced: _Line | None = line
            if line.attempt >= latest:
                replaced = self._lines.get(instance)
                self._latest[instance] = line.attempt
                self._lines[instance] = line
            order = self._order
        line.send({"welcome": instance})
        if replaced is not None and replaced.attempt == line.attempt and replaced is not line:
            # The same attempt has called again: nobody is at the other end of that line.
            replaced.hang_up()
        elif replaced is not None:
            replaced.send({"order": Order.SUPERSEDED})
        if order is not None:
            line.send({"order": order})

    def _hear(self, instance: int, line: _Line, words: Mapping[str, object]) -> None:
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
