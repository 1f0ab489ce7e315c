"""Whether a session may be used: it is open, and this is the process that made it.

librdkafka's threads do not survive a `fork()`, and its handle ends the process when it is destroyed in a child. So a
forked child is told at its next call, and the handle is never destroyed there.

Which static member's place each session has is known here, too, because sessions of one process that want the same one
take it from each other, and neither can tell from its own configuration.
"""

from __future__ import annotations

import os
from weakref import WeakSet, WeakValueDictionary

from consumer_membership.config import ConnectionSettings
from consumer_membership.config.environment import is_from_environment, variable_of
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.session_errors import ClosedError, ForkedError
from consumer_membership.runtime.line import WakeUp


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPlace:
    """A static member's place in a group of one cluster, which only one member can have (KIP-345)."""

    group_id: str
    instance_id: str
    servers: frozenset[tuple[str, int]]

    def warning(self) -> str:
        """What to tell who takes it where another live session of this process has it."""
        key, pool = "group.instance.id", "group.instance.id.pool"
        origin = ""
        if is_from_environment(key, self.instance_id):
            origin = f", from the environment variable {variable_of(key)},"
        return (
            f"group.instance.id {self.instance_id!r}{origin} is used by two live consumers of group {self.group_id!r} "
            "in this process; only one member can hold it, so one consumer is fenced or waits when the other joins. "
            f"Give each consumer its own id in your code, or set group.instance.id.pool ({variable_of(pool)})"
        )


def place_of(member: MemberSettings, connection: ConnectionSettings) -> StaticPlace | None:
    """The place that a member's configuration names; None for a dynamic one, and for one that claims its id."""
    if member.instance_id is None:
        return None
    servers = frozenset(connection.bootstrap_servers)
    return StaticPlace(group_id=member.group_id, instance_id=member.instance_id, servers=servers)


class Registry:
    """The sessions of one process, and which static member's place each took; two consumers share nothing else.

    Weak, so that it keeps no consumer alive, and places are only asked by key, so that it needs no lock that a fork
    could leave locked; of what a child inherits no session is its own.
    """

    def __init__(self) -> None:
        self._lives: WeakSet[Lifetime] = WeakSet()
        self._places: WeakValueDictionary[StaticPlace, Lifetime] = WeakValueDictionary()

    def add(self, life: Lifetime) -> None:
        """Have this session hear of a fork."""
        self._lives.add(life)

    def take_place(self, place: StaticPlace, life: Lifetime) -> Lifetime | None:
        """Give this session the place; the session that took it last, if any lives."""
        other = self._places.get(place)
        self._places[place] = life
        return other

    def survive_fork(self) -> None:
        """In the child: make every session of the parent's safe to keep."""
        for life in list(self._lives):
            life.survive_fork()


#: Of the process: `os.fork` copies all of its sessions, and two of them may want the same static member's place.
SESSIONS_OF_PROCESS = Registry()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=SESSIONS_OF_PROCESS.survive_fork)


class Lifetime:
    """The life of one session."""

    __slots__ = ("__weakref__", "_fetcher", "_place", "_process", "_registry", "_wake_up", "is_closed", "is_ending")

    def __init__(self, fetcher: Fetcher, wake_up: WakeUp, registry: Registry) -> None:
        self._process = os.getpid()
        self._fetcher = fetcher
        self._wake_up = wake_up
        self._registry = registry
        #: Set when closing begins: whoever polls comes back soon.
        self.is_ending = False
        self.is_closed = False
        self._place: StaticPlace | None = None
        wake_up.add_reason(lambda: self.is_ending)
        registry.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that made the session."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Raise if this is another process than the one that made the session."""
        if not self.is_ours:
            raise ForkedError(
                f"this consumer was created in process {self._process} and cannot be used in its child {os.getpid()}; "
                "create a new one after fork(), or start processes with multiprocessing's 'spawn' method"
            )

    def check(self) -> None:
        """Raise if the session cannot be used (any more, or here)."""
        self.check_process()
        if self.is_closed:
            raise ClosedError("Consumer closed")

    def take_place(self, place: StaticPlace) -> bool:
        """Note that this session is to have this place; True: it is the first to ask for it while another one lives.

        A session asks once: what it took it keeps until its end.
        """
        if self._place is not None:
            return False
        self._place = place
        other = self._registry.take_place(place, self)
        return other is not None and other.is_ours and not other.is_ending

    def end(self) -> None:
        """Send the hot path of `poll` the long way, where the end is noticed."""
        self.is_ending = True
        self._wake_up.set()

    def close(self) -> None:
        """Note that the session is closed: every call from now on is refused."""
        self.is_closed = True

    def survive_fork(self) -> None:
        """In the child: take the records from the hot path, and keep the handle from ever being destroyed."""
        import ctypes  # only forks need it

        self._wake_up.set()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._fetcher.handle))
