"""Check whether another process handles a signal, so that a test does not send the signal too early."""

from __future__ import annotations

import re
import signal
from pathlib import Path


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether this Linux process has a handler for the signal; without a handler, SIGTERM kills it."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)[0], 16)
    return bool(caught >> (number - 1) & 1)
