"""What a sink opens: in the process that uses it, at first use, and never sent anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

ResourceT = TypeVar("ResourceT")

#: What a parent process had opened. A child neither uses nor closes it, and never collects it as garbage, for the
#: parent's server would hear of each. Of the process, because it outlives the sink that held it.
_INHERITED: list[object] = []


class PerProcess(Generic[ResourceT]):
    """Holds what one process has opened: nothing in a forked child, and nothing in a copy that was sent elsewhere."""

    def __init__(self) -> None:
        self._held: ResourceT | None = None
        self._pid = 0

    def __reduce__(self) -> tuple[type[PerProcess[ResourceT]], tuple[()]]:
        return (type(self), ())

    def get(self, open_one: Callable[[], ResourceT]) -> ResourceT:
        """What this process holds, opened now if it has none."""
        held = self.held()
        if held is None:
            held = self._held = open_one()
            self._pid = os.getpid()
        return held

    def held(self) -> ResourceT | None:
        """What this process holds, if anything."""
        if self._held is not None and self._pid != os.getpid():
            _INHERITED.append(self._held)
            self._held = None
        return self._held

    def taken(self) -> ResourceT | None:
        """What this process holds, if anything, to be closed: it is not held any more."""
        taken, self._held = self.held(), None
        return taken
