"""The orders to a partner: SIGTERM to leave, SIGUSR1 to stop committing, and its parent's end, which kills it."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

#: prctl's number for "this signal when the parent ends" (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Kill this process when its parent ends, if the system supports that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def on_sigterm() -> threading.Event:
    """An event that SIGTERM sets; for the main thread."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    return stopping


def on_sigusr1() -> threading.Event:
    """An event that SIGUSR1 sets; for the main thread."""
    withholding = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: withholding.set())
    return withholding
