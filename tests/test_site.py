"""The documentation site builds without a warning, has every page in its navigation, and needs no other host."""

from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import consumer_membership
from consumer_membership import admin, processing, spark
from tests.support import state_tables
from tests.support.documents import DOCS
from tests.support.site import EXAMPLES_INDEX, EXAMPLES_PAGE, built_in, configuration, pages_in, python_markdown

pytestmark = pytest.mark.slow

#: Elements that load a resource when the page opens, each with the attribute that has the address.
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class PageReader(HTMLParser):
    """Collects the links, the anchors and the loaded addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links, anchors and addresses of one element."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADING and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loaded.append(given.get(LOADING[tag], ""))


@cache
def read(page: Path) -> PageReader:
    """Return the links, the loaded addresses and the anchors of a page."""
    reader = PageReader()
    reader.feed(page.read_text())
    return reader


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    return built_in(tmp_path_factory.getbasetemp() / "site")


def test_site_navigation_has_each_page_once() -> None:
    """The navigation of `zensical.toml` lists each page exactly once, and no page that does not exist."""
    pages = Counter(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    pages.update([EXAMPLES_PAGE] if EXAMPLES_INDEX.exists() else [])
    assert Counter(pages_in(configuration()["nav"])) == pages


def test_site_links_resolve(html: Path) -> None:
    """Each link to a page, a file or an anchor of the site has a target."""
    broken = []
    for page in html.rglob("*.html"):
        if page.name == "404.html":
            continue
        for link in read(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            is_page = target.suffix == ".html" and target.exists()
            is_anchored = not parts.fragment or not is_page or unquote(parts.fragment) in read(target).anchors
            if not target.exists() or not is_anchored:
                broken.append((str(page.relative_to(html)), link))
    assert broken == []


def test_site_loads_nothing_from_other_hosts(html: Path) -> None:
    """No page and no style sheet loads anything by an absolute address."""
    loaded = {address for page in html.rglob("*.html") for address in read(page).loaded}
    styles = "\n".join(path.read_text() for path in html.rglob("*.css"))
    assert loaded
    assert [address for address in loaded if urlsplit(address).netloc] == []
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']+", styles) == []


def test_site_search_index_has_each_page(html: Path) -> None:
    """The index of the search has an entry for each page of the navigation."""
    index = json.loads((html / "search.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["items"]}
    expected = {page.removesuffix("index.md").removesuffix(".md") for page in pages_in(configuration()["nav"])}
    assert {f"{name}/" if name and not name.endswith("/") else name for name in expected} - found == set()


def test_states_document_is_generated_from_the_tables() -> None:
    """The page has the current tables; renew it with `python -m tests.support.state_tables`."""
    assert state_tables.DOCUMENT.read_text() == state_tables.document()


LISTS: Mapping[str, tuple[str, str]] = {
    "after a paragraph": ("text\n- a\n- b\n", "text\n\n-   a\n-   b\n"),
    "nested": ("- a\n  - b\n", "-   a\n    -   b\n"),
    "code in a step": (
        "1. a\n\n   ```sh\n   x\n     y\n   ```\n2. b",
        "1.  a\n\n    ```sh\n    x\n      y\n    ```\n2.  b",
    ),
    "wrapped": ("- a\n  b\n", "-   a\n    b\n"),
    "in a block": ("```\nx\n- a\n```\n", "```\nx\n- a\n```\n"),
}


@pytest.mark.parametrize(("text", "expected"), LISTS.values(), ids=LISTS.keys())
def test_python_markdown_indents_lists(text: str, expected: str) -> None:
    """Lists of CommonMark become lists of Python-Markdown."""
    assert python_markdown(text) == expected


def test_api_pages_document_each_public_name() -> None:
    """The pages of the API have each class and function that the public packages define."""
    pages = "\n".join(page.read_text() for page in (DOCS / "reference/api").glob("*.md"))
    shown = re.findall(r"^::: (\S+)", pages, re.MULTILINE)
    public = {
        f"{found.__module__}.{found.__qualname__}"
        for package in (consumer_membership, admin, processing, spark)
        for name in package.__all__
        if getattr(found := getattr(package, name), "__module__", "").startswith("consumer_membership.")
    }
    assert sorted(public - set(shown)) == []
    assert [name for name in shown if pkgutil.resolve_name(name) is None] == []
