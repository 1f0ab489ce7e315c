"""The open resources of a sink, such as connections: opened in the process that uses them, and never pickled."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

ResourceT = TypeVar("ResourceT")

#: Resources that a parent process has opened. A child process must not use, close or garbage collect them, because that
#: would send messages on the parent's connection. Global, because the list must outlive the sink.
_INHERITED: list[object] = []


class PerProcess(Generic[ResourceT]):
    """Holds a resource that one process has opened; empty in a forked child, and in an unpickled copy."""

    def __init__(self) -> None:
        self._held: ResourceT | None = None
        self._pid = 0

    def __reduce__(self) -> tuple[type[PerProcess[ResourceT]], tuple[()]]:
        return (type(self), ())

    def get(self, open_one: Callable[[], ResourceT]) -> ResourceT:
        """Return the resource of this process; open it if there is none."""
        held = self.held()
        if held is None:
            held = self._held = open_one()
            self._pid = os.getpid()
        return held

    def held(self) -> ResourceT | None:
        """Return the resource of this process; None if there is none."""
        if self._held is not None and self._pid != os.getpid():
            _INHERITED.append(self._held)
            self._held = None
        return self._held

    def taken(self) -> ResourceT | None:
        """Remove the resource of this process and return it, to close it; None if there is none."""
        taken, self._held = self.held(), None
        return taken
