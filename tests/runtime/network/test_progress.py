"""Polls and delivered records, which the application only counts, are reported to the member by a sampler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from itertools import count

import pytest

from consumer_membership.membership.events import Polled
from consumer_membership.runtime.network.progress import ProgressSampler
from tests.membership.builders import A0, Scene, adding, joining, stable

HALF_MINUTE_S = 30.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that does not run; its timers fire when the test advances its time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._timers.append(asyncio.TimerHandle(when, callback, args, self, context))
        return self._timers[-1]

    def pass_time(self, seconds: float) -> None:
        """Advance the time and fire the due timers in order."""
        end = self._now + seconds
        while due := [timer for timer in self._timers if not timer.cancelled() and timer.when() <= end]:
            timer = min(due, key=asyncio.TimerHandle.when)
            self._timers.remove(timer)
            self._now = timer.when()
            timer._run()
        self._now = end


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """A loop with virtual time."""
    loop = VirtualLoop()
    yield loop
    loop.close()


class Reports:
    """A sampler of an application that polls continuously, and its reports."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        progress: Callable[[], tuple[int, int]],
        scene: Scene | None = None,
        *,
        max_poll_interval_s: float = 300.0,
    ) -> None:
        self.events: list[Polled] = []
        member = (scene or Scene()).member
        self.sampler = ProgressSampler(
            loop,
            progress,
            self.events.append,
            lambda: member.retries_at_poll,
            max_poll_interval_s=max_poll_interval_s,
        )


def test_sample_reports_new_polls_once_and_whether_records_were_delivered(loop: VirtualLoop) -> None:
    """The next sample reports a poll, and records count as delivered for a second."""
    counts = [(0, 0), (1, 0), (1, 0), (2, 1), (2, 2), (3, 2)]
    reports = Reports(loop, iter(counts).__next__)
    found = []
    for _ in counts:
        reports.sampler.sample()
        found.append(len(reports.events))
    assert found == [0, 1, 1, 2, 2, 3]
    assert [event.delivered for event in reports.events] == [False, True, True]


@pytest.mark.parametrize(
    ("scene", "most"),
    [
        pytest.param(Scene().subscribe("orders").poll(), 10, id="waits for its coordinator"),
        pytest.param(joining(), 10, id="waits for the response to its join"),
        pytest.param(adding(), 10, id="waits for on_assign"),
        pytest.param(stable(A0), 10, id="stable"),
        pytest.param(adding().finish(failed=True), 120, id="waits for a poll to call on_assign again"),
    ],
)
def test_sampler_reports_polls_rarely_unless_a_callback_raised(loop: VirtualLoop, scene: Scene, most: int) -> None:
    """A report every three seconds is enough for max.poll.interval.ms, but a callback that raised is repeated soon."""
    polls = count(1)
    reports = Reports(loop, lambda: (next(polls), 0), scene)
    reports.sampler.start()
    loop.pass_time(HALF_MINUTE_S)
    assert len(reports.events) == most


def test_sampler_reports_polls_once_a_second_while_records_flow(loop: VirtualLoop) -> None:
    """The end of the flow is reported within two seconds, and then heartbeats are less frequent."""
    polls, records = count(1), iter([*range(1, 12), *[11] * 100])
    reports = Reports(loop, lambda: (next(polls), next(records)), stable(A0))
    reports.sampler.start()
    reports.sampler.end_calm()
    loop.pass_time(10.25)
    assert [event.delivered for event in reports.events] == [True] * 11
    loop.pass_time(1.0)
    assert [event.delivered for event in reports.events[11:]] == [False]


def test_short_max_poll_interval_shortens_the_pace_of_every_member(loop: VirtualLoop) -> None:
    """A missed poll is noticed within a hundredth of max.poll.interval.ms, even while records flow."""
    counts = count(1)
    reports = Reports(loop, lambda: (next(counts),) * 2, stable(A0), max_poll_interval_s=50.0)
    reports.sampler.start()
    loop.pass_time(10.0)
    assert len(reports.events) == 20


def test_sample_soon_ends_the_calm_of_a_member_without_records(loop: VirtualLoop) -> None:
    """A member is calm at its start; a record ends the calm within a quarter of a second."""
    reports = Reports(loop, lambda: (1, 1))
    reports.sampler.start()
    is_calm = [reports.sampler.is_calm]
    reports.sampler.end_calm()
    loop.pass_time(0.25)
    is_calm.append(reports.sampler.is_calm)
    assert (is_calm, [event.delivered for event in reports.events]) == ([True, False], [True])
