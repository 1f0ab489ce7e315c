"""The signals to a partner: SIGTERM to leave, SIGUSR1 to stop committing, and SIGKILL when its parent ends."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

#: The option of prctl that sets the signal for the parent's end (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make Linux kill this process when its parent ends; other systems do not support this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def on_sigterm() -> threading.Event:
    """Return an event that SIGTERM sets. Call this in the main thread."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    return stopping


def on_sigusr1() -> threading.Event:
    """Return an event that SIGUSR1 sets. Call this in the main thread."""
    withholding = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: withholding.set())
    return withholding
