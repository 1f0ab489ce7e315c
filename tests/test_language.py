"""The checker of English reads text only, and finds words and phrases with a suggestion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import language
from tests.support.documents import DOCS, ROOT, tables

MODULE = '''"""A portrait."""

TEXT = "portrait"  # noqa: S105 - a portrait of `portrait`


def portrait() -> None:
    """Return for good, too."""
    "portrait"
'''


def test_python_keeps_docstrings_and_comments_at_their_lines() -> None:
    """Code, strings and directives for tools are removed."""
    lines = language.python(MODULE)
    assert lines[0] == '"""A portrait."""'
    assert lines[2] == " # "
    assert [lines[number] for number in (1, 3, 4, 5)] == [""] * 4
    assert lines[6].strip() == '"""Return for good, too."""'


def test_markdown_drops_code_blocks() -> None:
    """Fenced code blocks are removed, also those with longer fences around shorter ones."""
    text = "a\n\n````text\n```\nb\n```\n````\nc\n"
    assert [*language.markdown(text)] == ["a", "", "", "", "", "", "", "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A portrait of it.", ["portrait"]),
        ("The behaviour of `behaviour`.", ["behaviour"]),
        ("It is gone for good.", ["for good"]),
        ("teh", ["teh"]),
        ("A snapshot; its behavior is acknowledged.", []),
    ],
)
def test_findings_have_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, words: list[str]
) -> None:
    """House words, British spelling, phrases and misspelled words are found."""
    monkeypatch.setattr(language, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text)
    found = [*language.findings([path])]
    assert [one.words for one in found] == words
    assert all(one.suggestion and one.place == "page.md:1" for one in found)


def test_files_are_those_of_the_project() -> None:
    """The README, documents, examples, the package and the tests are checked."""
    names = {str(path.relative_to(ROOT)) for path in language.files()}
    assert {"README.md", "docs/index.md", "consumer_membership/errors.py", "tests/__main__.py"} <= names


def test_revised_sentences_are_those_of_the_project() -> None:
    """Each sentence that docs/project/plain-english.md shows as revised is in a document or module; `...` is a gap."""
    page = DOCS / "project" / "plain-english.md"

    def plain(text: str) -> str:
        return re.sub(r"[\W_]+", " ", re.sub(r"\]\([^)]*\)", " ", text)).strip().lower()

    everything = plain("\n".join(path.read_text() for path in language.files() if path != page))
    revised = [row.strip("| ").split(" | ")[1] for table in tables(page.read_text()) for row in table[2:]]
    parts = [plain(part) for sentence in revised for part in sentence.split("...")]
    assert len(revised) == 30
    assert [part for part in parts if part not in everything] == []
