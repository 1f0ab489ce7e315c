"""Citations resolve: rules, scenarios and Kafka issues are in `docs/project/protocol.md`, and cited documents exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.scenarios import REQUIRED, ids_in

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "consumer_membership"
PROTOCOL = ROOT / "docs" / "project/protocol.md"

_NUMBER = r"\d\.\d{1,2}|\d"
#: "rules 4.7", "rules 3.1 to 3.3, 3.6 and 3.7", "rules 3.3 (b)"; `--rules 4.3` is an option of the exploration.
_RULES = re.compile(rf"(?<!-)\b[Rr]ules ((?:{_NUMBER})(?:(?:,| to| and|, and) (?:{_NUMBER})(?![\w.]))*)")
_ISSUES = re.compile(r"\bKAFKA-\d+\b")
_FILES = re.compile(r"[\w./-]*\w\.md\b")
#: The mark of observed statements in `docs/project/protocol.md`: the word "seen" in parentheses.
_SEEN = re.compile(r"\([^()]*\bseen\b[^()]*\)")
#: The fixtures of `tests/simulation/conftest.py` that use the simulation and also a real broker.
_UNDER_TEST = frozenset({"consumer", "brief_consumer", "small_consumer", "classic", "small_classic", "either"})
#: A document of librdkafka.
_FOREIGN = frozenset({"STATISTICS.md"})
#: Documents and trackers outside the repository; an issue of another project has four digits or more.
_ELSEWHERE = re.compile(
    r"\bDESIGN\b|\bSTYLE\.md|\bprotocol rules\b|\bprotocol\.md,? \d|\bcatalogue [A-J\d]\b|\b[Ii]ssue \d{1,3}\b",
    re.ASCII,
)


def rules_in(text: str) -> set[str]:
    """Return the sections that a text cites; for a range such as "3.4 to 3.7", both ends."""
    return {number for cited in _RULES.findall(text) for number in re.findall(_NUMBER, cited)}


def sections() -> list[str]:
    """Return the numbers of the sections of `docs/project/protocol.md`."""
    return re.findall(r"^#{2,3} (\d(?:\.\d+)?) \S", PROTOCOL.read_text(), re.MULTILINE)


def rows(pattern: str) -> list[str]:
    """Return the first cells of the document's table rows that match the pattern."""
    return re.findall(rf"^\| ({pattern}) \| \S", PROTOCOL.read_text(), re.MULTILINE)


@cache
def words_of(path: Path) -> str:
    """Return the text of a document, or the docstrings and comments of a module without ruff's comments."""
    text = path.read_text()
    return text if path.suffix == ".md" else "\n".join((*_docstrings(text), *_comments(text)))


def _docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield re.sub(r"noqa: [A-Z0-9, ]+", "", token.string)


def writings() -> list[Path]:
    """Return every module and document of the repository except this module, whose regular expressions cite nothing."""
    folders = (PACKAGE, ROOT / "tests", ROOT / "examples")
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".md"}]
    return [ROOT / "README.md", *sorted(path for path in found if path != Path(__file__).resolve())]


def strays(cited: Callable[[str], set[str]], known: set[str]) -> dict[str, list[str]]:
    """Return the citations of each file that are not known."""
    found = {str(path.relative_to(ROOT)): sorted(cited(words_of(path)) - known) for path in writings()}
    return {path: unknown for path, unknown in found.items() if unknown}


def test_cited_rules_are_sections_of_the_protocol_document() -> None:
    """A citation such as "rules 4.7" is a section of `docs/project/protocol.md`."""
    assert strays(rules_in, set(sections())) == {}


def test_cited_and_required_scenarios_are_rows_of_the_protocol_document() -> None:
    """Scenario ids in docstrings and comments, and the required ids, are rows of section 5."""
    known = set(rows(r"[MHSBC]\d{2,3}"))
    assert strays(lambda text: set(ids_in(text)), known) == {}
    assert [scenario for scenario in REQUIRED if scenario not in known] == []


def test_cited_kafka_issues_are_described_in_the_protocol_document() -> None:
    """Section 7.2 describes each cited Kafka issue in one line."""
    assert strays(lambda text: set(_ISSUES.findall(text)), set(rows(r"KAFKA-\d+"))) == {}


def test_cited_documents_are_in_the_repository() -> None:
    """Texts cite only documents that are in the repository."""
    assert strays(lambda text: set(_ELSEWHERE.findall(text)), set()) == {}
    there = {path.name for folder in ("docs", "tests") for path in (ROOT / folder).rglob("*.md")} | {"README.md"}
    assert strays(lambda text: {Path(name).name for name in _FILES.findall(text)}, there | _FOREIGN) == {}


def statements_seen() -> dict[str, list[str]]:
    """Return the rows, bullets and paragraphs of each section of the document that are marked as seen."""
    found: dict[str, list[str]] = {}
    for chapter in re.split(r"^(?=#{2,3} \d)", PROTOCOL.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.split(r"\n(?=[|-] ?)|\n\n", chapter.partition("\n")[2])
        marked = [" ".join(block.split()) for block in blocks if _SEEN.search(block)]
        if marked:
            found[chapter.split()[1]] = marked
    return found


def test_statements_marked_as_seen_name_a_broker_test() -> None:
    """Section 7.3 quotes each statement that is marked as seen, and names a real-broker test that shows it."""
    seen = statements_seen()
    rows = re.findall(r"^\| (\d\.\d+) \| (.+?) \| `(\S+)::(\w+)` \|$", PROTOCOL.read_text(), re.MULTILINE)
    quoted = {section: [quote for at, quote, _, _ in rows if at == section] for section, *_ in rows}
    unquoted = [one for at, found in seen.items() for one in found if not any(q in one for q in quoted.get(at, []))]
    assert unquoted == []
    wrong = [quote for at, quote, _, _ in rows if sum(quote in one for one in seen.get(at, [])) != 1]
    assert wrong == []
    missing = [name for _, _, path, name in rows if name not in _broker_tests(ROOT / "tests" / path)]
    assert missing == []


@cache
def _broker_tests(path: Path) -> frozenset[str]:
    """Return the real-broker tests of a module: all of them, or those with a coordinator under test."""
    text = path.read_text()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    is_marked = re.search(r"^pytestmark = .*\bintegration\b", text, re.MULTILINE) is not None
    return frozenset(one.name for one in functions if is_marked or _UNDER_TEST & {arg.arg for arg in one.args.args})


def test_sections_scenarios_and_issues_are_unique() -> None:
    """Each section, scenario and Kafka issue has one entry, so that a citation has one meaning."""
    for names in (sections(), rows(r"[MHSBC]\d{2,3}"), rows(r"KAFKA-\d+")):
        assert names
        assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Rules 4.10: they go on.", {"4.10"}),
        ("(KIP-848; rules 2.2 and 2.3).", {"2.2", "2.3"}),
        ("rules 3.1 to 3.3, 3.6 and 3.7), for several", {"3.1", "3.3", "3.6", "3.7"}),
        ("rules 3.4 to 3.7 and 4)", {"3.4", "3.7", "4"}),
        ("Rules 3.3 (b): released", {"3.3"}),
        ("Rules 4.9: 3 s, again", {"4.9"}),
        ("Rules 3.6, 15 of them", {"3.6"}),
        ("[--rules 4.3|classic]", set()),
    ],
)
def test_rules_in_finds_single_sections_lists_and_ranges(text: str, cited: set[str]) -> None:
    """`rules_in` finds one section, a list or a range."""
    assert rules_in(text) == cited
