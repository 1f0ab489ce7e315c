"""Brokers that tests share: each kind of broker is started once, when the first test requests it.

A broker needs seconds to start and a few hundred megabytes, so tests share brokers and use their own topics and groups.
This module does not depend on pytest: conftest.py wraps it in fixtures.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.devbroker.backends import VARIABLE, start
from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.request import BrokerRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from consumer_membership.devbroker.broker import Broker
    from consumer_membership.devbroker.listeners import Security
    from consumer_membership.devbroker.request import Backend

#: The controller fences a broker that sends no heartbeat for 9 s (the default), although no other broker can take its
#: partitions over. A test machine may stall for longer. A node that was killed cannot return during this time, so a
#: broker of one test, whose nodes may be killed, keeps the default.
PATIENT_CONTROLLER = {"broker.session.timeout.ms": "60000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStart:
    """The duration of a broker's start.

    Attributes:
        kind: A description of the broker.
        seconds: The time from the call until the broker is ready for groups.
    """

    kind: str
    seconds: float


@dataclass(slots=True)
class _Kind:
    """The brokers of one kind: one broker, or one for each backend that tests requested explicitly."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    brokers: list[Broker] = field(default_factory=list)


class BrokerPool:
    """Starts brokers on demand and keeps them running until `stop`; a context manager.

    Thread-safe: a request for a broker that is starting waits for it. Brokers of different kinds start concurrently.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._lock = threading.Lock()
        self.starts: list[BrokerStart] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def shared(
        self,
        version: str | None = None,
        nodes: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        backend: Backend | None = None,
        security: Security | None = None,
    ) -> Broker:
        """Return the shared broker of this kind. The arguments are those of `start`. Callers must not stop its nodes.

        An omitted argument has its default value. Without a backend, an existing broker of any backend is returned. A
        broker that has ended unexpectedly is replaced.

        Raises:
            BrokerUnavailableError: As for `start`. Each call tries again, because the reason may no longer apply.
        """
        request = BrokerRequest(version=version, nodes=nodes, properties=properties or {}, security=security)
        kind = self._kind(request)
        with kind.lock:
            kind.brokers = [broker for broker in kind.brokers if _is_alive(broker)]
            for broker in kind.brokers:
                if backend in (None, broker.backend):
                    return broker
            began = time.monotonic()
            is_existing = bool(os.environ.get(VARIABLE))
            used = properties if is_existing else {**PATIENT_CONTROLLER, **(properties or {})}
            broker = start(version, nodes, used, backend=backend, security=security)
            self.starts.append(BrokerStart(kind=str(request), seconds=time.monotonic() - began))
            kind.brokers.append(broker)
            return broker

    def stop(self) -> None:
        """Stop all brokers of the pool, even if one of them cannot be stopped."""
        with self._lock, ExitStack() as started:
            for kind in self._kinds.values():
                for broker in kind.brokers:
                    started.callback(broker.stop)
            self._kinds.clear()

    def _kind(self, request: BrokerRequest) -> _Kind:
        """Return the brokers of this kind."""
        is_named = bool(os.environ.get(VARIABLE))
        size = (request.version, request.nodes) if is_named else (request.kafka_version, request.node_count)
        key = (*size, frozenset(request.properties.items()), request.security)
        with self._lock:
            return self._kinds.setdefault(key, _Kind())


def _is_alive(broker: Broker) -> bool:
    """Return whether another test may use the broker."""
    if broker.is_stopped:
        return False
    try:
        broker.require_nodes()
    except BrokerUnavailableError:
        broker.stop()
        return False
    return True
