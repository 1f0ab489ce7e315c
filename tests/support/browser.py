"""A headless browser for tests and pictures of the timeline's page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def browser_with(
    page: Path, scheme: str = "light", width: int = 1200, height: int = 900, script: str = ""
) -> Iterator[Any]:
    """Show the page of a timeline in headless Chromium; `script` runs before the page's scripts."""
    webdriver = import_module("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("there is no chromium with chromedriver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", f"--window-size={width},{height}", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
        yield browser
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
    finally:
        browser.quit()
