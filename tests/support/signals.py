"""The signals that another process handles, so that a test sends them neither too early nor in vain."""

from __future__ import annotations

import re
import signal
from pathlib import Path


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether this process of Linux has a handler for the signal; before that, SIGTERM ends Python at once."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)[0], 16)
    return bool(caught >> (number - 1) & 1)
