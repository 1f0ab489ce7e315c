"""A broker for as long as a terminal wants it: what the command line's `broker` runs."""

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

_LOOK_S = 1.0  # how soon a broker that died by itself is reported


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
    """Start a broker, say where it is, and keep it until Ctrl-C or SIGTERM; to be called in the main thread.

    An existing broker is shown and left alone. The other arguments are those of `start`. The exit code is 0 after an
    orderly stop; 1 if no broker came up or it died, with the reason on `err`.
    """
    try:
        with sigterm_as_ctrl_c(), start(version, nodes, properties, backend=backend, port=port) as broker:
            _describe(broker, out)
            if broker.node_ids:
                _watch(broker)
    except KeyboardInterrupt:
        _say(out, "Stopped.")
    except BrokerUnavailableError as error:
        _say(err, f"consumer-membership broker: {error}")
        return 1
    return 0


def _describe(broker: Broker, out: TextIO) -> None:
    count = len(broker.bootstrap_servers.split(","))
    _say(out, f"Kafka {broker.version} is ready: {broker.backend.value}, {count} node{'s' * (count > 1)}")
    _say(out, f"bootstrap.servers={broker.bootstrap_servers}")
    if broker.backend is Backend.EXISTING:
        _say(out, "It is somebody else's and stays as it is.")
    else:
        _say(out, "Ctrl-C or SIGTERM stops it and throws its data away.")


def _watch(broker: Broker) -> None:
    """Wait for the KeyboardInterrupt, or for a node to end by itself."""
    never = threading.Event()
    while not never.wait(_LOOK_S):
        broker.require_nodes()


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt for both signals, at whatever point: starting up is undone as well as running is.

    SIGINT too, since a shell ignores it for what it runs in the background.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(out: TextIO, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()
