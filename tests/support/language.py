"""Check the English of documents, docstrings and comments: `python -m tests.support.language`.

codespell finds misspelled words, British spelling, and words that this project avoids (`house_words.txt`, each with a
suggestion). codespell checks single words, so `PHRASES` has the phrases to avoid. Code is not checked: text in
backticks, code blocks, identifiers and strings are removed first. The stage `lint` of `python -m tests` runs this
check.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.documents import DOCS, EXAMPLES, README, ROOT

HOUSE_WORDS = Path(__file__).with_name("house_words.txt")
#: Words that codespell reports but this project uses: Kafka writes "acknowledgement", and Python "cancelled".
ACCEPTED = Path(__file__).with_name("accepted_words.txt")
#: Phrases that this project avoids, each with a suggestion.
PHRASES = {
    r"\btold\b": "receives, is notified of",
    r"\bsaid\b": "reported, logged, stated",
    r"\bits words\b": "its text, its message",
    r"\blooked at\b": "checked, read, inspected",
    r"\blet in\b": "admitted",
    r"\bsays? (?:so|no|nothing)\b": "reports it, logs it",
    r"\bfor good\b": "permanently",
    r"\bby (?:itself|themselves)\b": "automatically, alone",
    r"\bst(?:ands?|ood) still\b": "stalls, stalled",
    r"\bstands? (?:in|there)\b": "is listed in",
    r"\bat its door\b": "on entry",
    r"\bas there\b(?! (?:is|are|was|were)\b)": "repeat the noun",
    r", too(?=[.,;:)]|$)": "also, before the verb",
    r"\bwhat is the matter\b": "the diagnosis",
    r"\bin words\b": "descriptive, as text",
    r"\b(?:one|each|every|this|two|a) looks?\b(?! (?:at|like|for|up))": "sample, inspection",
    r"\bjourneys?\b": "walkthrough",
    r"\bghosts?\b": "stale member",
    r"\brooms?\b": "package, module; space",
    r"\bfloors? \d\b": "level",
    r"\bdoes? nothing of\b|\bknows nothing of\b": "does not know",
}
_CODE = re.compile(r"`[^`\n]*`|``[^`]*``|<!--.*?-->|\]\([^)\s]*\)|https?://\S+")
_COMPILED = {re.compile(pattern, re.IGNORECASE): suggestion for pattern, suggestion in PHRASES.items()}
#: The page that quotes replaced sentences is not checked.
EXEMPT = DOCS / "project" / "plain-english.md"
_FENCE = re.compile(r"^[ >]*(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"(?:noqa|type: ignore|pragma|fmt|mypy|ruff)\b.*?(?=#|$)")


def markdown(text: str) -> Iterator[str]:
    """Yield the lines of a document; the lines of code blocks are empty."""
    fence = ""
    for line in text.splitlines():
        if found := _FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
            yield ""
        else:
            yield "" if fence else line


def python(text: str) -> list[str]:
    """Return the lines of a module with only its docstrings and comments."""
    lines = [""] * (text.count("\n") + 2)
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match token.type:
            case tokenize.COMMENT:
                lines[token.start[0] - 1] += " " + _DIRECTIVE.sub("", token.string)
            case tokenize.STRING if starts_statement:
                for number, line in enumerate(token.string.splitlines()):
                    lines[token.start[0] - 1 + number] += line
                starts_statement = False
            case tokenize.NEWLINE | tokenize.INDENT | tokenize.DEDENT:
                starts_statement = True
            case tokenize.NL | tokenize.ENCODING:
                pass
            case _:
                starts_statement = False
    return lines


def written(path: Path) -> list[str]:
    """Return the lines of a file with only their English text: empty lines for code, and no text in backticks."""
    text = path.read_text()
    found = python(text) if path.suffix == ".py" else [*markdown(text)]
    return _CODE.sub(lambda code: "\n" * code[0].count("\n"), "\n".join(found)).split("\n")


def files() -> list[Path]:
    """Return the documents and modules of the project, without the exempt page."""
    folders = (ROOT / "consumer_membership", ROOT / "tests", EXAMPLES, DOCS)
    found = (path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".md"})
    return [README, *sorted(path for path in found if path != EXEMPT and "__pycache__" not in path.parts)]


class Finding(NamedTuple):
    """A word or a phrase to replace.

    Attributes:
        place: The file and the line number.
        words: The found text.
        rule: The word of the dictionary, or the pattern of `PHRASES`.
        suggestion: A replacement.
    """

    place: str
    words: str
    rule: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.place}: {self.words} ==> {self.suggestion}"


def findings(paths: Iterable[Path]) -> Iterator[Finding]:
    """Yield every finding in these files."""
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            name = path.relative_to(ROOT)
            lines = written(path)
            copy = Path(folder) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("\n".join(lines))
            for number, line in enumerate(lines, 1):
                for pattern, suggestion in _COMPILED.items():
                    for found in pattern.finditer(line):
                        yield Finding(f"{name}:{number}", found[0], pattern.pattern, suggestion)
        yield from _misspelled(Path(folder))


def _misspelled(folder: Path) -> Iterator[Finding]:
    """Yield the findings of codespell in this folder."""
    command = [sys.executable, "-m", "codespell_lib", "--quiet-level", "35", "--builtin", "clear,en-GB_to_en-US"]
    command += ["--dictionary", "-", "--dictionary", str(HOUSE_WORDS), "--ignore-words", str(ACCEPTED), "."]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    if ran.stderr.strip():
        raise RuntimeError(f"codespell failed:\n{ran.stderr}")
    for line in ran.stdout.splitlines():
        place, _, rest = line.removeprefix("./").partition(": ")
        words, _, suggestion = rest.partition(" ==> ")
        yield Finding(place, words, words.lower(), suggestion)


def main() -> int:
    """Print the findings; return 1 if there are any."""
    found = sorted(findings(files()))
    print("\n".join(map(str, found)) if found else "no findings")
    if found:
        print(f"{len(found)} findings; the rules are in docs/project/contributing.md, section Language")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
