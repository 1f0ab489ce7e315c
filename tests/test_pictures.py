"""The pictures of the README: the generated pictures, and the pictures in the repository."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from rich.text import Text

from tests.support.pictures import DEMO, TIMELINE, animated

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_animated_svg_shows_each_frame_once_and_ends_with_the_last() -> None:
    """Each frame has a group and an animation; without motion only the last frame is visible."""
    svg = animated([Text("first"), Text("second"), Text("third")], "a title")
    root = ET.fromstring(svg)  # noqa: S314 - it was generated here
    frames = [frame.get("id") for frame in root.findall(f"{NAMESPACE}g")]
    assert frames == ["frame-f0", "frame-f1", "frame-f2"]
    assert "#frame-f0, #frame-f1 { visibility: hidden; }" in svg
    assert re.findall(r"@keyframes (k\d)", svg) == ["k0", "k1", "k2"]


@pytest.mark.parametrize("svg", [DEMO.read_text(), animated([Text("only")], "a title")], ids=["stored", "generated"])
def test_svg_loads_nothing_from_other_hosts(svg: str) -> None:
    """The only address in the SVG is its namespace, and its clip paths are in the file."""
    assert set(re.findall(r"https?://[^\s\"')]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert {target[0] for target in re.findall(r"url\(([^)]*)\)", svg)} <= {"#"}


def test_screenshot_of_the_timeline_is_a_png_of_moderate_size() -> None:
    """The screenshot is a PNG below 500 kB, because the README loads it."""
    stored = TIMELINE.read_bytes()
    assert stored.startswith(b"\x89PNG")
    assert len(stored) < 500_000
