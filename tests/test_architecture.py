"""What classes may be: two levels of inheritance at most, and in the core one writer of each attribute."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "consumer_membership"
CORE = PACKAGE / "membership"

#: Levels of our own classes that one class may have above it, itself counted.
MOST_LEVELS = 2
#: The tree of errors is drawn where it stands: `errors.py`.
ERRORS = "MembershipError"


def classes(folder: Path) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class, wherever it is defined."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path, node


def bases_of(node: ast.ClassDef) -> list[str]:
    """The names of what a class inherits from: `Generic[T]` as `Generic`, `ast.AST` as `AST`."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def lines_of(name: str, bases: Mapping[str, list[str]]) -> list[list[str]]:
    """Every way from a class up through our own ones, itself first."""
    ways = [way for base in bases[name] if base in bases and base != name for way in lines_of(base, bases)]
    return [[name, *way] for way in ways] or [[name]]


def test_classes_are_two_levels_deep_at_most() -> None:
    """A class is never cut over files by inheritance; exceptions have a tree of their own."""
    bases = {node.name: bases_of(node) for _, node in classes(PACKAGE)}
    tall = {name for name in bases for way in lines_of(name, bases) if len(way) > MOST_LEVELS and ERRORS not in way}
    assert tall == set()


# ---- one writer -----------------------------------------------------------------------------------------------------


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that are assigned within this node."""
    for one in ast.walk(node):
        found: list[ast.expr] = []
        if isinstance(one, ast.Assign):
            found = one.targets
        elif isinstance(one, ast.AugAssign | ast.AnnAssign):
            found = [one.target]
        elif isinstance(one, ast.Delete):
            found = one.targets
        while found:
            target = found.pop()
            if isinstance(target, ast.Tuple | ast.List):
                found += target.elts
            elif isinstance(target, ast.Attribute):
                yield target


def records(tree: ast.Module) -> set[str]:
    """The fields of this module's private dataclasses: whoever has such a record fills it in."""
    return {
        field.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.startswith("_")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def test_each_attribute_of_the_core_has_one_writer() -> None:
    """What a class has, only its own methods assign: no other object does, and no class that inherits from it."""
    strangers = []
    writers: defaultdict[str, set[str]] = defaultdict(set)
    bases: dict[str, list[str]] = {}
    for path, node in classes(CORE):
        bases[node.name] = bases_of(node)
        filled = records(ast.parse(path.read_text()))
        for target in targets(node):
            if isinstance(target.value, ast.Name) and target.value.id == "self":
                writers[f"{node.name}.{target.attr}"].add(node.name)
            elif target.attr not in filled:
                strangers.append(f"{path.name}: {node.name} assigns {ast.unparse(target)}")
    assert strangers == []
    doubled = {
        written
        for written in writers
        for name, attribute in [written.split(".")]
        for way in lines_of(name, bases)
        for above in way[1:]
        if f"{above}.{attribute}" in writers
    }
    assert doubled == set()


def test_functions_of_the_core_assign_no_attribute() -> None:
    """Nor does anything outside of a class."""
    found = []
    for path in sorted(CORE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        outside = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
        found += [f"{path.name}: {ast.unparse(target)}" for node in outside for target in targets(node)]
    assert found == []


# ---- names ----------------------------------------------------------------------------------------------------------


def test_class_has_a_name_of_its_own() -> None:
    """One name, one thing: no two classes of the package that other modules may use are called alike."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}
