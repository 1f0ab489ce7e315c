"""Run a broker in the foreground until Ctrl-C, for the command `broker`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from consumer_membership.devbroker.backends import start
from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.request import Backend

_CHECK_INTERVAL_S = 1.0  # the maximum delay until the end of a broker is reported


def run_foreground(
    version: str | None,
    nodes: int | None,
    properties: Mapping[str, str],
    out: TextIO,
    err: TextIO,
    *,
    port: int | None = None,
    backend: Backend | None = None,
) -> int:
    """Start a broker, print its address, and run it until Ctrl-C or SIGTERM; call it in the main thread.

    For an existing broker, only its address is printed. The other arguments are those of `start`. The exit code is 0
    after a stop, or 1 with the reason on `err` if no broker started or it ended unexpectedly.
    """
    try:
        with sigterm_as_ctrl_c(), start(version, nodes, properties, backend=backend, port=port) as broker:
            _describe(broker, out)
            if broker.node_ids:
                _watch(broker)
    except KeyboardInterrupt:
        _print(out, "Stopped.")
    except BrokerUnavailableError as error:
        _print(err, f"consumer-membership broker: {error}")
        return 1
    return 0


def _describe(broker: Broker, out: TextIO) -> None:
    count = len(broker.bootstrap_servers.split(","))
    _print(out, f"Kafka {broker.version} is ready: {broker.backend.value}, {count} node{'s' * (count > 1)}")
    _print(out, f"bootstrap.servers={broker.bootstrap_servers}")
    if broker.backend is Backend.EXISTING:
        _print(out, "This existing broker is not controlled by this command.")
    else:
        _print(out, "Press Ctrl-C to stop the broker and delete its data.")


def _watch(broker: Broker) -> None:
    """Wait for KeyboardInterrupt or for the unexpected end of a node."""
    never = threading.Event()
    while not never.wait(_CHECK_INTERVAL_S):
        broker.require_nodes()


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGINT, so that also a start is undone.

    SIGINT is set because a shell ignores it for background processes.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(out: TextIO, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()
