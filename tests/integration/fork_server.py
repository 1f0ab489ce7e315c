"""Makes the processes of the tests: one that has imported everything and does nothing but fork.

A start takes 10 ms so, and not a second. Each child is a process like any other; its stdout and stderr are given to it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Protocol

NURSERY = multiprocessing.get_context("forkserver")
# There is one such server in a process, so all that any child needs is named here.
NURSERY.set_forkserver_preload(
    [
        "pytest",
        "kafka",
        "tests.integration.partners",
        "tests.integration.victim",
        "tests.support.partners.confluent",
    ]
)


class Descriptor(Protocol):
    """A file descriptor on its way to a child (`multiprocessing.reduction.DupFd`)."""

    def detach(self) -> int:
        """The descriptor's number in the new process."""


def take_up(**streams: Descriptor) -> None:
    """In a child: have these in the place of stdin, stdout or stderr."""
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        if name in streams:
            given = streams[name].detach()
            os.dup2(given, place)
            os.close(given)
    sys.stderr = os.fdopen(2, "w", buffering=1)
