"""A program whose transactional producer stands still (SIGSTOP) in front of a call, once, its records delivered.

    python -m tests.support.stopping send_offsets_to_transaction examples/exactly_once.py ...

What is stopped there is what a debugger, a hypervisor or a laptop's lid stops: threads and all.
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
    """Be stopped, here and now; once in a life."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stopping_before(call: str) -> type[Producer]:
    """A producer that does so."""

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
