"""A program whose transactional producer stops once (SIGSTOP) before a call, when its records are delivered.

    python -m tests.support.stopping send_offsets_to_transaction examples/exactly_once.py ...

The whole process stops with all its threads, as a debugger, a hypervisor or a laptop's lid stops it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import runpy
import signal
import sys

import confluent_kafka
from confluent_kafka import Producer

_PR_SET_PDEATHSIG = 1


@functools.cache
def stop() -> None:
    """Stop this process once."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stopping_before(call: str) -> type[Producer]:
    """A producer class that stops before this call."""

    def stopped(self: Producer, *words: object) -> object:
        self.flush()
        stop()
        return getattr(Producer, call)(self, *words)

    return type("StoppingProducer", (Producer,), {call: stopped})


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _, call, *sys.argv = sys.argv
    confluent_kafka.Producer = stopping_before(call)  # type: ignore[misc]  # the point of it
    runpy.run_path(sys.argv[0], run_name="__main__")
