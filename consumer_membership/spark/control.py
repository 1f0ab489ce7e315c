"""Orders from a driver to its tasks, and reports from tasks to their driver, over authenticated lines (`spark.line`).

Spark does not inform a Python task of a cancellation or of a later attempt, and informs the driver of a task only at
the task's end. The task makes a broken line again while it works on: networks are cut, and firewalls forget
connections. The task takes the driver for gone when its address refuses connections, or when no peer there has proved
for two minutes to be the driver. Spark also gives up an executor of which it hears nothing for two minutes
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
#: How long a driver that does not answer is called again, and the pause between two calls.
_GONE_AFTER_S, _CALL_EVERY_S = 120.0, 0.5
#: For a handshake as a whole, on the driver. It takes milliseconds.
_HANDSHAKE_S = 10.0
#: Connections that have not authenticated yet, each with a thread; beyond them the driver closes the oldest.
_MOST_CALLERS = 128
#: Between two attempts to accept a connection after a failure: the system does not report that files are free again.
_ACCEPT_AGAIN_S = 0.2


class Order(StrEnum):
    """What a driver, or the end of it, tells a task."""

    #: Finish the batch in hand, commit, leave.
    STOP = "stop"
    #: A later attempt of the same task is at work: write nothing more.
    SUPERSEDED = "superseded"


#: The state of a member whose last report is older than its session: it may have lost its place in the group.
SILENT_MEMBER = "SILENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """One task's member at one moment, as it reported to the driver.

    Attributes:
        instance: The task's number.
        attempt: The number of the task's attempt, as in fences.
        host: Where the task runs.
        pid: Its process there.
        state: The member's state; "SILENT" if the last report is older than the member's session.
        epoch: The member's epoch.
        owned: Its partitions, without those that another member has by now (`MemberReports`).
        records: Given to the sink since the attempt's start.
        batches: Given to the sink since the attempt's start.
        rate: Records a second given to the sink since the report before; 0 if the member is silent.
        lag: Records of the owned partitions that are not committed, as far as is known; 0 if a silent member has no
            partition left.
        waits_for: Why nothing is consumed, None where nothing is waited for.
        at: Seconds since 1970, by the task's clock.
        session_s: How long the member may be away before its partitions go to others.
        silent_s: How long ago the report reached the driver. A member reports twice a second, but not during a call of
            its sink.
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


class MemberReports:
    """The last report of each member, and what it is worth by now; pure: it receives the time.

    A member that is frozen or cut off cannot report that others have its partitions. So each partition is shown for one
    member only: silent members count last, then lower epochs, then reports that came earlier.
    """

    def __init__(self) -> None:
        self._latest: dict[int, tuple[float, MemberProgress]] = {}

    def note(self, report: MemberProgress, now: float) -> None:
        """Take a report that came now; one that was read before is not taken again (each has its own time, `at`)."""
        _, before = self._latest.get(report.instance, (now, None))
        if before != report:
            self._latest[report.instance] = (now, report)

    def shown(self, now: float) -> tuple[MemberProgress, ...]:
        """Each member as it is known now, by instance."""
        owners = {
            place: report.instance
            for _, report in sorted(self._latest.values(), key=_trust(now))
            for place in report.owned
        }
        return tuple(
            _aged(report, now - came_at, tuple(place for place in report.owned if owners[place] == instance))
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
        waits_for=f"a report, for {silent_s:.0f} s: its process is frozen or cut off, or its sink still works",
    )


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
        self._caller = Caller(instance=instance, attempt=attempt)
        self._gone_after_s = gone_after_s
        self._closing = threading.Event()
        self._line = _first_line(address, self._caller)
        self._reader = threading.Thread(target=self._read, name="consumer-membership-control", daemon=True)
        self._reader.start()

    def report(self, progress: MemberProgress) -> None:
        """Send the driver a report; never raises."""
        self._line.send({"progress": asdict(progress)})

    def fail(self, kind: str, text: str) -> None:
        """Send the driver why the task is about to fail; never raises."""
        self._line.send({"failed": {"kind": kind, "text": text if self._address.sends_texts else ""}})

    def close(self) -> None:
        """Close the line; the driver then expects no more reports."""
        self._closing.set()
        self._line.hang_up()
        self._reader.join(2 * _CONNECT_S)
        self._line.close()

    def _read(self) -> None:
        self._receive_orders()
        while self.order is None and self._has_called_again():
            _log.info("Task %s: the line to the driver broke and is restored", self._caller.instance)
            self._receive_orders()
        if self.order is None and not self._closing.is_set():
            _log.warning("Task %s: the driver is gone; finishing the current batch", self._caller.instance)
            self.cut_short = "it could not reach the driver any more"
            self.order = Order.STOP

    def _receive_orders(self) -> None:
        """Take the driver's orders until the line ends."""
        try:
            for words in self._line.received():
                if "order" in words:
                    self.order, self.cut_short = Order(str(words["order"])), None
                    _log.info("Task %s: the driver orders %s", self._caller.instance, self.order)
        except BROKEN as broken:
            _log.debug("Task %s: the line to the driver ended: %s", self._caller.instance, broken)

    def _has_called_again(self) -> bool:
        """Whether there is a new line; none if the address refuses, no driver answers for long, or at the end."""
        deadline = time.monotonic() + self._gone_after_s
        while not self._closing.is_set():
            try:
                line = _called(self._address, self._caller, _CONNECT_S)
            except ConnectionRefusedError:
                return False
            except (*BROKEN, LineVersionError) as failed:
                _log.debug("Task %s: the driver does not answer: %s", self._caller.instance, failed)
                if time.monotonic() > deadline:
                    return False
                self._closing.wait(_CALL_EVERY_S)
            else:
                self._line.close()
                self._line = line
                if self._closing.is_set():
                    # `close` has hung up the line before this one.
                    line.hang_up()
                return True
        return False


def _called(address: ControlAddress, caller: Caller, answer_s: float) -> AuthenticatedLine:
    """A line to the driver; raises what `line.call` raises."""
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
    place = f"{address.host}:{address.port}"
    try:
        return attempts(_called, address, caller, _ANSWER_S)
    except LineVersionError as other:
        raise LineVersionError(f"the driver at {place}: {other}") from other
    except BROKEN as failed:
        raise TransportError(
            f"the driver cannot be reached at {place}: no driver of this run answers there ({failed}); set "
            "spark.driver.host to an address of the driver that executors reach, or give control_host"
        ) from failed


# ---- the driver's end ------------------------------------------------------------------------------------------------


class ControlServer:
    """Where the tasks of one run call; each instance has one attempt at work, the latest.

    Args:
        host: What tasks connect to.
        bind: Where the driver listens.
        sends_texts: Whether tasks send the texts of their errors, which travel in clear text.
        handshake_s: After this time the driver closes a connection that has not authenticated.
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
        #: When no more reports could come; None: they still can.
        self._ended_at: float | None = None
        self._failures: list[Failure] = []
        #: Whether any instance had more than one attempt that called.
        self.has_replacements = False
        self._order: Order | None = None
        self._thread = threading.Thread(target=self._accept, name="consumer-membership-driver", daemon=True)
        self._thread.start()

    def progress(self) -> tuple[MemberProgress, ...]:
        """The last report of each instance, by instance, and what it is worth by now."""
        with self._changed:
            return self._reports.shown(time.monotonic() if self._ended_at is None else self._ended_at)

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
        self._is_closed.set()
        with contextlib.suppress(OSError):
            # Wakes the accepting thread, which closing alone does not.
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
        """Accept until the end, whatever fails meanwhile: without this thread no task could be stopped."""
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
        """Serve a connection in a thread of its own; make room for it among those that have not authenticated."""
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
                # `close` may have looked through the lines before this one was among them.
                line.hang_up()
            try:
                for words in line.received():
                    self._hear(instance, line, words)
            except BROKEN as broken:
                _log.debug("The line to task %s ended: %s", instance, broken)
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
                _log.warning("The driver closed a connection that did not authenticate (%d by now): %s", count, refused)
            return None
        finally:
            with self._changed:
                self._callers.pop(connection, None)

    def _note_attempt(self, caller: Caller) -> None:
        """Know an attempt before it joins the group, so that its fenced predecessor does not count as the latest."""
        with self._changed:
            latest = self._latest.setdefault(caller.instance, caller.attempt)
            self.has_replacements = self.has_replacements or latest != caller.attempt
            self._latest[caller.instance] = max(latest, caller.attempt)

    def _enter(self, instance: int, line: AuthenticatedLine) -> None:
        """Give the instance's line to the latest attempt; an older one receives SUPERSEDED, whichever called first."""
        with self._changed:
            replaced: AuthenticatedLine | None = line
            if line.caller.attempt == self._latest[instance]:
                replaced = self._lines.get(instance)
                self._lines[instance] = line
            order = self._order
        if replaced is not None and replaced.caller.attempt == line.caller.attempt and replaced is not line:
            # The same attempt has called again: nobody is at the other end of that line.
            replaced.hang_up()
        elif replaced is not None:
            replaced.send({"order": Order.SUPERSEDED})
        if order is not None:
            line.send({"order": order})

    def _hear(self, instance: int, line: AuthenticatedLine, words: Mapping[str, object]) -> None:
        with self._changed:
            match words:
                case {"progress": dict() as said}:
                    if self._lines.get(instance) is line:
                        owned = tuple((str(topic), int(number)) for topic, number in said["owned"])
                        self._reports.note(MemberProgress(**{**said, "owned": owned}), time.monotonic())
                case {"failed": {"kind": str() as kind, "text": str() as text}}:
                    was_latest = self._latest.get(instance) == line.caller.attempt
                    self._failures.append(
                        Failure(
                            instance=instance, attempt=line.caller.attempt, kind=kind, text=text, was_latest=was_latest
                        )
                    )
            self._changed.notify_all()
