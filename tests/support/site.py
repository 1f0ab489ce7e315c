"""Build the documentation site into `build/site/html`: `python -m tests.support.site`.

The generator (Zensical) reads only the files in `docs`, and reads them as Python-Markdown, which differs from the
CommonMark of code forges. So the pages are first copied and changed:

- Lists get a blank line before them and an indentation of four spaces.
- A link to a file outside of `docs`, such as an example, is replaced by a link to a page that shows this file. So the
  site shows the files of its own version, and needs no other host.

The configuration is `zensical.toml`. The build is strict: it fails if there is a warning.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from tests.support.documents import DOCS, EXAMPLES, README, ROOT, is_in_block

CONFIGURATION = ROOT / "zensical.toml"
BUILD = ROOT / "build" / "site"
HTML = BUILD / "html"
#: The index of the examples, and its page.
EXAMPLES_INDEX = EXAMPLES / "README.md"
EXAMPLES_PAGE = "examples/index.md"
#: Pygments' names of languages, by file name extension, for pages that show a file.
_LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".json": "json",
    ".sh": "sh",
    ".html": "html",
}
_LINK = re.compile(r"(?<=\]\()([^)\s:#]+)((?:#[^)\s]*)?)(?=[)\s])")
_ITEM = re.compile(r"(?P<indent> *)(?P<marker>[-*+]|\d+[.)])(?P<space> +)(?P<text>.*)")
#: Excludes a page from the search, because pages that explain a file are better results than the file.
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
#: The width of Python-Markdown's indentation.
_INDENT = 4


def configuration() -> dict[str, Any]:
    """Return the table `project` of `zensical.toml`."""
    project: dict[str, Any] = tomllib.loads(CONFIGURATION.read_text())["project"]
    return project


def pages_in(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation, in its order."""
    for entry in nav:
        match entry:
            case str():
                yield entry
            case dict():
                for below in entry.values():
                    yield from pages_in(below if isinstance(below, list) else [below])


def python_markdown(text: str) -> str:
    """Convert CommonMark to Python-Markdown: a blank line before each list, and an indentation of four for items."""
    lines = text.split("\n")
    #: By line: the depth of its innermost item, the column of the item's text, and whether it is the item's first line.
    items: dict[int, tuple[int, int, bool]] = {}
    starts: set[int] = set()
    depth = 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                if depth == 0 and token.map is not None:
                    starts.add(token.map[0])
            case "list_item_open":
                depth += 1
                assert token.map is not None
                first, end = token.map
                if found := _ITEM.fullmatch(lines[first]):
                    column = found.start("text")
                    items |= {line: (depth, column, line == first) for line in range(first, end)}
            case "list_item_close":
                depth -= 1
    shown: list[str] = []
    for number, line in enumerate(lines):
        if number in starts and shown and shown[-1].strip():
            shown.append("")
        depth, column, is_first = items.get(number, (0, 0, False))
        if not depth or not line.strip():
            shown.append(line)
        elif is_first and (found := _ITEM.fullmatch(line)):
            mark = found["marker"].ljust(_INDENT - 1) + " "
            shown.append(" " * _INDENT * (depth - 1) + mark + found["text"])
        else:
            leading = len(line) - len(line.lstrip(" "))
            shown.append(" " * (_INDENT * depth + max(0, leading - column)) + line.lstrip(" "))
    return "\n".join(shown)


class Site:
    """The pages of the site, copied into a folder.

    Attributes:
        folder: The folder of the build.
    """

    def __init__(self, folder: Path = BUILD) -> None:
        self.folder = folder
        self._pages = folder / "pages"
        #: The files outside of `docs` to which pages link, by the name of the page that shows the file.
        self._linked: dict[str, Path] = {}

    def prepare(self) -> Path:
        """Write the pages, the pages of linked files, and the configuration; return the configuration's path."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in sorted(DOCS.rglob("*")):
            name = str(path.relative_to(DOCS))
            if path.is_dir() or name.startswith(".theme"):
                continue
            if path.suffix == ".md":
                self._write(name, self._relinked(path, name))
            else:
                self._write(name, path)
        if EXAMPLES_INDEX.exists():
            self._write(EXAMPLES_PAGE, self._relinked(EXAMPLES_INDEX, EXAMPLES_PAGE))
        for name, source in self._linked.items():
            self._write(name, f"{_NOT_SEARCHED}{_shown(source)}")
        return self._configure()

    def build(self) -> Path:
        """Build the site; return the folder with its HTML.

        Raises:
            RuntimeError: The generator reported a warning or an error.
        """
        config = self.prepare()
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
        # Griffe finds the package in the project's root. NO_COLOR keeps reports readable in a log.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        built = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment)
        report = built.stdout + built.stderr
        # A strict build does not fail because of Griffe's warnings about docstrings that it cannot read.
        if built.returncode or re.search(r"Warning|^griffe: ", report, re.MULTILINE):
            raise RuntimeError(f"the site cannot be built:\n{_plain(report.partition('Traceback')[0])}")
        return self.folder / "html"

    def _write(self, name: str, content: str | Path) -> None:
        page = self._pages / name
        page.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, page)
        else:
            page.write_text(content)

    def _relinked(self, path: Path, page: str) -> str:
        """Return a document as the page of this name, with links to pages of the site."""
        text = path.read_text()
        is_code = is_in_block(text)

        def relinked(found: re.Match[str]) -> str:
            target = (path.parent / found[1]).resolve()
            if is_code(found.start()) or not target.exists():
                return found[0]
            name, anchor = self._page_of(target), found[2]
            return os.path.relpath(name, Path(page).parent) + ("" if target == README else anchor)

        return python_markdown(_LINK.sub(relinked, text))

    def _page_of(self, target: Path) -> str:
        """Return the name of the page that shows this file or folder."""
        if target.is_relative_to(DOCS):
            return str(target.relative_to(DOCS))
        if target == README:
            return "index.md"
        if target in (EXAMPLES_INDEX, EXAMPLES_INDEX.parent) and EXAMPLES_INDEX.exists():
            return EXAMPLES_PAGE
        name = f"source/{target.relative_to(ROOT)}.md"
        self._linked[name] = target
        return name

    def _configure(self) -> Path:
        """Write the configuration with this build's folders, as JSON, which is valid YAML for the generator."""
        project = configuration()
        theme = dict(project["theme"], custom_dir=str(DOCS / ".theme"))
        project |= {"docs_dir": "pages", "site_dir": "html", "theme": theme}
        handler: dict[str, Any] = project["plugins"]["mkdocstrings"]["handlers"]["python"]
        handler["paths"] = [str(ROOT)]
        config = self.folder / "zensical.yml"
        config.write_text(json.dumps(project, indent=1))
        return config


def _shown(source: Path) -> str:
    """Return a page that shows a file, or the list of the files in a folder."""
    name = source.relative_to(ROOT)
    if source.is_dir():
        inside = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return f"# {name}\n\n" + "\n".join(_section(path, source) for path in inside)
    return f"# {name}\n\n{_code(source)}"


def _section(path: Path, folder: Path) -> str:
    return f"## {path.relative_to(folder)}\n\n{_code(path)}"


def _code(path: Path) -> str:
    language = _LANGUAGES.get(path.suffix, "text")
    return f"`````{language}\n{path.read_text().rstrip()}\n`````\n"


def _plain(report: str) -> str:
    """Return a report without color codes."""
    return re.sub(r"\x1b\[[\d;]*m", "", report)


@cache
def built_in(folder: Path) -> Path:
    """Build the site in this folder, once for all test modules of a process; return the folder with its HTML."""
    return Site(folder).build()


if __name__ == "__main__":
    print(Site().build())
