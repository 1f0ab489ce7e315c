"""Samples gathered into runs and written as one page; the page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from consumer_membership.observe.timeline import Timeline, TimelineEvent, cause_of
from tests.admin.builders import group, member, partitions
from tests.observe.builders import survey

ONE = group(member("m", assigned=partitions(0, 1), epoch=6))
TWO = replace(
    group(member("m", assigned=partitions(0), epoch=7), member("n", assigned=partitions(1), epoch=7)), epoch=7
)


def gathered() -> Timeline:
    """Ten seconds: a second member joins after five and takes partition 1."""
    timeline = Timeline("g", 10.0)
    timeline.add(survey(ONE, {0: (5, 10), 1: (10, 10)}, at=100.0))
    timeline.add(survey(TWO, {0: (5, 12), 1: (10, 11)}, at=105.0))
    timeline.add(survey(TWO, {0: (12, 12), 1: (10, 12)}, at=110.0))
    return timeline


def test_runs_begin_where_something_changes() -> None:
    """Owners, standstills and lags of each partition; a rebalance has its cause."""
    data = gathered().data()
    assert data["partitions"] == [
        ["t[0]", [0, 0], [0, 5000], [5, 2, -7]],
        ["t[1]", [0, 0, 5000, 1], [0, 10000], [0, 1, 1]],
    ]
    assert data["events"] == [[5000, "c (n) joined", 0]]
    assert (data["columns"], data["ms"], data["members"]) == ([0, 5000, 5000], 10000, ["c m", "c n"])


def test_causes_are_what_is_visible_from_outside() -> None:
    """Who came, left, went away or subscribed to something else; an epoch without any of it says so."""
    away = group(member("m", assigned=partitions(0, 1), epoch=-2))
    other = group(replace(member("m", assigned=partitions(0, 1), epoch=6), topics=frozenset({"u"})))
    assert cause_of(ONE, ONE) == ""
    assert cause_of(TWO, ONE) == "c (n) left"
    assert cause_of(ONE, away) == "c (m) went away, and keeps its place"
    assert cause_of(ONE, other) == "c (m) changed its subscription"
    assert cause_of(ONE, replace(ONE, epoch=7)).startswith("a new group epoch without a visible cause")


def test_exact_events_are_merged_in_order() -> None:
    """What a member's own recorder knows stands among what was sampled."""
    timeline = gathered()
    timeline.add_event(TimelineEvent(at=103.25, text="m revoked t[1]", is_exact=True))
    assert timeline.data()["events"] == [[3250, "m revoked t[1]", 1], [5000, "c (n) joined", 0]]


def test_page_has_everything_in_it() -> None:
    """No server, no other file; a group's name does not end the script."""
    timeline = Timeline("</script><b>", 10.0)
    timeline.add(survey(ONE, {0: (5, 10)}, at=0.0))
    page = timeline.page()
    assert re.findall(r"(?:src|href)=", page) == []
    assert page.count("</script>") == 1
    found = re.search(r"const data = (.*);\n", page)
    assert found is not None
    assert json.loads(found[1])["group"] == "</script><b>"


def ten_minutes(count: int) -> Timeline:
    """A sample a second; every partition's lag changes each time, and a tenth of them moves each minute."""
    timeline = Timeline("g", 600.0)
    for second in range(601):
        minute = second // 60
        shares: list[list[int]] = [[] for _ in range(10)]
        for number in range(count):
            shares[(number + (minute if number % 10 == 0 else 0)) % 10].append(number)
        members = (member(f"m-{index}", assigned=partitions(*share)) for index, share in enumerate(shares))
        offsets: dict[int, tuple[int | None, int]] = {
            number: (second * 10, second * 10 + (number * 7919 + second * 104729) % 100_000) for number in range(count)
        }
        timeline.add(survey(replace(group(*members), epoch=minute), offsets, at=float(second)))
    return timeline


@pytest.mark.slow
def test_ten_minutes_of_a_thousand_partitions_are_3_mb_at_most() -> None:
    """Although each lag is another one at each look."""
    assert len(ten_minutes(1_000).page().encode()) <= 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, 1_000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_in_a_browser(tmp_path: Path, count: int, scheme: str) -> None:
    """It draws, tells what is below the mouse, and zooms by wheel and keys."""
    webdriver = import_module("selenium.webdriver")
    chains = import_module("selenium.webdriver.common.action_chains")
    wheel = import_module("selenium.webdriver.common.actions.wheel_input")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("there is no chromium with chromedriver (Debian: chromium chromium-driver)")
    path = tmp_path / "group.html"
    path.write_text(ten_minutes(count).page(), encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1200,900", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
        loaded = browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
        # The figure of its issue is 2 s; what a machine that does much else takes is told, and judged by nobody.
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
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
    finally:
        browser.quit()
