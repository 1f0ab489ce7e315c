"""Orders from a driver to its tasks, and reports from tasks to their driver, over authenticated lines (`spark.line`).

Spark does not notify a Python task of a cancellation or of a later attempt, and notifies the driver of a task only at
the task's end. While the task works, it restores a broken line: networks are cut, and firewalls drop idle connections.
The task regards the driver as gone when its address refuses connections, or when no peer at this address has
authenticated as the driver for two minutes. Spark also gives an executor up after two minutes without a heartbeat
(`spark.network.timeout`).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType, UnionType
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from consumer_membership.errors import TransportError
from consumer_membership.runtime.failures import is_power_of_ten
from consumer_membership.spark.context import Partition
from consumer_membership.spark.line import BROKEN, AuthenticatedLine, Caller, LineVersionError, admit, call, hang_up
from consumer_membership.spark.plan import ControlAddress

_log = logging.getLogger("consumer_membership.spark")

_CONNECT_S = 5.0
_CONNECT_ATTEMPTS = 3
#: How long a starting task waits for the driver's side of the handshake: other code may hold the interpreter's lock.
_ANSWER_S = 20.0
#: How long a task tries to reconnect to a driver that does not respond, and the pause between two attempts.
_GONE_AFTER_S, _CALL_EVERY_S = 120.0, 0.5
#: The driver's timeout for a whole handshake, which usually takes milliseconds.
_HANDSHAKE_S = 10.0
#: The largest number of connections that have not authenticated, each with a thread; then the driver closes the oldest.
_MOST_CALLERS = 128
#: The pause before the driver accepts again after a failure: the system does not report free file descriptors.
_ACCEPT_AGAIN_S = 0.2


class Order(StrEnum):
    """An order of the driver to a task."""

    #: Finish the current batch, commit and leave the group.
    STOP = "stop"
    #: A later attempt of the same task is running: write nothing more.
    SUPERSEDED = "superseded"


#: The state of a member whose last report is older than its session: it may have lost its place in the group.
SILENT_MEMBER = "SILENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """The progress of one task's member, as of its last report to the driver.

    Attributes:
        instance: The number of the member, from 0.
        attempt: The number of the task's attempt, as in the fences.
        host: The host of the task.
        pid: The process id of the task.
        state: The member's state; "SILENT" if the last report is older than the member's session.
        epoch: The member epoch.
        owned: The owned partitions, without those that another member reports by now.
        records: The number of records that the sink took since the start of the attempt.
        batches: The number of batches that the sink took since the start of the attempt.
        rate: The records per second since the previous report; 0 if the member is silent.
        lag: The number of uncommitted records in the owned partitions, as far as it is known; 0 if a silent member has
            no partition left.
        waits_for: The reason why the member consumes nothing; None if it does not wait.
        at: The time of the report, in seconds since 1970 by the task's clock.
        session_s: The session timeout of the member, in seconds.
        silent_s: The seconds since the report arrived. A member reports twice a second, but not during a sink call.
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
    session_s: float
    silent_s: float = field(default=0.0, compare=False)


#: The kinds of the values of a report, as JSON has them; a float without a fraction may come as an integer.
_KINDS: Mapping[str, type | UnionType] = MappingProxyType(
    {
        "instance": int,
        "attempt": int,
        "host": str,
        "pid": int,
        "state": str,
        "epoch": int,
        "records": int,
        "batches": int,
        "rate": float | int,
        "lag": int,
        "waits_for": str | None,
        "at": float | int,
        "session_s": float | int,
        "silent_s": float | int,
    }
)


def progress_of(fields: Mapping[str, object]) -> MemberProgress:
    """Return the report that has these fields (`dataclasses.asdict`), as they come from JSON.

    Raises:
        ValueError, KeyError, TypeError: these are not the fields of a report, or their values have other types.
    """
    for name, kind in _KINDS.items():
        if name in fields and not isinstance(fields[name], kind):
            raise TypeError(f"{name}={fields[name]!r} in a progress report")
    partitions = fields["owned"]
    if not isinstance(partitions, list | tuple):
        raise TypeError(f"owned={partitions!r} in a progress report")
    owned = tuple((str(topic), int(str(number))) for topic, number in partitions)
    values: dict[str, Any] = {**fields, "owned": owned}
    return MemberProgress(**values)


class MemberReports:
    """The last report of each member, with its present validity; does not read a clock.

    A member that is frozen or cut off cannot report that other members own its partitions. So each partition is shown
    for one member only: the member that is not silent, else that with the higher epoch, else that with the later
    report.
    """

    def __init__(self) -> None:
        self._latest: dict[int, tuple[float, MemberProgress]] = {}

    def note(self, report: MemberProgress, now: float) -> None:
        """Store a report that arrived at `now`, unless it was stored before (each report has its own time, `at`)."""
        _, before = self._latest.get(report.instance, (now, None))
        if before != report:
            self._latest[report.instance] = (now, report)

    def shown(self, now: float) -> tuple[MemberProgress, ...]:
        """Return the progress of each member at `now`, by instance."""
        owners = {
            partition: report.instance
            for _, report in sorted(self._latest.values(), key=_trust(now))
            for partition in report.owned
        }
        return tuple(
            _aged(report, now - came_at, tuple(p for p in report.owned if owners[p] == instance))
            for instance, (came_at, report) in sorted(self._latest.items())
        )


def _trust(now: float) -> Callable[[tuple[float, MemberProgress]], tuple[bool, int, float]]:
    def rank(latest: tuple[float, MemberProgress]) -> tuple[bool, int, float]:
        came_at, report = latest
        return (now - came_at <= report.session_s, report.epoch, came_at)

    return rank


def _aged(report: MemberProgress, silent_s: float, owned: tuple[Partition, ...]) -> MemberProgress:
    if silent_s <= report.session_s:
        return replace(report, silent_s=silent_s, owned=owned)
    return replace(
        report,
        silent_s=silent_s,
        owned=owned,
        state=SILENT_MEMBER,
        rate=0.0,
        lag=report.lag if owned else 0,
        waits_for=f"a report for {silent_s:.0f} s: the process is frozen or cut off, or a sink call takes that long",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The error of a task's attempt; `kind` is the class of the exception, `text` its message.

    `was_latest`: no later attempt of this run had connected by then.
    """

    instance: int
    attempt: int
    kind: str
    text: str
    was_latest: bool


# ---- the task's end --------------------------------------------------------------------------------------------------


class Link:
    """A task's connection to its driver. This base class has no driver; only a signal to its process stops the task.

    `order` is the last order of the driver; None while the task is to continue.
    """

    def __init__(self) -> None:
        self.order: Order | None = None
        #: The reason why the task stops without an order of the driver or the client, so that Spark starts it again.
        self.cut_short: str | None = None

    def report(self, progress: MemberProgress) -> None:
        """Report the progress; never raises."""

    def fail(self, kind: str, text: str) -> None:
        """Report the error with which the task is about to fail; never raises."""

    def hang_up(self) -> None:
        """Order the task to stop, because its process received a signal to end."""
        if self.order is None:
            self.cut_short = "its process received a signal to end"
            self.order = Order.STOP

    def close(self) -> None:
        """Close the connection; the driver then expects no more reports."""


class ControlLink(Link):
    """A task's line to its driver; created in the task, closed at its end.

    `gone_after_s`: how long the task tries to reconnect to a driver that does not respond.

    Raises:
        TransportError: the driver cannot be reached at the address in the plan.
    """

    def __init__(
        self, address: ControlAddress, instance: int, attempt: int, gone_after_s: float = _GONE_AFTER_S
    ) -> None:
        super().__init__()
        self._address = address
        self._caller = Caller(instance=instance, attempt=attempt)
        self._gone_after_s = gone_after_s
        self._closing = threading.Event()
        self._line = _first_line(address, self._caller)
        self._reader = threading.Thread(target=self._read, name="consumer-membership-control", daemon=True)
        self._reader.start()

    def report(self, progress: MemberProgress) -> None:
        """Send the progress to the driver; never raises."""
        self._line.send({"progress": asdict(progress)})

    def fail(self, kind: str, text: str) -> None:
        """Send the error with which the task is about to fail to the driver; never raises."""
        self._line.send({"failed": {"kind": kind, "text": text if self._address.sends_texts else ""}})

    def close(self) -> None:
        """Close the line; the driver then expects no more reports."""
        self._closing.set()
        self._line.hang_up()
        self._reader.join(2 * _CONNECT_S)
        self._line.close()

    def _read(self) -> None:
        self._receive_orders()
        while self.order is None and self._reconnect():
            _log.info("Task %s: the connection to the driver broke and was restored", self._caller.instance)
            self._receive_orders()
        if self.order is None and not self._closing.is_set():
            _log.warning(
                "Task %s: the driver can no longer be reached; finishing the current batch", self._caller.instance
            )
            self.cut_short = "it could no longer reach the driver"
            self.order = Order.STOP

    def _receive_orders(self) -> None:
        """Receive the driver's orders until the line ends."""
        try:
            for message in self._line.received():
                if "order" in message:
                    self.order, self.cut_short = Order(str(message["order"])), None
                    _log.info("Task %s: received the driver's order %s", self._caller.instance, self.order)
        except BROKEN as broken:
            _log.debug("Task %s: the connection to the driver ended: %s", self._caller.instance, broken)

    def _reconnect(self) -> bool:
        """Reconnect; return False if the address refuses, the driver does not respond for long, or the task ends."""
        deadline = time.monotonic() + self._gone_after_s
        while not self._closing.is_set():
            try:
                line = _called(self._address, self._caller, _CONNECT_S)
            except ConnectionRefusedError:
                return False
            except (*BROKEN, LineVersionError) as failed:
                _log.debug("Task %s: the driver does not respond: %s", self._caller.instance, failed)
                if time.monotonic() > deadline:
                    return False
                self._closing.wait(_CALL_EVERY_S)
            else:
                self._line.close()
                self._line = line
                if self._closing.is_set():
                    # `close` has ended only the previous line.
                    line.hang_up()
                return True
        return False


def _called(address: ControlAddress, caller: Caller, answer_s: float) -> AuthenticatedLine:
    """Connect to the driver; raise the errors of `line.call`."""
    connection = socket.create_connection((address.host, address.port), _CONNECT_S)
    try:
        return call(connection, address.secret, caller, answer_s)
    except BaseException:
        connection.close()
        raise


def _first_line(address: ControlAddress, caller: Caller) -> AuthenticatedLine:
    attempts = Retrying(
        stop=stop_after_attempt(_CONNECT_ATTEMPTS),
        wait=wait_exponential(multiplier=0.2),
        retry=retry_if_exception_type(BROKEN),
        reraise=True,
    )
    server = f"{address.host}:{address.port}"
    try:
        return attempts(_called, address, caller, _ANSWER_S)
    except LineVersionError as other:
        raise LineVersionError(f"the driver at {server}: {other}") from other
    except BROKEN as failed:
        raise TransportError(
            f"the driver cannot be reached at {server}: no driver of this run responds there ({failed}); set "
            "spark.driver.host, or the argument control_host, to an address of the driver that executors can reach"
        ) from failed


# ---- the driver's end ------------------------------------------------------------------------------------------------


class ControlServer:
    """The driver's server for the tasks of one run; only the latest attempt of each instance may work.

    Args:
        host: The address to which tasks connect.
        bind: The address on which the driver listens.
        sends_texts: Whether tasks send the texts of their errors, unencrypted.
        handshake_s: The time in seconds after which a connection that has not authenticated is closed.
    """

    def __init__(self, host: str, bind: str, *, sends_texts: bool = True, handshake_s: float = _HANDSHAKE_S) -> None:
        self._listener = socket.create_server((bind, 0))
        self.address = ControlAddress(
            host=host, port=self._listener.getsockname()[1], secret=secrets.token_hex(32), sends_texts=sends_texts
        )
        self._handshake_s = handshake_s
        self._is_closed = threading.Event()
        self._changed = threading.Condition()
        #: Connections that have not authenticated yet, the oldest first.
        self._callers: dict[socket.socket, None] = {}
        self._strangers = 0
        self._lines: dict[int, AuthenticatedLine] = {}
        self._latest: dict[int, int] = {}
        self._reports = MemberReports()
        #: The time after which no report can arrive; None while reports can arrive.
        self._ended_at: float | None = None
        self._failures: list[Failure] = []
        #: Whether any instance had more than one attempt that connected.
        self.has_replacements = False
        self._order: Order | None = None
        self._thread = threading.Thread(target=self._accept, name="consumer-membership-driver", daemon=True)
        self._thread.start()

    def progress(self) -> tuple[MemberProgress, ...]:
        """Return the last report of each member, by instance, with its present validity."""
        with self._changed:
            return self._reports.shown(time.monotonic() if self._ended_at is None else self._ended_at)

    def failures(self) -> tuple[Failure, ...]:
        """Return the errors of attempts, the latest last."""
        with self._changed:
            return tuple(self._failures)

    def attempts(self) -> Mapping[int, int]:
        """Return the latest attempt of each instance that has connected."""
        with self._changed:
            return dict(self._latest)

    def stop(self) -> None:
        """Order every task to stop, including tasks that connect later."""
        with self._changed:
            self._order = Order.STOP
            lines = list(self._lines.values())
        for line in lines:
            line.send({"order": Order.STOP})

    def close(self) -> None:
        """Close all connections; remaining tasks then regard the driver as gone."""
        self._is_closed.set()
        with contextlib.suppress(OSError):
            # Wakes the accepting thread; `close` alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_CONNECT_S)
        with self._changed:
            self._ended_at = self._ended_at or time.monotonic()
            callers, lines = list(self._callers), list(self._lines.values())
        for connection in callers:
            hang_up(connection)
        for line in lines:
            line.hang_up()

    def wait_for_change(self, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Return when a task has sent a message, after `wake`, or after this time; at once if `is_over()`."""
        with self._changed:
            if not is_over():
                self._changed.wait(timeout_s)

    def wait_for_ends(self, timeout_s: float) -> None:
        """Return when every task has closed its connection, or after this time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, timeout_s)

    def wake(self) -> None:
        """Wake the threads in `wait_for_change`."""
        with self._changed:
            self._changed.notify_all()

    def _accept(self) -> None:
        """Accept connections until the end, in spite of failures: without this thread, no task could be stopped."""
        failures = 0
        while not self._is_closed.is_set():
            try:
                self._receive(self._listener.accept()[0])
            except (OSError, RuntimeError) as failed:  # RuntimeError: the system has no thread left
                if self._is_closed.is_set():
                    return
                failures += 1
                if is_power_of_ten(failures):
                    _log.warning("The driver cannot accept a task's connection (%d times): %s", failures, failed)
                self._is_closed.wait(_ACCEPT_AGAIN_S)
            else:
                if failures:
                    _log.info("The driver accepts connections again, after %d failures", failures)
                failures = 0

    def _receive(self, connection: socket.socket) -> None:
        """Serve a connection in its own thread; close the oldest unauthenticated connection if there are too many."""
        serving = threading.Thread(target=self._serve, args=(connection,), name="consumer-membership-task", daemon=True)
        with self._changed:
            oldest = next(iter(self._callers)) if len(self._callers) >= _MOST_CALLERS else None
            if oldest is not None:
                del self._callers[oldest]
            self._callers[connection] = None
        if oldest is not None:
            hang_up(oldest)
        try:
            serving.start()
        except RuntimeError:
            with self._changed:
                self._callers.pop(connection, None)
            connection.close()
            raise

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            line = self._admitted(connection)
            if line is None:
                return
            instance = line.caller.instance
            self._enter(instance, line)
            if self._is_closed.is_set():
                # `close` may have ended the lines before this line was added.
                line.hang_up()
            try:
                for message in line.received():
                    self._receive_message(instance, line, message)
            except BROKEN as broken:
                _log.debug("The connection to task %s ended: %s", instance, broken)
            with self._changed:
                if self._lines.get(instance) is line:
                    del self._lines[instance]
                self._changed.notify_all()

    def _admitted(self, connection: socket.socket) -> AuthenticatedLine | None:
        try:
            return admit(connection, self.address.secret, self._handshake_s, self._note_attempt)
        except (*BROKEN, LineVersionError) as refused:
            with self._changed:
                self._strangers += 1
                count = self._strangers
            if is_power_of_ten(count) and not self._is_closed.is_set():
                _log.warning("The driver closed a connection that did not authenticate (%d so far): %s", count, refused)
            return None
        finally:
            with self._changed:
                self._callers.pop(connection, None)

    def _note_attempt(self, caller: Caller) -> None:
        """Note an attempt before it joins the group, so that its fenced predecessor does not count as the latest."""
        with self._changed:
            latest = self._latest.setdefault(caller.instance, caller.attempt)
            self.has_replacements = self.has_replacements or latest != caller.attempt
            self._latest[caller.instance] = max(latest, caller.attempt)

    def _enter(self, instance: int, line: AuthenticatedLine) -> None:
        """Keep the line of the latest attempt, and send SUPERSEDED to an older one, in whatever order they connect."""
        with self._changed:
            replaced: AuthenticatedLine | None = line
            if line.caller.attempt == self._latest[instance]:
                replaced = self._lines.get(instance)
                self._lines[instance] = line
            order = self._order
        if replaced is not None and replaced.caller.attempt == line.caller.attempt and replaced is not line:
            # The same attempt has reconnected, so its previous line is dead.
            replaced.hang_up()
        elif replaced is not None:
            replaced.send({"order": Order.SUPERSEDED})
        if order is not None:
            line.send({"order": order})

    def _receive_message(self, instance: int, line: AuthenticatedLine, message: Mapping[str, object]) -> None:
        with self._changed:
            match message:
                case {"progress": dict() as fields}:
                    if self._lines.get(instance) is line:
                        self._reports.note(progress_of(fields), time.monotonic())
                case {"failed": {"kind": str() as kind, "text": str() as text}}:
                    was_latest = self._latest.get(instance) == line.caller.attempt
                    self._failures.append(
                        Failure(
                            instance=instance, attempt=line.caller.attempt, kind=kind, text=text, was_latest=was_latest
                        )
                    )
            self._changed.notify_all()
