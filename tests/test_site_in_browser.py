"""The documentation site in a headless browser: search, both color schemes, a phone's width, and no other host.

The stage `docs` of `python -m tests` runs this module. It needs chromium with chromedriver.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import headless_browser, set_scheme, set_width
from tests.support.documents import DOCS
from tests.support.site import built_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

#: The width of a small phone, in CSS pixels.
PHONE = 375


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    return built_in(tmp_path_factory.getbasetemp() / "site")


@pytest.fixture(scope="module")
def site(html: Path) -> Iterator[str]:
    """Serve the site on the loopback, below a path as on a host for several projects; return its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(html.parent))) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{html.name}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def browser() -> Iterator[Any]:
    """Start a browser."""
    with headless_browser() as started:
        yield started


def scheme_of(browser: Any) -> str:
    """Return whether the page's background is light or dark, or neither."""
    color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in color.removeprefix("rgb").strip("(a)").split(",")[:3])
    return "light" if brightness > 700 else "dark" if brightness < 200 else color


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("waits_for", "reference/waits-for/"),
        ("MembershipView", "reference/api/membership-view/"),
        ("Lost previously assigned partitions", "reference/log-messages/"),
        ("max.poll.interval.ms", "diagnose/rebalances/"),
    ],
)
def test_site_search_finds_a_page(browser: Any, site: str, words: str, page: str) -> None:
    """The search lists the page, and the result opens it."""
    browser.get(site)
    browser.execute_script("document.querySelector('.md-search__button').click()")
    # The dialog is in a shadow tree, whose host has the focus.
    wait_until(lambda: browser.execute_script("return document.activeElement.shadowRoot !== null"), "the dialog")
    browser.switch_to.active_element.send_keys(words)
    results = "return [...document.activeElement.shadowRoot.querySelectorAll('a')].map(found => found.href)"

    def found() -> list[str]:
        return [link for link in browser.execute_script(results) if link.startswith(site + page)]

    (link, *_) = wait_until(found, f"a result that leads to {page}")
    browser.get(link)
    assert words.lower() in browser.find_element("tag name", "article").text.lower()


@pytest.mark.timeout(400)  # a hundred pages: 20 s on an idle machine
def test_site_pages_fit_a_phone_and_request_no_other_host(browser: Any, site: str, html: Path) -> None:
    """No page scrolls sideways at a phone's width, and each resource comes from the site."""
    set_width(browser, PHONE)
    too_wide, foreign = [], []
    for path in sorted(html.rglob("index.html")):
        page = f"{path.parent.relative_to(html)}/".removeprefix("./")
        browser.get(site + page)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        too_wide += [(page, width)] if width > PHONE else []
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        foreign += [(page, address) for address in loaded if not address.startswith(site)]
    assert too_wide == []
    assert foreign == []


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_site_has_a_light_and_a_dark_scheme(browser: Any, site: str, scheme: str, other: str) -> None:
    """The user's preference decides the scheme, and the switch in the header changes it."""
    set_scheme(browser, scheme)
    browser.get(site)
    wait_until(lambda: scheme_of(browser) == scheme, f"the {scheme} scheme")
    browser.execute_script(f"document.querySelector('label[title=\"Switch to {other} mode\"]').click()")
    wait_until(lambda: scheme_of(browser) == other, f"the {other} scheme")


def test_site_draws_diagrams(browser: Any, site: str) -> None:
    """The site's copy of Mermaid draws the diagrams."""
    browser.get(f"{site}reference/states/")
    height = "return Math.min(...[...document.querySelectorAll('div.mermaid')].map(found => found.clientHeight))"
    count = (DOCS / "reference/states.md").read_text().count("```mermaid\n")
    drawn = "return document.querySelectorAll('div.mermaid').length"
    wait_until(lambda: browser.execute_script(drawn) == count, f"{count} diagrams")
    assert browser.execute_script(height) > 100
