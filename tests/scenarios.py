"""The test levels at which each scenario is tested.

    python -m tests.scenarios

Section 5 of `docs/project/protocol.md` lists the scenarios: events that a member must survive (M: its
membership, H: its heartbeats), and the behavior of groups, brokers and clients (S, B, C). A test claims the scenarios
whose ids its docstring has before its first colon ("M41, H20: ..."). An id that is only mentioned is not a
claim. A test that is skipped or does nothing claims nothing. This command reads the docstrings without an import,
prints the levels of each id, and fails if an M, H, B or C scenario has no level and is not in `NOT_APPLICABLE`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent


class Level(IntEnum):
    """The five levels of the test suite, the lowest first."""

    UNIT = 1
    PROPERTIES = 2
    SIMULATION = 3
    WIRE = 4
    INTEGRATION = 5


def _ids(letter: str, *ranges: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f"{letter}{number:02d}" for first, last in ranges for number in range(first, last + 1))


#: The scenarios of members, as ranges of numbers.
MEMBER = _ids(
    "M", (1, 12), (20, 26), (30, 44), (50, 60), (70, 77), (80, 88), (90, 96), (100, 111), (120, 127), (130, 133)
)
HEARTBEAT = _ids("H", (1, 36))
#: The behavior of brokers: KIP-848's requests, groups that change their type, leaves, commits and fetches.
BROKER = _ids("B", (1, 12), (20, 24), (30, 32))
#: The behavior of consumers with both protocols.
CLIENT = _ids("C", (1, 20))
REQUIRED = MEMBER + HEARTBEAT + BROKER + CLIENT

#: The scenarios that do not apply to this design, each with the reason.
NOT_APPLICABLE: Mapping[str, str] = {
    "M04": "A log text of the preview release, which Kafka 4.0 removed. Here the client makes the member id before the "
    "first log line, so that each line contains it.",
    "H01": "The text form of Java's timer object. Here the schedule is `heartbeat.Heartbeats`, which is not printed; "
    "the view contains the times for users (M12 and H33 test it).",
    "B04": "Responses to requests that are not sent here: the configuration rejects an empty group.id, and a "
    "subscription to nothing is a leave.",
    "B08": "Rules for requests without a member id, which is made here before the first request (M05), also in version "
    "0 of the heartbeat.",
    "C16": "close takes no timeout here, as in confluent-kafka: the leave is always sent, and close is bounded (C17).",
    "H19": "Java notices an expired poll timer at its next loop and logs by how much it was late. Here the expiry is "
    "a deadline of `next_deadline` and is handled when it passes; the error names the limit (H17).",
}

#: An id, or a range of ids such as M120-M123.
_NAMED = re.compile(r"\b([MHSBC])(\d{2,3})(?:\s*(?:-|to)\s*\1?(\d{2,3}))?\b")
_MARKS = frozenset({"integration", "docker"})
#: A test with one of these marks claims no scenario.
_UNDONE = frozenset({"skip", "xfail"})
#: Modules that import one of these use real sockets, to librdkafka's mock cluster or to a scripted broker.
_PEERS = frozenset({"tests.support.mock_cluster", "tests.support.scripted_broker"})


def ids_in(text: str) -> frozenset[str]:
    """Return the ids that a docstring names; a range includes all of its numbers."""
    found: set[str] = set()
    for letter, first, last in _NAMED.findall(text):
        found.update(f"{letter}{number:02d}" for number in range(int(first), int(last or first) + 1))
    return frozenset(found)


def claimed(docstring: str) -> frozenset[str]:
    """Return the ids at the start of a docstring, up to its first colon."""
    head, colon, _ = docstring.partition(":")
    return ids_in(head) if colon and _NAMED.match(head) else frozenset()


def coverage(root: Path = ROOT) -> dict[str, frozenset[Level]]:
    """Return each id that a test claims, with the levels of those tests."""
    found: defaultdict[str, set[Level]] = defaultdict(set)
    for path in sorted(root.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        has_sockets = bool(_PEERS & _imports(tree))
        for node, marks in _tests(tree.body, _marks_of_module(tree)):
            level = _level(path.relative_to(root), marks, has_sockets=has_sockets)
            for scenario in claimed(ast.get_docstring(node) or ""):
                found[scenario].add(level)
    return {scenario: frozenset(levels) for scenario, levels in found.items()}


def uncovered(covered: Mapping[str, frozenset[Level]]) -> list[str]:
    """Return the required ids that no test claims and that are not in the table."""
    return [scenario for scenario in REQUIRED if scenario not in covered and scenario not in NOT_APPLICABLE]


def needless(covered: Mapping[str, frozenset[Level]]) -> list[str]:
    """Return the ids in the table that a test claims nevertheless, or that are not required."""
    return [scenario for scenario in NOT_APPLICABLE if scenario in covered or scenario not in REQUIRED]


def _tests(
    body: Iterable[ast.stmt], marks: frozenset[str]
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, frozenset[str]]]:
    """Yield the tests that run, including methods, each with its marks."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                own = marks | _marks_in(node.decorator_list)
                if not own & _UNDONE and any(isinstance(part, ast.Assert | ast.Call) for part in ast.walk(node)):
                    yield node, own
            case ast.ClassDef() if node.name.startswith("Test"):
                yield from _tests(node.body, marks | _marks_in(node.decorator_list))
            case _:
                pass


def _marks_of_module(tree: ast.Module) -> frozenset[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                return _marks_in([node.value])
            case _:
                pass
    return frozenset()


def _marks_in(expressions: Iterable[ast.expr]) -> frozenset[str]:
    """Return the names after `pytest.mark.` in these expressions."""
    return frozenset(
        part.attr
        for expression in expressions
        for part in ast.walk(expression)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Attribute) and part.value.attr == "mark"
    )


def _imports(tree: ast.Module) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                found.add(module)
            case ast.Import(names=names):
                found.update(name.name for name in names)
            case _:
                pass
    return frozenset(found)


def _level(path: Path, marks: frozenset[str], *, has_sockets: bool) -> Level:
    if path.parts[0] == "integration" or marks & _MARKS:
        return Level.INTEGRATION
    if path.parts[0] == "simulation":
        return Level.SIMULATION
    if path.name == "test_properties.py":
        return Level.PROPERTIES
    return Level.WIRE if has_sockets else Level.UNIT


def _print(covered: Mapping[str, frozenset[Level]]) -> None:
    others = sorted(covered.keys() - set(REQUIRED), key=lambda scenario: (scenario[0], int(scenario[1:])))
    print("id     levels")
    for scenario in (*REQUIRED, *others):
        levels = " ".join(str(int(level)) for level in sorted(covered.get(scenario, ())))
        print(f"{scenario:<6} {levels or '-'}{'  (see the table)' if scenario in NOT_APPLICABLE else ''}")
    for level in Level:
        count = sum(level in levels for levels in covered.values())
        print(f"level {int(level)} ({level.name.lower()}): {count} scenarios")
    print(f"{len(REQUIRED)} required, {len(NOT_APPLICABLE)} do not apply:")
    for scenario, reason in NOT_APPLICABLE.items():
        print(f"  {scenario}: {reason}")


def main() -> int:
    """Print the coverage; return 1 if a required scenario is uncovered, or an entry of the table is unnecessary."""
    covered = coverage()
    _print(covered)
    missing, excused = uncovered(covered), needless(covered)
    if missing:
        print("UNCOVERED: " + " ".join(missing), file=sys.stderr)
    if excused:
        print("in the table without need: " + " ".join(excused), file=sys.stderr)
    return 1 if missing or excused else 0


if __name__ == "__main__":
    sys.exit(main())
