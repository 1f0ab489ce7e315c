"""Stops delivery when a member's lease ends, even if the membership thread is busy.

The membership thread may be busy: in an assignor's `user_data()`, or in the 1,000,000 rounds of a SCRAM password. A
timer of its loop would then be late, and the hot path of `poll`, which reads only the wake-up, would return records
that may belong to another member. One thread watches the leases of all members of the process; it sleeps until the
earliest one ends, and then sends the next `poll` of that consumer through the slow path, which reads the clock.
"""

from __future__ import annotations

import asyncio
import os
import threading
from time import monotonic

from consumer_membership.runtime.line import WakeUp
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.types import Instant

_LOG = PackageLog("consumer_membership.network", "BROKER")


class LeaseWatch:
    """Sets the wake-up of a consumer when its lease ends; may be used by any thread.

    The thread exists while at least one lease is watched.
    """

    def __init__(self) -> None:
        self._ends: dict[WakeUp, Instant] = {}
        self._change = threading.Condition()
        #: When the thread checks again; a lease that is extended meanwhile does not wake it.
        self._check_at = float("inf")
        self._is_running = False

    def watch(self, wake_up: WakeUp, until: Instant | None) -> None:
        """Watch this lease instead of the consumer's former one; None: watch none."""
        with self._change:
            if until is None:
                self._ends.pop(wake_up, None)
                return
            self._ends[wake_up] = until
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="consumer-membership-leases", daemon=True).start()
            elif until < self._check_at:
                self._change.notify()

    def begin_in_child(self) -> None:
        """After a fork: the child has neither the thread nor the members."""
        self.__init__()  # type: ignore[misc]  # every field, as at the start

    def _run(self) -> None:
        with self._change:
            while self._ends:
                now = monotonic()
                for wake_up in [one for one, until in self._ends.items() if until <= now]:
                    del self._ends[wake_up]
                    wake_up.set()
                self._check_at = min(self._ends.values(), default=now)
                if self._check_at > now:
                    self._change.wait(self._check_at - now)
            self._is_running = False


#: The leases of the process: one thread watches them all.
LEASES = LeaseWatch()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=LEASES.begin_in_child)


class MemberLease:
    """The lease of one member: delivery stops at its end, and the member's own thread logs that; used from one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake_up: WakeUp) -> None:
        self._loop = loop
        self._wake_up = wake_up
        self._until: Instant | None = None
        #: The latest lease whose end was logged.
        self._logged: Instant | None = None
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, until: Instant | None) -> None:
        """Follow the lease that ends at this moment; None: there is none.

        A lease that is extended keeps its timer, which is set again when it fires. A lease may already be over when its
        heartbeat response is read, because this process was stopped; it also gets a timer.
        """
        if until != self._until:
            self._until = until
            LEASES.watch(self._wake_up, until)
        if self._timer is None and until is not None and until != self._logged:
            self._timer = self._loop.call_at(until, self._log_end)

    def _log_end(self) -> None:
        self._timer = None
        now, until = self._loop.time(), self._until
        if until is None or until > now:
            self.follow(until)
            return
        self._logged = until
        _LOG.warning(
            "No heartbeat was answered within the session, which ended %.1f s ago; buffered records are withheld until "
            "a heartbeat response confirms the session",
            now - until,
        )
