"""Generate the pictures of the README and of the site, from one run of the demo on a real broker.

    python -m tests.support.pictures

The command writes `docs/assets/demo.svg`, which shows the terminal of the demo step by step, and
`docs/assets/timeline.png`, a screenshot of the page that `consumer-membership timeline` writes for the same group. It
takes about a minute, and needs a broker (Docker, or Java 17 with Maven), Chromium and chromedriver.
"""

from __future__ import annotations

import io
import re
import tempfile
import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from consumer_membership.cli.command import main
from consumer_membership.demo.brokers import demo_cluster
from consumer_membership.demo.run import DemoOptions, _result
from consumer_membership.demo.screen import GroupSnapshot, Screen, result_lines
from consumer_membership.demo.table_screen import picture
from tests.support.browser import browser_with
from tests.support.documents import DOCS

ASSETS = DOCS / "assets"
DEMO = ASSETS / "demo.svg"
TIMELINE = ASSETS / "timeline.png"

#: The width of the terminal in the picture, in characters.
_COLUMNS = 108
#: The size of the browser's window, in pixels.
_WIDTH, _HEIGHT = 1200, 620
#: How long the animation shows each step, and how long it shows the last one.
_STEP_S, _END_S = 3.0, 7.0
#: The number of events below the table, as in the demo.
_EVENTS = 6
#: Rich's default format loads a font from another host, but documents must not load files from other hosts.
_FORMAT = """\
<g class="frame" id="frame-{unique_id}">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas, monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
<desc>{width} {height}</desc>
</g>
"""
_THEME = TerminalTheme(
    background=(28, 30, 36),
    foreground=(222, 224, 228),
    normal=[
        (60, 63, 70),
        (240, 104, 104),
        (120, 200, 120),
        (226, 190, 100),
        (110, 160, 240),
        (200, 140, 230),
        (95, 195, 205),
        (222, 224, 228),
    ],
)


class _Frames(Screen):
    """A screen of the demo that keeps its table at the end of each step."""

    def __init__(self) -> None:
        self._happened: deque[Text] = deque(maxlen=_EVENTS)
        self.frames: list[RenderableType] = []
        #: The time from the start of the demo to the end of the latest step, in seconds.
        self.ended_at = 0.0

    def __exit__(self, *_: object) -> None:
        pass

    def draw(self, snapshot: GroupSnapshot) -> None:
        """Draw nothing, because only the ends of steps are kept."""

    def add_event(self, at: float, text: str) -> None:
        """Keep the newest events for the next picture."""
        self._happened.append(Text(f"{at:6.2f} s  {text}", style="dim", no_wrap=True, overflow="ellipsis"))

    def end_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Keep the current picture."""
        del number
        self.ended_at = snapshot.at
        self.frames.append(_rendered(picture(snapshot, list(self._happened))))


def _rendered(shown: RenderableType) -> Text:
    """Return the picture as text, so that later changes of the members do not affect it."""
    console = Console(width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with console.capture() as captured:
        console.print(shown)
    return Text.from_ansi(captured.get())


def animated(frames: Sequence[RenderableType], title: str) -> str:
    """Return an SVG that shows the frames one after the other; users who prefer reduced motion see the last frame."""
    height = max(len(Console(width=_COLUMNS).render_lines(frame, pad=False)) for frame in frames)
    seconds = [*([_STEP_S] * (len(frames) - 1)), _END_S]
    total = sum(seconds)
    parts, rules, begin = [], [], 0.0
    for number, (frame, lasts) in enumerate(zip(frames, seconds, strict=True)):
        console = Console(width=_COLUMNS, record=True, file=io.StringIO(), color_system="truecolor")
        shorter = height - len(console.render_lines(frame, pad=False))
        console.print(frame)
        for _ in range(shorter):
            console.print()
        svg = console.export_svg(title=title, theme=_THEME, code_format=_FORMAT, unique_id=f"f{number}")
        parts.append(re.sub(r"<desc>.*?</desc>\n", "", svg))
        size = re.search(r"<desc>(\S+) (\S+)</desc>", svg)
        first, last = begin / total * 100, (begin + lasts) / total * 100
        # With `step-end`, each value applies until the next key.
        rules += [
            f"@keyframes k{number} {{",
            "0% { visibility: hidden; }",
            f"{first:.3f}% {{ visibility: visible; }}",
            f"{last:.3f}% {{ visibility: hidden; }}",
            "}",
            f"#frame-f{number} {{ animation: k{number} {total:g}s step-end infinite; }}",
        ]
        begin += lasts
    assert size is not None
    hidden = "#frame-f" + ", #frame-f".join(map(str, range(len(frames) - 1)))
    return "\n".join(
        [
            f'<svg viewBox="0 0 {size[1]} {size[2]}" xmlns="http://www.w3.org/2000/svg" role="img">',
            f"<title>{title}</title>",
            "<!-- Generated by python -m tests.support.pictures -->",
            "<style>",
            f"{hidden} {{ visibility: hidden; }}",
            "@media (prefers-reduced-motion: no-preference) {",
            *rules,
            "}",
            "</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


def run_demo(page: Path) -> list[RenderableType]:
    """Run the demo and return its pictures; write the timeline of its group to `page`.

    Raises:
        RuntimeError: The demo's check or the timeline command failed.
    """
    name, screen, options = f"demo-{uuid.uuid4().hex[:8]}", _Frames(), DemoOptions()
    with demo_cluster(None, None, topic=name, partitions=options.partitions, group=name) as cluster:
        result = _result(cluster, name, options, screen)
        servers = cluster.bootstrap_servers
        code = main(["timeline", "-b", servers, "-g", name, "--last", f"{screen.ended_at + 2:.0f}s", "-o", str(page)])
    lines = Text("\n".join(result_lines(result)))
    if not result.holds or code:
        raise RuntimeError(lines.plain)
    lines.highlight_words(["CHECK PASSED"], "bold green")
    return [*screen.frames[:-1], Group(screen.frames[-1], Text(), lines)]


def screenshot(page: Path, picture: Path) -> None:
    """Write a screenshot of the page in a browser."""
    with browser_with(page, width=_WIDTH, height=_HEIGHT) as browser:
        picture.write_bytes(browser.get_screenshot_as_png())


def generate(folder: Path = ASSETS) -> None:
    """Write both pictures to this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "timeline.html"
        frames = run_demo(page)
        (folder / DEMO.name).write_text(animated(frames, "consumer-membership demo"))
        screenshot(page, folder / TIMELINE.name)


if __name__ == "__main__":
    generate()
