"""Brokers shared among tests: each kind is started once, when the first test asks for it.

A broker takes seconds to start and a few hundred megabytes; tests keep apart by their own topics and groups instead.
Nothing here knows pytest: the tests' conftest wraps it in fixtures.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from consumer_membership.devbroker.ways import start

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from consumer_membership.devbroker.broker import Broker
    from consumer_membership.devbroker.listeners import Security
    from consumer_membership.devbroker.request import Way


class BrokerPool:
    """Starts brokers on demand and keeps them until it is stopped; a context manager that does so.

    Not thread safe, and one per process: workers of a parallel test run would each start brokers of their own.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[object, ...], Broker] = {}
        self._started = ExitStack()

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
        way: Way | None = None,
        security: Security | None = None,
    ) -> Broker:
        """The one broker of this kind; the arguments are those of `start`. Whoever gets it leaves its nodes alone.

        Raises:
            BrokerUnavailableError: As `start` does, and again at each call: the reason may be gone by then.
        """
        kind = (version, nodes, tuple(sorted((properties or {}).items())), way, security)
        broker = self._shared.get(kind)
        if broker is None or broker.is_stopped:
            started = start(version, nodes, properties, way=way, security=security)
            broker = self._shared[kind] = self._started.enter_context(started)
        return broker

    def stop(self) -> None:
        """Stop every broker that was started here, even if stopping one of them fails."""
        self._shared.clear()
        self._started.close()
