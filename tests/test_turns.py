"""`Turns` limits how many tests run at the same time while the processors are busy."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.turns import ALWAYS, Turns, share_of_a_core
from tests.support.waiting import PATIENCE_S

MOST = ALWAYS + 2


def test_all_turns_are_taken_while_the_processors_have_room(tmp_path: Path) -> None:
    """While the processors are not busy, as many tests run at the same time as the run has processes."""
    with ExitStack() as held:
        for _ in range(MOST):
            held.enter_context(Turns(tmp_path, MOST, share=lambda: 1.0).taken())


@pytest.mark.parametrize("becomes_free", ["a turn", "the processors"])
def test_test_waits_on_a_busy_machine(tmp_path: Path, becomes_free: str) -> None:
    """A test begins when another one has ended, or when the processors are no longer busy."""
    has_measured, began = threading.Event(), threading.Event()
    shares = [0.1]

    def share() -> float:
        has_measured.set()
        return shares[-1]

    def test() -> None:
        with Turns(tmp_path, MOST, share).taken():
            began.set()

    with ExitStack() as held:
        first = held.enter_context(ExitStack())
        first.enter_context(Turns(tmp_path, MOST, share).taken())
        for _ in range(ALWAYS - 1):
            held.enter_context(Turns(tmp_path, MOST, share).taken())
        waiting = threading.Thread(target=test)
        waiting.start()
        held.callback(waiting.join)
        assert has_measured.wait(PATIENCE_S)
        assert not began.is_set()
        if becomes_free == "a turn":
            first.close()
        else:
            shares.append(0.9)
        assert began.wait(PATIENCE_S)


def test_share_of_a_core_is_a_positive_fraction() -> None:
    """The share is at most 1, because a thread cannot use more than one core, except for differences of the clocks."""
    assert 0 < share_of_a_core() < 1.01
