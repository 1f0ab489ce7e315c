"""The clock by which sessions end: it also runs while the machine is suspended, as the brokers' clocks do.

`time.monotonic` stops during a suspension on Linux and macOS. By that clock the lease of a member would still be valid
when a laptop or a virtual machine continues after an hour.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

#: The present time in seconds, from an arbitrary start. A partial of two C functions: half the cost of a Python one.
session_time: Callable[[], float]
if sys.platform == "linux":
    session_time = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":  # Python's `monotonic` is another clock there: it stops
    session_time = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
else:  # Windows: `monotonic` counts suspensions
    session_time = time.monotonic
