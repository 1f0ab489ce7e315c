"""The Markdown of this project, read: headings, links, code blocks, tables, and what stands in backticks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
MAP = ROOT / "docs" / "explanation/architecture.md"
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Every document."""
    return [README, MAP, *sorted(path for path in DOCS.rglob("*.md") if path != MAP)]


def name_of(path: Path) -> str:
    """The path below the project's root."""
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """The code of all blocks in this language."""
    return [code for found, code in _BLOCK.findall(text) if found == language]


def prose(text: str) -> str:
    """The text without its blocks."""
    return _BLOCK.sub("", text)


def quoted(text: str) -> list[str]:
    """What stands in backticks, outside blocks."""
    return re.findall(r"`([^`]+)`", prose(text))


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as forges make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def links(text: str) -> list[str]:
    """The targets of all links, those to other sites too."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(text))


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    before, _, after = text.partition(f"\n## {heading}\n")
    assert before != text, heading
    return after.partition("\n## ")[0]


def tables(text: str) -> list[list[str]]:
    """Consecutive lines that begin with a bar."""
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n?)+", prose(text), re.MULTILINE)]
