"""Handles SIGUSR2: each live session with `recorder.signal.enable` writes a recording.

The handler only starts a thread: the interrupted code may hold any lock. A handler that the program set before is
called afterwards.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable
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
        """Whether this process created the consumer."""

    def dump(self, cause: str) -> Path:
        """Write a recording and return the path of its file."""


CAUSE = "SIGUSR2"


def have_dumped(session: Recorded) -> bool:
    """Have this session write a recording at each SIGUSR2; False: this thread or this system does not support it."""
    if not hasattr(signal, "SIGUSR2") or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGUSR2)
    if not isinstance(handler, _Handler):
        handler = _Handler(handler)
        signal.signal(signal.SIGUSR2, handler)
    handler.sessions.add(session)
    return True


class _Handler:
    """The handler of this package: it has the sessions to record, and the handler that was set before."""

    def __init__(self, before: object) -> None:
        self._before = before
        #: After a fork it also has the parent's sessions, which do not belong to this process.
        self.sessions: WeakSet[Recorded] = WeakSet()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_dump_all, args=(self.sessions,), name="membership recordings", daemon=True).start()
        if callable(self._before):
            self._before(number, frame)


def _dump_all(sessions: Iterable[Recorded]) -> None:
    for session in list(sessions):
        if not session.life.is_ours:
            continue
        try:
            path = session.dump(CAUSE)
        except (MembershipError, OSError) as error:
            _log().warning("The recording could not be written (%s): %s", CAUSE, error)
        else:
            _log().warning("Wrote a recording of a consumer to %s (%s, process %s)", path, CAUSE, os.getpid())
