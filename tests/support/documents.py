"""The Markdown of this project as data: pages, headings, links, code blocks, tables, and names in backticks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
#: Documents about the package's internals and history: they use private names, and names that no longer exist.
INTERNAL = tuple(DOCS / name for name in ("explanation/architecture.md", "project/protocol.md", "project/changelog.md"))

#: A code block with its indentation (blocks in lists are indented), its language, and a marker in the line before it.
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<marker>[\w: -]+) -->\n+)?"
    r"^(?P<indent>[ ]*)(?P<fence>`{3,})[ ]*(?P<language>[\w-]*)[^\n`]*\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block of a document.

    Attributes:
        language: The language after the fence; empty without one.
        marker: The text of the comment directly before the block, for example `run` for `<!-- run -->`.
        code: The code, without the block's indentation.
    """

    language: str
    marker: str
    code: str


def documents() -> list[Path]:
    """Return all documents: the README, then the documents of `docs` and of `examples`."""
    return [README, *sorted(DOCS.rglob("*.md")), *sorted(EXAMPLES.rglob("*.md"))]


def documents_for_users() -> list[Path]:
    """Return the documents in which every name must exist: all except the internal ones."""
    return [path for path in documents() if path not in INTERNAL]


def name_of(path: Path) -> str:
    """Return the path relative to the project's root."""
    return str(path.relative_to(ROOT))


def all_blocks(text: str) -> Iterator[Block]:
    """Yield every code block with its language and its marker."""
    for found in _BLOCK.finditer(text):
        code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
        yield Block(language=found["language"], marker=found["marker"] or "", code=code)


def blocks(text: str, language: str) -> list[str]:
    """Return the code of all blocks in this language."""
    return [block.code for block in all_blocks(text) if block.language == language]


def prose(text: str) -> str:
    """Return the text without its code blocks."""
    return _BLOCK.sub("", text)


def quoted(text: str) -> list[str]:
    """Return the texts in backticks, outside of code blocks."""
    return re.findall(r"`([^`]+)`", prose(text))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as code forges and the site create them, and the explicit anchors."""
    seen: Counter[str] = Counter()
    found = set(re.findall(r"\bid=\"([\w-]+)\"", prose(text)))
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        if explicit := re.search(r"\{ ?#([\w-]+) ?\}$", heading):
            found.add(explicit[1])
            continue
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def links(text: str) -> list[str]:
    """Return the targets of all links and images, including links to other sites."""
    return re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", prose(text))


def section(text: str, heading: str) -> str:
    """Return the text under a heading of the second level."""
    before, _, after = text.partition(f"\n## {heading}\n")
    assert before != text, heading
    return after.partition("\n## ")[0]


def tables(text: str) -> list[list[str]]:
    """Return the lines of each table."""
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n?)+", prose(text), re.MULTILINE)]


def is_in_block(text: str) -> Callable[[int], bool]:
    """Return a function for positions of the text, which returns whether the position is in a code block."""
    spans = [found.span() for found in _BLOCK.finditer(text)]
    return lambda position: any(begin <= position < end for begin, end in spans)
