"""A deque that threads read while others change it, with and without a GIL."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

T = TypeVar("T")


class SharedDeque(deque[T]):
    """A deque that any thread may copy while other threads change it.

    With a GIL, `copy` of a deque is one step. In free-threaded builds it walks the deque, also in C, and raises
    "deque mutated during iteration" if another thread adds or takes an item meanwhile.
    """

    __slots__ = ()

    def items(self) -> list[T]:
        """Return the items of one moment."""
        while True:
            try:
                return list(self)
            except RuntimeError:  # another thread changed it; each attempt is one call, so this does not go on for long
                continue
