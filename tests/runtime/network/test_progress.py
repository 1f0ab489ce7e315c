"""Polls and records that the application only counts are reported to the member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from consumer_membership.membership.events import Polled
from consumer_membership.runtime.network.progress import ProgressSampler


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run: no timer fires."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_sample_reports_new_polls_once_and_whether_records_were_delivered(loop: asyncio.AbstractEventLoop) -> None:
    """A poll is reported by the sample after it, and records count as delivered for a second."""
    counts = [(0, 0), (1, 0), (1, 0), (2, 1), (2, 2), (3, 2)]
    reports: list[Polled] = []
    sampler = ProgressSampler(loop, iter(counts).__next__, reports.append, lambda: False, max_poll_interval_s=300.0)
    found = []
    for _ in counts:
        sampler.sample()
        found.append(len(reports))
    assert found == [0, 1, 1, 2, 2, 3]
    assert [report.delivered for report in reports] == [False, True, True]


@pytest.mark.parametrize("is_waiting", [False, True])
def test_start_makes_a_member_calm_only_if_it_waits_for_nothing(
    is_waiting: bool,  # noqa: FBT001
) -> None:
    """Without records a member is calm after its first sample, unless it waits for something; `end_calm` ends it."""

    async def found() -> tuple[bool, bool, bool]:
        loop = asyncio.get_running_loop()
        sampled = asyncio.Event()

        def progress() -> tuple[int, int]:
            loop.call_soon(sampled.set)
            return 0, 0

        sampler = ProgressSampler(loop, progress, lambda _: None, lambda: is_waiting, max_poll_interval_s=300.0)
        sampler.start()
        before = sampler.is_calm
        await sampled.wait()
        after = sampler.is_calm
        sampler.end_calm()
        sampler.stop()
        return before, after, sampler.is_calm

    assert asyncio.run(found()) == (False, not is_waiting, False)
