"""`SharedDeque`: `items` returns a consistent snapshot while other threads append and pop items."""

from __future__ import annotations

from consumer_membership.shared_deque import SharedDeque
from tests.support.together import together

ROUNDS = 5_000


def test_items_are_those_of_one_moment() -> None:
    """A snapshot always has consecutive numbers, while the other thread appends a number and then pops the oldest."""
    shared = SharedDeque(range(10))

    def change() -> None:
        for number in range(10, 10 + ROUNDS):
            shared.append(number)
            shared.popleft()

    def look() -> None:
        for _ in range(ROUNDS // 10):
            items = shared.items()
            assert items == list(range(items[0], items[0] + len(items)))
            assert len(items) in {10, 11}

    together(change, look)
    assert shared.items() == list(range(ROUNDS, ROUNDS + 10))


def test_maximum_length_is_kept() -> None:
    """With a maximum length, the oldest items are dropped, as in every deque."""
    shared = SharedDeque([1, 2], maxlen=2)
    shared.append(3)
    assert shared.items() == [2, 3]
