"""SIGUSR2 as a wish for recordings: each living session that asked for it writes one (`recorder.signal.enable`).

The handler only starts a thread: what it interrupts may hold any lock. A handler that the program had set before is
called afterwards, as if nobody stood between.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol
from weakref import WeakSet

from consumer_membership.errors import MembershipError
from consumer_membership.runtime.application.lifetime import Lifetime

_log = partial(logging.getLogger, "consumer_membership.session")


class Recorded(Protocol):
    """A consumer as the signal needs it."""

    @property
    def life(self) -> Lifetime:
        """Whether this process made it."""

    def dump(self, cause: str) -> Path:
        """Write a recording; the path of its file."""


#: The sessions of this process that want it, and those of a parent, which know it. Process-wide because a signal is.
_SESSIONS: WeakSet[Recorded] = WeakSet()
CAUSE = "SIGUSR2"


def have_dumped(session: Recorded) -> bool:
    """Have this session write a recording at each SIGUSR2; False: this thread, or this system, cannot have that."""
    if not hasattr(signal, "SIGUSR2") or threading.current_thread() is not threading.main_thread():
        return False
    before = signal.getsignal(signal.SIGUSR2)
    if not isinstance(before, _Handler):
        signal.signal(signal.SIGUSR2, _Handler(before))
    _SESSIONS.add(session)
    return True


class _Handler:
    """Ours, with the one that was there before."""

    def __init__(self, before: object) -> None:
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_dump_all, name="membership recordings", daemon=True).start()
        if callable(self._before):
            self._before(number, frame)


def _dump_all() -> None:
    for session in list(_SESSIONS):
        if not session.life.is_ours:
            continue
        try:
            path = session.dump(CAUSE)
        except (MembershipError, OSError) as error:
            _log().warning("No recording could be written (%s): %s", CAUSE, error)
        else:
            _log().warning("Wrote a recording of a member to %s (%s, process %s)", path, CAUSE, os.getpid())
