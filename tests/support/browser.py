"""A headless browser for tests and screenshots of timelines and of the documentation site."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

#: The browser resolves no other host, so a page that needs another host fails.
_ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"


@contextmanager
def headless_browser(*, width: int = 1200, height: int = 800, script: str = "") -> Iterator[Any]:
    """Start a headless browser. On each page, `script` runs before the page's scripts.

    An error in a page's console fails the test. If no browser is installed, the test fails and names the packages.
    """
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("chromium and chromedriver are needed; install them (Debian: chromium chromium-driver)")
    webdriver = import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--window-size={width},{height}",
        _ALONE,
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        yield browser
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
    finally:
        browser.quit()


def set_scheme(browser: Any, scheme: str) -> None:
    """Set the user's preferred color scheme, `light` or `dark`."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def set_width(browser: Any, width: int, height: int = 800) -> None:
    """Set the size of the viewport in CSS pixels; unlike a window, it may be narrow."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@contextmanager
def browser_with(
    page: Path, scheme: str = "light", width: int = 1200, height: int = 900, script: str = ""
) -> Iterator[Any]:
    """Show the page of a timeline in headless Chromium; `script` runs before the page's scripts."""
    with headless_browser(width=width, height=height, script=script) as browser:
        set_scheme(browser, scheme)
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
        yield browser
