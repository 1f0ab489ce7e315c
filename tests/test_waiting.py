"""`wait_until` and `async_wait_until`, through which all tests wait."""

from __future__ import annotations

import asyncio
import threading
from itertools import count

import pytest

from tests.support.waiting import async_wait_until, wait_until


def test_wait_until_returns_the_first_true_result() -> None:
    """`wait_until` returns the first true result, so that a test can use it."""
    numbers = count()
    assert wait_until(lambda: next(numbers) >= 3 and "found", "a number above 2") == "found"
    assert next(numbers) == 4


def test_wait_until_fails_with_the_expectation_the_limit_and_the_last_sample() -> None:
    """The failure has the expected event, the time limit and the last observed state."""
    with pytest.raises(AssertionError, match=r"^three members: not within 0 s; seen: \['a'\]$"):
        wait_until(lambda: False, "three members", 0, seen=lambda: ["a"])


def test_wait_until_calls_between_only_between_two_checks() -> None:
    """`between` runs once between two checks, and not after the last check."""
    polls: list[int] = []
    wait_until(lambda: len(polls) == 2, "two polls", between=lambda: polls.append(1))
    assert polls == [1, 1]


def test_wait_until_checks_again_when_its_condition_is_notified() -> None:
    """Each notification of the condition triggers a check, and the time limit still applies."""
    changed, events = threading.Condition(), list[str]()

    def happen() -> None:
        with changed:
            events.append("assign")
            changed.notify_all()

    other = threading.Thread(target=happen)
    other.start()
    assert wait_until(lambda: events, "an event", changed=changed) == ["assign"]
    other.join()
    with pytest.raises(AssertionError, match="a second event: not within 0 s"):
        wait_until(lambda: len(events) == 2, "a second event", 0, changed=changed)


def test_async_wait_until_lets_tasks_run_and_fails_with_the_expectation() -> None:
    """Other tasks of the loop run between two checks, and a check may be a coroutine function."""

    async def act() -> str:
        events: list[str] = []

        async def happened() -> list[str]:
            return events

        asyncio.get_running_loop().call_soon(events.append, "assign")
        (found,) = await async_wait_until(happened, "an event")
        with pytest.raises(AssertionError, match="two events: not within 0 s; seen: 1"):
            await async_wait_until(lambda: len(events) == 2, "two events", 0, seen=lambda: len(events))
        return found

    assert asyncio.run(act()) == "assign"
