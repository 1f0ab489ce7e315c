"""Whether a session may be used: it is open, and this is the process that created it.

librdkafka's threads do not survive a `fork()`, and its handle ends the process when it is destroyed in a child. So a
forked child gets an exception at its next call, and the handle is never destroyed there.

This module also records the static identity of each session, because sessions of one process with the same instance id
take it from each other, and neither session can detect that from its own configuration.
"""

from __future__ import annotations

import os
from weakref import WeakSet, WeakValueDictionary

from consumer_membership.config import ConnectionSettings
from consumer_membership.config.environment import is_from_environment, variable_of
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.runtime.application.holdings import HeldPartitions
from consumer_membership.runtime.application.session_errors import ClosedError, ForkedError
from consumer_membership.runtime.line import WakeUp


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticIdentity:
    """The identity of a static member, which only one member of a group can have at a time (KIP-345)."""

    group_id: str
    instance_id: str
    servers: frozenset[tuple[str, int]]

    def warning(self) -> str:
        """The warning for a consumer whose identity another live session of this process has."""
        key, pool = "group.instance.id", "group.instance.id.pool"
        origin = ""
        if is_from_environment(key, self.instance_id):
            origin = f", from the environment variable {variable_of(key)},"
        return (
            f"group.instance.id {self.instance_id!r}{origin} is used by two live consumers of group {self.group_id!r} "
            "in this process; only one member can hold it, so one consumer is fenced or waits when the other joins. "
            f"Give each consumer its own id in your code, or set group.instance.id.pool ({variable_of(pool)})"
        )


def static_identity_of(member: MemberSettings, connection: ConnectionSettings) -> StaticIdentity | None:
    """The static identity in a member's configuration; None for a dynamic member and for a pool."""
    if member.instance_id is None:
        return None
    servers = frozenset(connection.bootstrap_servers)
    return StaticIdentity(group_id=member.group_id, instance_id=member.instance_id, servers=servers)


class Registry:
    """The sessions of one process, and the static identity that each claimed; two consumers share nothing else.

    It refers weakly, so that it keeps no consumer alive. Claims are only accessed by key, so that no lock is needed
    that a fork could leave locked; the sessions that a child inherits are not its own.
    """

    def __init__(self) -> None:
        self._lives: WeakSet[Lifetime] = WeakSet()
        self._claims: WeakValueDictionary[StaticIdentity, Lifetime] = WeakValueDictionary()

    def add(self, life: Lifetime) -> None:
        """Register this session for forks."""
        self._lives.add(life)

    def claim(self, identity: StaticIdentity, life: Lifetime) -> Lifetime | None:
        """Note that this session has the identity; return the session that claimed it last, if it is alive."""
        other = self._claims.get(identity)
        self._claims[identity] = life
        return other

    def survive_fork(self) -> None:
        """In the child: make every session of the parent process safe to keep."""
        for life in list(self._lives):
            life.survive_fork()


#: The registry of this process: `os.fork` copies all of its sessions, and two of them may have the same static
#: identity.
SESSIONS_OF_PROCESS = Registry()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=SESSIONS_OF_PROCESS.survive_fork)


class Lifetime:
    """The life of one session."""

    __slots__ = ("__weakref__", "_holdings", "_identity", "_process", "_registry", "_wake_up", "is_closed", "is_ending")

    def __init__(self, holdings: HeldPartitions, wake_up: WakeUp, registry: Registry) -> None:
        self._process = os.getpid()
        self._holdings = holdings
        self._wake_up = wake_up
        self._registry = registry
        #: Set when closing begins: a running poll returns soon.
        self.is_ending = False
        self.is_closed = False
        self._identity: StaticIdentity | None = None
        wake_up.add_reason(lambda: self.is_ending)
        registry.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that created the session."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Raise if this is not the process that created the session."""
        if not self.is_ours:
            raise ForkedError(
                f"this consumer was created in process {self._process} and cannot be used in its child {os.getpid()}; "
                "create a new one after fork(), or start processes with multiprocessing's 'spawn' method"
            )

    def check(self) -> None:
        """Raise if the session is closed, or belongs to another process."""
        self.check_process()
        if self.is_closed:
            raise ClosedError("Consumer closed")

    def claim(self, identity: StaticIdentity) -> bool:
        """Note that this session has this identity; True: another live session has it already.

        A session calls this once: it keeps the identity until its end.
        """
        if self._identity is not None:
            return False
        self._identity = identity
        other = self._registry.claim(identity, self)
        return other is not None and other.is_ours and not other.is_ending

    def end(self) -> None:
        """Disable the fast path of `poll`, so that the next call notices the end."""
        self.is_ending = True
        self._wake_up.set()

    def close(self) -> None:
        """Note that the session is closed: every later call raises."""
        self.is_closed = True

    def survive_fork(self) -> None:
        """In the child: disable the fast path of `poll`, and keep the parent's handle from being destroyed."""
        self._wake_up.set()
        self._holdings.survive_fork()
