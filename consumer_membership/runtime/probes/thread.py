"""The process's thread that answers probes, from the first consumer that enables them to the last.

Consumers of one process with the same address, or the same file, share it. They are known by weak references and
checked for their end, so that nothing here keeps one alive, and a consumer that is deleted without a close needs no
lock to be forgotten: its finalizer may run in any thread, at any moment.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Protocol
from weakref import ref

from consumer_membership.config.settings import ListenAddress, ProbeSettings
from consumer_membership.health.report import ConsumerReport, ProcessReport
from consumer_membership.health.verdict import Health
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.probes.connections import ProbeSockets, listening
from consumer_membership.runtime.probes.health_file import WRITE_INTERVAL_S, HealthFile
from consumer_membership.runtime.probes.pages import Exposition, Pages, exposition

_log = partial(logging.getLogger, "consumer_membership.session")

#: How often it checks whether any consumer is left, if no file is touched and no wake-up comes.
_CALM_S = 60.0
#: How long `leave` waits until its place is free for others.
_LEAVE_S = 2.0
#: How long it pauses after an unexpected exception.
_ERROR_PAUSE_S = 1.0


class Watched(Protocol):
    """A consumer as probes see it; each property returns at once, in any thread."""

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or deleted."""

    @property
    def has_failed(self) -> bool:
        """Whether it was closed and is only reported because its processor failed."""

    @property
    def client_id(self) -> str:
        """Its name in logs."""

    @property
    def view(self) -> MembershipView:
        """The state of its member."""

    def health(self) -> Health:
        """Its health."""


class ConsumerList:
    """The consumers of one address or file, in the order in which they were created."""

    def __init__(self) -> None:
        #: Replaced as a whole: one thread reads while another one writes.
        self._named: tuple[ref[Watched], ...] = ()

    def __bool__(self) -> bool:
        """Whether it has any consumer."""
        return bool(self._named)

    def add(self, watched: Watched) -> None:
        """Add a consumer; it replaces the failed processors of its group, whose work it continues."""
        group_id = watched.view.group_id
        kept = (named for named in self._named if not _has_failed_in(named(), group_id))
        self._named = (*kept, ref(watched))

    def has(self, watched: Watched) -> bool:
        """Whether it was added and still exists."""
        return any(one() is watched for one in self._named)

    def drop_ended(self) -> bool:
        """Forget consumers that have ended; return whether any is left."""
        self._named = tuple(one for one in self._named if (living := one()) is not None and not living.is_over)
        return bool(self._named)

    def report(self) -> ProcessReport:
        """The report of all of them."""
        found = [one for named in self._named if (one := named()) is not None]
        reports = tuple(
            ConsumerReport(client_id=one.client_id, view=one.view, health=one.health())
            for one in found
            if not one.is_over
        )
        return ProcessReport(process=os.getpid(), at=monotonic(), written_at=time.time(), consumers=reports)


@dataclass(slots=True, kw_only=True)
class _Listener:
    """An address for probes: it listens, and its requests are answered once the thread has opened it."""

    socket: socket.socket
    consumers: ConsumerList
    is_open: bool = False


@dataclass(slots=True, kw_only=True)
class _Touched:
    """A file that is touched, and when it is touched next."""

    file: HealthFile
    consumers: ConsumerList
    write_at: float = 0.0


class ProbeThread:
    """All addresses and files at which this process answers probes."""

    def __init__(self, metrics: Exposition = exposition) -> None:
        self._metrics = metrics
        self._changed = threading.Condition()
        self._listeners: dict[str, _Listener] = {}
        self._touched: dict[str, _Touched] = {}
        #: Only the thread uses it, except for its wake-up; None: no thread runs.
        self._sockets: ProbeSockets | None = None

    # ---- for any thread ----

    def attend(self, settings: ProbeSettings, watched: Watched) -> ListenAddress | None:
        """Report this consumer at its address and file until its end; return the address that listens.

        Raises:
            ConfigurationError: the address or the file cannot be used.
        """
        with self._changed:
            address = settings.address
            listener = None if address is None else self._listener(address)
            try:
                touched = None if settings.file is None else self._file(settings.file, watched)
            except BaseException:
                if listener is not None and not listener.consumers:
                    listener.socket.close()
                raise
            if listener is not None and address is not None:
                self._listeners[str(address)] = listener
                listener.consumers.add(watched)
            if touched is not None:
                self._touched[touched.file.place] = touched
                touched.consumers.add(watched)
            if self._sockets is None:
                self._begin()
        self.ring()
        return None if listener is None else _address_of(listener.socket)

    def leave(self, watched: Watched) -> None:
        """Wait briefly until a consumer that has ended is removed, so that its place is free for others."""
        self.ring()
        with self._changed:
            self._changed.wait_for(lambda: not any(one.consumers.has(watched) for one in self._places()), _LEAVE_S)

    def ring(self) -> None:
        """Have the thread check its consumers; without a lock, for finalizers."""
        sockets = self._sockets
        if sockets is not None:
            sockets.ring()

    def served(self) -> Mapping[str, ListenAddress]:
        """Return the actual address for each configured one, which differs for port 0."""
        with self._changed:
            return {text: _address_of(one.socket) for text, one in self._listeners.items()}

    def forget(self) -> None:
        """In a child of `fork()`: close the inherited files and sockets; the parent keeps its own."""
        for listener in self._listeners.values():
            listener.socket.close()
        for touched in self._touched.values():
            touched.file.release()
        if self._sockets is not None:
            self._sockets.close_all()

    def _places(self) -> list[_Listener | _Touched]:
        return [*self._listeners.values(), *self._touched.values()]

    def _listener(self, address: ListenAddress) -> _Listener:
        found = self._listeners.get(str(address))
        return found if found is not None else _Listener(socket=listening(address), consumers=ConsumerList())

    def _file(self, path: str, watched: Watched) -> _Touched:
        place = os.path.abspath(path)
        found = self._touched.get(place)
        if found is not None:
            found.write_at = 0.0
            return found
        made = _Touched(file=HealthFile(path), consumers=ConsumerList())
        alone = ConsumerList()
        alone.add(watched)
        made.file.write(alone.report())
        return made

    def _begin(self) -> None:
        sockets = ProbeSockets()
        threading.Thread(target=self._run, args=(sockets,), name="membership probes", daemon=True).start()
        self._sockets = sockets

    # ---- on its own thread ----

    def _run(self, sockets: ProbeSockets) -> None:
        while self._tidy(sockets):
            try:
                sockets.turn(min([monotonic() + _CALM_S, *(one.write_at for one in list(self._touched.values()))]))
                self._write_files(monotonic())
            except Exception:  # noqa: BLE001
                # A failure of one consumer or one file: without this thread the process would look dead.
                _log().exception("Probes could not be answered; the thread continues")
                time.sleep(_ERROR_PAUSE_S)

    def _tidy(self, sockets: ProbeSockets) -> bool:
        """Add new consumers, remove those that have ended; False: none is left."""
        with self._changed:
            for text, listener in list(self._listeners.items()):
                if not listener.consumers.drop_ended():
                    del self._listeners[text]
                    if listener.is_open:
                        sockets.close(listener.socket)
                    listener.socket.close()
                elif not listener.is_open:
                    listener.is_open = True
                    sockets.open(listener.socket, Pages(listener.consumers.report, self._metrics).answer)
            for place, touched in list(self._touched.items()):
                if not touched.consumers.drop_ended():
                    del self._touched[place]
                    touched.file.remove()
            self._changed.notify_all()
            if self._listeners or self._touched:
                return True
            self._sockets = None
            sockets.close_all()
            return False

    def _write_files(self, now: float) -> None:
        for touched in list(self._touched.values()):
            if touched.write_at <= now:
                touched.write_at = now + WRITE_INTERVAL_S
                touched.file.write(touched.consumers.report())


def _has_failed_in(watched: Watched | None, group_id: str) -> bool:
    return watched is not None and watched.has_failed and watched.view.group_id == group_id


def _address_of(listener: socket.socket) -> ListenAddress:
    host, port = listener.getsockname()[:2]
    return ListenAddress(host=host, port=port)


class _Process:
    """The thread of this process: a child of `fork()` has its own."""

    def __init__(self) -> None:
        self.probes = ProbeThread()

    def survive_fork(self) -> None:
        """In the child: leave the parent's thread alone."""
        self.probes.forget()
        self.probes = ProbeThread()


#: The probes of this process: its consumers share one thread, addresses and files.
THIS_PROCESS = _Process()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=THIS_PROCESS.survive_fork)
