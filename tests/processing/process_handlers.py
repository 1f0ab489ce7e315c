"""Handlers that run in worker processes: a worker process imports them from this module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import tenacity
from confluent_kafka import Message

from consumer_membership.processing.processes import ProcessContext
from tests.support.waiting import wait_until


def process_and_offset(record: Message) -> tuple[int, str | None, int | None]:
    """Return the process, the topic and the offset."""
    return os.getpid(), record.topic(), record.offset()


def content(record: Message) -> tuple[object, ...]:
    """Return the values of all fields of the record."""
    return (
        record.topic(),
        record.partition(),
        record.offset(),
        record.key(),
        record.value(),
        record.headers(),
        record.timestamp(),
        record.leader_epoch(),
        record.error(),
        record.latency(),
        len(record),
    )


def offsets(records: list[Message]) -> list[int | None]:
    """Return the offsets of a batch."""
    return [record.offset() for record in records]


def context_of(_: Message, context: ProcessContext) -> ProcessContext:
    """Return the context."""
    return context


def lease_of_call(_: Message, context: ProcessContext) -> tuple[bool, int]:
    """Return whether the lease holds, and its token."""
    return context.lease.holds, context.lease.token


def follow_lease(_: Message, context: ProcessContext) -> int:
    """Wait under the guard until the lease is over, and then until it holds again; return the token."""
    with context.lease.guard():
        _log("holds")
        wait_until(lambda: not context.lease.holds, "the end of the lease")
        _log("over")
        wait_until(lambda: context.lease.holds, "the renewal")
    return context.lease.token


def holds_twice(_: Message, context: ProcessContext) -> tuple[bool, bool]:
    """Return whether the lease holds at the start, and whether it holds after the test removed the log."""
    before = context.lease.holds
    _log("began")
    wait_until(lambda: not Path(os.environ["HANDLER_LOG"]).exists(), "the next membership")
    return before, context.lease.holds


def log_lease(record: Message, context: ProcessContext) -> None:
    """Append the value, whether the token is the epoch, and whether the lease held until the end of the guard."""
    with context.lease.guard() as guard:
        is_epoch = context.lease.token == context.epoch
    _log(f"{record.value()!r} {is_epoch} {guard.held}")


def _log(line: str) -> None:
    with Path(os.environ["HANDLER_LOG"]).open("a") as log:
        log.write(line + "\n")


@tenacity.retry(stop=tenacity.stop_after_attempt(5))
def failing_with_policy(_: Message) -> None:
    """Raise, with a policy that the worker process must not follow."""
    raise ValueError("once")


class MissingRecordError(Exception):
    """An error that cannot be pickled, because its constructor has other arguments than its base class."""

    def __init__(self, topic: str, offset: int) -> None:
        super().__init__(f"no record {offset} in {topic}")


def fail(_: Message) -> None:
    """Raise an error with a cause."""
    try:
        dict[str, int]()["price"]
    except KeyError as missing:
        raise ValueError("no price") from missing


def fail_with_own_error(_: Message) -> None:
    """Raise an error that cannot be sent."""
    raise MissingRecordError("orders", 5)


def leave(_: Message) -> None:
    """Raise SystemExit, as `sys.exit` does."""
    sys.exit(3)


def end(_: Message) -> None:
    """End the process without cleaning up."""
    os._exit(7)


def crash(_: Message) -> None:
    """End the process like a memory fault in an extension module."""
    os.kill(os.getpid(), signal.SIGSEGV)


def end_at_offset_one(record: Message) -> int | None:
    """End the process at one record."""
    if record.offset() == 1:
        os._exit(7)
    return record.offset()


def generator(record: Message) -> object:
    """Return an object that cannot be sent."""
    return iter_of(record)


def iter_of(record: Message) -> Iterator[Message]:
    """Yield the record."""
    yield record


def wait(record: Message) -> None:
    """Write the process id to the file that the record's value names, and run until the process is killed."""
    write_pids(record)
    threading.Event().wait()


def wait_with_child(record: Message) -> None:
    """Fork a process that keeps this process's connection open, write the ids of both, and wait."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    write_pids(record, pid)
    threading.Event().wait()


def write_pids(record: Message, *pids: int) -> None:
    """Write the ids of this process and of these processes to the file that the record's value names."""
    value = record.value()
    path = value.decode() if isinstance(value, bytes) else ""
    with open(f"{path}.new", "w") as file:  # noqa: PTH123 - needs no import in the worker process
        file.write(" ".join(map(str, (os.getpid(), *pids))))
    os.rename(f"{path}.new", path)  # noqa: PTH104


def send_signals(_: Message) -> str:
    """Send this process the signals of a terminal and of a service manager; return a program's actions for them."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    shown = "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.pthread_sigmask(0, []))"
    return subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout


def group_of(_: Message) -> tuple[int, int]:
    """Return the process and its process group."""
    return os.getpid(), os.getpgrp()


def files_of(_: Message) -> list[str]:
    """Return the targets of this process's file descriptors."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        except FileNotFoundError:
            continue  # the directory itself
    return found


def log_call(record: Message, context: ProcessContext) -> None:
    """Append a line about this call to the file in the variable HANDLER_LOG: process, key, value and attempt.

    The first attempt for the value `crash` ends the process; `stuck` runs until the process is killed.
    """
    key, value = record.key(), record.value()
    line = f"{os.getpid()} {key!r} {value!r} {context.attempt}\n"
    with open(os.environ["HANDLER_LOG"], "a") as log:  # noqa: PTH123 - one write at the end of the file
        log.write(line)
    if value == b"crash" and context.attempt == 1:
        os._exit(9)
    if value == b"stuck":
        threading.Event().wait()
    if value == b"broken":
        raise ValueError("broken")
