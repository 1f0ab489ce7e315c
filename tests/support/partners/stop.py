"""How a partner hears what it is to do: SIGTERM: leave; SIGUSR1: commit no more; its parent's end, which kills it."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

#: prctl's number for "this signal when the parent ends" (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have this process killed when its parent ends, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def on_sigterm() -> threading.Event:
    """Set on SIGTERM; for the main thread."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    return stopping


def on_sigusr1() -> threading.Event:
    """Set on SIGUSR1; for the main thread."""
    withholding = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: withholding.set())
    return withholding
