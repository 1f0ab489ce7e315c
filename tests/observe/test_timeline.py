"""Samples are collected into runs and written as one page, which is also tested in a real browser."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.admin import GroupDescription, Subject
from consumer_membership.observe.recorded import OwnedRun, RecordedEvent, RecordedMember, RecordedStandstill
from consumer_membership.observe.timeline import Timeline, cause_of
from consumer_membership.types import TopicPartition
from tests.admin.builders import group, member, partitions
from tests.observe.builders import refusal, survey
from tests.support.browser import browser_with

ONE = group(member("m", assigned=partitions(0, 1), epoch=6))
TWO = replace(
    group(member("m", assigned=partitions(0), epoch=7), member("n", assigned=partitions(1), epoch=7)), epoch=7
)


def gathered() -> Timeline:
    """Return ten seconds in which a second member joins after five seconds and receives partition 1."""
    timeline = Timeline("g", 10.0)
    timeline.add(survey(ONE, {0: (5, 10), 1: (10, 10)}, at=100.0))
    timeline.add(survey(TWO, {0: (5, 12), 1: (10, 11)}, at=105.0))
    timeline.add(survey(TWO, {0: (12, 12), 1: (10, 12)}, at=110.0))
    return timeline


def test_timeline_starts_run_at_each_change() -> None:
    """The page has the owners and lags of each partition, and a rebalance with its cause."""
    data = gathered().data()
    assert data["partitions"] == [
        ["t[0]", [0, 0], [], [5, 2, -7]],
        ["t[1]", [0, 0, 5000, 1], [], [0, 1, 1]],
    ]
    assert data["events"] == [[5000, "c (n) joined", 0]]
    assert (data["columns"], data["ms"], data["members"]) == ([0, 5000, 5000], 10000, ["c m", "c n"])


def test_cause_of_names_visible_change() -> None:
    """A member joined, left, closed or changed its subscription; an epoch without such a change has its own text."""
    away = group(member("m", assigned=partitions(0, 1), epoch=-2))
    other = group(replace(member("m", assigned=partitions(0, 1), epoch=6), topics=frozenset({"u"})))
    assert cause_of(ONE, ONE) == ""
    assert cause_of(TWO, ONE) == "c (n) left"
    assert cause_of(ONE, away) == "c (m) closed and keeps its partitions"
    assert cause_of(ONE, other) == "c (m) changed its subscription"
    assert cause_of(ONE, replace(ONE, epoch=7)).startswith("new group epoch without a visible cause")


def test_timeline_notes_each_refusal_once() -> None:
    """Each different reason for a missing part produces one note."""
    timeline = Timeline("g", 10.0)
    for at, name in ((0.0, "A"), (1.0, "A"), (2.0, "B")):
        timeline.add(survey(None, at=at, refusals={Subject.GROUP: refusal(name, f"no, at {at}")}))
    notes = ["The group could not be described: no, at 0.0", "The group could not be described: no, at 2.0"]
    assert timeline.data()["notes"] == notes


def test_timeline_shows_committed_partition_without_end_offset() -> None:
    """A partition without an end offset is shown with an unknown lag."""
    timeline = Timeline("g", 10.0)
    timeline.add(replace(survey(ONE, {0: (5, 10)}), offsets={}))
    assert timeline.data()["partitions"] == [["t[0]", [0, 0], [], [-1]], ["t[1]", [0, 0], [], [-1]]]


def account(**fields: object) -> RecordedMember:
    """Return a recording of member `m` from 101 s to 108 s, with defaults for the other fields."""
    values: dict[str, object] = {
        "group_id": "g",
        "name": "process 1",
        "member_ids": frozenset({"m"}),
        "begin": 101.0,
        "end": 108.0,
        "runs": (),
        "standstills": (),
        "events": (),
    }
    return RecordedMember(**(values | fields))  # type: ignore[arg-type]


def test_timeline_prefers_recording_over_samples() -> None:
    """A recorded member's ownership is exact; samples apply outside the recording and to other members."""
    timeline = gathered()
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    had = [
        OwnedRun(partition=one, member_id="m", begin=101.0, end=108.0),
        OwnedRun(partition=two, member_id="m", begin=101.0, end=103.25),
    ]
    fact = RecordedEvent(at=103.25, text="m gave up t[1]")
    stood = (RecordedStandstill(partition=two, begin=103.0, end=103.25),)
    timeline.add_recording(account(runs=tuple(had), standstills=stood, events=(fact,), note="a note"))
    data = timeline.data()
    assert data["partitions"] == [
        ["t[0]", [0, 0], [], [5, 2, -7]],
        ["t[1]", [0, 0, 3250, -1, 5000, 1], [3000, 250], [0, 1, 1]],
    ]
    assert data["events"] == [[3250, "m gave up t[1]", 1], [5000, "c (n) joined", 0]]
    assert data["notes"] == ["a note"]


def test_timeline_shows_stall_between_two_recorded_owners() -> None:
    """The stall is exact to the millisecond and merges with adjacent stalls, even in an unsampled partition."""
    timeline = Timeline("g", 10.0, began=100.0)
    timeline.add(survey(ONE, {0: (5, 10)}, at=110.0))
    moved = TopicPartition("t", 7)
    runs = (
        OwnedRun(partition=moved, member_id="m", begin=101.0, end=104.0),
        OwnedRun(partition=moved, member_id="o", begin=104.5, end=108.0),
    )
    stood = (
        RecordedStandstill(partition=moved, begin=103.9, end=104.0),
        RecordedStandstill(partition=moved, begin=104.4, end=104.5),
    )
    timeline.add_recording(account(member_ids=frozenset({"m", "o"}), runs=runs, standstills=stood))
    (row,) = [one for one in timeline.data()["partitions"] if one[0] == "t[7]"]  # type: ignore[attr-defined]
    assert row[1:3] == [[0, -1, 1000, 0, 4000, -1, 4500, 1, 8000, -1], [3900, 600]]


def test_timeline_page_is_self_contained() -> None:
    """The page needs no server or other file, and a name neither ends nor hides its script."""
    timeline = Timeline("</script><!--<script><b>", 10.0)
    timeline.add(survey(ONE, {0: (5, 10)}, at=0.0))
    page = timeline.page()
    assert re.findall(r"(?:src|href)=", page) == []
    assert page.count("</script>") == 1
    found = re.search(r"const data = (.*);\n", page)
    assert found is not None
    assert "<" not in found[1]
    assert json.loads(found[1])["group"] == "</script><!--<script><b>"


def ten_minutes(count: int, commit_interval_s: int = 1) -> Timeline:
    """Return a sample for each second; each lag changes each time, and a tenth of the partitions moves each minute."""
    timeline = Timeline("g", 600.0)
    for second in range(601):
        minute = second // 60
        shares: list[list[int]] = [[] for _ in range(10)]
        for number in range(count):
            shares[(number + (minute if number % 10 == 0 else 0)) % 10].append(number)
        members = (member(f"m-{index}", assigned=partitions(*share)) for index, share in enumerate(shares))
        offsets: dict[int, tuple[int | None, int]] = {
            number: (
                (second - (second + number) % commit_interval_s) * 10,
                second * 10 + (number * 7919 + second * 104729) % 100_000,
            )
            for number in range(count)
        }
        timeline.add(survey(replace(group(*members), epoch=minute), offsets, at=float(second)))
    return timeline


@pytest.mark.slow
@pytest.mark.parametrize("commit_interval_s", [1, 4])
@pytest.mark.parametrize("count", [100, 1_000])
def test_timeline_page_of_ten_minutes_is_at_most_3_mb_for_thousand_partitions(
    count: int, commit_interval_s: int
) -> None:
    """The limit holds although each lag differs in each sample and each partition stalls between commits."""
    assert len(ten_minutes(count, commit_interval_s).page().encode()) <= 3_000 * count


def standstills(timeline: Timeline) -> dict[str, list[tuple[int, int]]]:
    """Return the stalls of each partition, as start and end in ms."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, _, still, _ in timeline.data()["partitions"]:  # type: ignore[attr-defined]
        times = list(accumulate(still))
        if times:
            found[name] = list(zip(times[::2], times[1::2], strict=True))
    return found


def committed_at(moments: Iterable[float], until: float, watched: GroupDescription = ONE) -> Timeline:
    """Return a timeline of partition 1, with ten records a second and commits to the end at these times."""
    timeline, left, committed = Timeline("g", 600.0), deque(sorted(moments)), 0
    for second in range(math.ceil(until) + 1):
        while left and left[0] <= second:
            committed = round(left.popleft() * 10)
        timeline.add(survey(watched, {1: (committed, second * 10)}, at=float(second)))
    return timeline


@pytest.mark.parametrize("commit_interval_s", [1, 5, 30])
def test_timeline_of_healthy_group_shows_no_stall(commit_interval_s: int) -> None:
    """Between two commits of its usual interval, a partition with lag does not stall, even with a new owner."""
    assert standstills(ten_minutes(12, commit_interval_s)) == {}


def test_timeline_assumes_default_commit_interval_before_three_commits() -> None:
    """Until three gaps between commits were seen, a partition stalls after three times five seconds."""
    assert standstills(committed_at([], 14.0)) == {}
    assert standstills(committed_at([], 16.0)) == {"t[1]": [(0, 16000)]}


@given(
    gaps=st.lists(st.floats(min_value=0.6, max_value=1.4), min_size=10, max_size=40),
    cadence_s=st.sampled_from([1.0, 5.0, 20.0]),
    place=st.integers(min_value=8, max_value=9),
)
def test_timeline_marks_only_pause_beyond_usual_commit_gap(gaps: list[float], cadence_s: float, place: int) -> None:
    """Gaps around the usual length are never marked, and a gap of ten times this length is always marked."""
    healthy = list(accumulate(cadence_s * gap for gap in gaps))
    assert standstills(committed_at(healthy, healthy[-1])) == {}
    pause_s = 10 * cadence_s
    paused = [at + pause_s * (number >= place) for number, at in enumerate(healthy)]
    ((_, ((begin, end),)),) = standstills(committed_at(paused, paused[-1])).items()
    assert begin / 1000 == pytest.approx(paused[place - 1], abs=1.0)
    assert end / 1000 == pytest.approx(paused[place], abs=2.0)


def test_timeline_judges_partition_by_its_own_commit_interval() -> None:
    """A partition that is committed every ten seconds is not stalled because another one is committed each second."""
    timeline = Timeline("g", 600.0)
    for second in range(61):
        offsets: dict[int, tuple[int | None, int]] = {0: (second, second + 1), 1: (second // 10, second + 1)}
        timeline.add(survey(ONE, offsets, at=float(second)))
    assert standstills(timeline) == {}
    for second in range(61, 100):
        timeline.add(survey(ONE, {0: (60, second + 1), 1: (6, second + 1)}, at=float(second)))
    assert standstills(timeline) == {"t[0]": [(60000, 99000)], "t[1]": [(60000, 99000)]}


def test_timeline_shows_short_stall_only_at_ownership_change() -> None:
    """A pause shorter than a page column is shown only if the partition changes its owner."""
    timeline = Timeline("g", 600.0)
    moments = [*(number / 10 for number in range(21)), 4.0, 4.1, 4.2, 6.0, 6.1]
    for at in sorted({*moments, 3.0, 5.0, 5.9}):
        owned = TWO if at >= 5.0 else ONE
        committed = max(one for one in moments if one <= at)
        timeline.add(survey(owned, {1: (round(committed * 10), 100)}, at=at))
    assert standstills(timeline) == {"t[1]": [(4200, 5900)]}


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, 1_000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_timeline_page_draws_and_zooms_in_browser(tmp_path: Path, count: int, scheme: str) -> None:
    """The page draws, shows details below the mouse, and zooms by wheel and keys."""
    chains = import_module("selenium.webdriver.common.action_chains")
    wheel = import_module("selenium.webdriver.common.actions.wheel_input")
    path = tmp_path / "group.html"
    path.write_text(ten_minutes(count).page(), encoding="utf-8")
    with browser_with(path, scheme) as browser:
        loaded = browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
        # It should be below 2 s; the figure is printed only, because a busy machine takes longer.
        print(f"{count} partitions, {scheme}: loaded and drawn in {loaded:.0f} ms, {path.stat().st_size:,} bytes")
        assert f"{count} partitions" in browser.find_element("id", "title").text
        view = browser.find_element("id", "scroll")
        chains.ActionChains(browser).move_to_element(view).perform()
        assert "lag" in browser.find_element("id", "tip").text
        span = "return until - from"
        whole = browser.execute_script(span)
        wheel_at = wheel.ScrollOrigin.from_element(view)
        chains.ActionChains(browser).scroll_from_origin(wheel_at, 0, -100).perform()
        assert browser.execute_script(span) < whole
        chains.ActionChains(browser).send_keys("0").perform()
        assert browser.execute_script(span) == whole
        chains.ActionChains(browser).send_keys("+").perform()
        assert browser.execute_script(span) < whole


#: Collects each text that is drawn on a canvas: the canvas, start, end, baseline, and whether the text is compressed.
COLLECT_LABELS = """
window.written = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most) {
  const width = this.measureText(text).width;
  window.written.push([this.canvas.id, text, x, x + Math.min(width, most ?? width), y, width > (most ?? width)]);
  fill.call(this, text, x, y, ...(most === undefined ? [] : [most]));
};
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1200])
@pytest.mark.parametrize("count", [12, 100])
def test_timeline_page_labels_do_not_overlap(tmp_path: Path, count: int, width: int) -> None:
    """A label ends before the next one and is not compressed, even with long names, narrow windows or zoom."""
    names = {'"t[': '"payments.orders.v2.customer-created[', '"c m-': '"orders-service-worker-eu-west-1 9a2c-'}
    page = ten_minutes(count, 5).page()
    for short, long in names.items():
        page = page.replace(short, long)
    path = tmp_path / "group.html"
    path.write_text(page, encoding="utf-8")
    with browser_with(path, width=width, script=COLLECT_LABELS) as browser:
        for zoom in ("from = 0; until = all", "from = all / 3; until = all / 2"):
            browser.execute_script(f"window.written = []; {zoom}; draw()")
            written = browser.execute_script("return window.written")
            lines: dict[tuple[str, float], list[tuple[float, float, str]]] = {}
            for canvas, text, begin, end, y, is_squeezed in written:
                assert not is_squeezed, text
                # A member's name is a pixel higher than its row's.
                lines.setdefault((canvas, (y + 1) // 10), []).append((begin, end, text))
            assert len(lines) > count / 5
            shown = browser.execute_script("return document.getElementById('rows').clientWidth")
            for one in lines.values():
                for (_, end, text), (begin, _, following) in pairwise(sorted([*one, (shown + 4, 0, "the edge")])):
                    assert end + 2 <= begin, (text, following)
