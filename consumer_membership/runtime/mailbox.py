"""The two queues that cross the line between the application's threads and the membership thread.

Nothing else crosses it, but for a question of the application's in which the core has no part, and its answer
(`MemberPort.fetch_committed`). Items are immutable values, so neither side needs a lock of the other's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


def _nothing() -> None: ...


class Mailbox(Generic[ItemT]):
    """A queue of values from any thread to the one side that takes them.

    `full` is a plain attribute: True while something waits. The hot path of `poll()` reads it instead of calling.
    """

    __slots__ = ("_arrival", "_items", "_lock", "_on_put", "full")

    def __init__(self, on_put: Callable[[], None] | None = None) -> None:
        self._items: deque[ItemT] = deque()
        # Taken by itself, not through the condition, whose own `with` is Python: Ctrl-C in there would leave it locked.
        self._lock = threading.RLock()
        self._arrival = threading.Condition(self._lock)
        self._on_put = on_put
        self.full = False

    def put(self, *items: ItemT, first: Callable[[], None] | None = None) -> None:
        """Append the items, all or none visible at once, and wake who waits.

        `first` is called before, while nobody can take anything: whoever sees what it did and then looks here finds the
        items, and whoever has the items sees what it did.
        """
        first = first or _nothing
        if not items:
            first()
            return
        with self._lock:
            self.full = True
            first()
            self._items.extend(items)
            self._arrival.notify_all()
        if self._on_put is not None:
            self._on_put()

    def take(self) -> tuple[ItemT, ...]:
        """Everything that waits, in order."""
        with self._lock:
            items = tuple(self._items)
            self._items.clear()
            self.full = False
        return items

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something is there (None: for ever); whether it is."""
        with self._lock:
            return self._arrival.wait_for(self._items.__len__, timeout_s) > 0
