"""Run a program whose process is suspended once (SIGSTOP), before a call of its transactional producer.

    python -m tests.support.stopping send_offsets_to_transaction examples/exactly_once.py ...

Before that, the records of the producer are delivered. All threads of the process are suspended, as by a debugger, by a
hypervisor, or when a laptop sleeps.
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
    """Suspend this process; only the first call has an effect."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stopping_before(call: str) -> type[Producer]:
    """Return a producer class that suspends the process before this call."""

    def stopped(self: Producer, *arguments: object) -> object:
        self.flush()
        stop()
        return getattr(Producer, call)(self, *arguments)

    return type("StoppingProducer", (Producer,), {call: stopped})


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _, call, *sys.argv = sys.argv
    confluent_kafka.Producer = stopping_before(call)  # type: ignore[misc]  # replaced on purpose
    runpy.run_path(sys.argv[0], run_name="__main__")
