"""The architecture that code keeps: classes, writers of attributes, imports between files, and names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
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


# ---- imports --------------------------------------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """The file of each module of the package, by its name without the package's own."""
    names = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(parts).removesuffix("__init__").rstrip("."): path for path, parts in names.items()}


def imported(name: str, path: Path, known: Collection[str]) -> set[str]:
    """The modules of the package that one imports anywhere: in functions and for types only, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        wanted: list[tuple[str, str]] = []
        if isinstance(node, ast.Import):
            wanted = [(one.name, "") for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(node.module, one.name) for one in node.names]
        for module, member in wanted:
            room, _, inner = module.partition(".")
            if room == PACKAGE.name:
                deeper = f"{inner}.{member}".strip(".")
                found |= {deeper} if deeper in known else {inner} & set(known)
    return found - {name}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or by others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            new = imports[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    below = {name: reached(name) for name in imports}
    groups = {frozenset(other for other in below[name] if name in below[other]) for name in imports}
    return sorted(sorted(group) for group in groups if group)


def test_circles_of_modules_are_found() -> None:
    """A circle is found whatever its length, and modules that only import it are not part of it."""
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert circles(imports) == [["a", "b", "c"], ["f", "g"]]


def test_modules_import_each_other_in_one_direction() -> None:
    """No file imports, in a function or for types either, what imports that file."""
    known = modules()
    assert circles({name: imported(name, path, known) for name, path in known.items()}) == []


# ---- names ----------------------------------------------------------------------------------------------------------

#: A module's own: a type variable has no meaning outside.
TYPE_VARIABLES = {"T", "AnswerT"}


def definitions(path: Path) -> Iterator[str]:
    """The names of a module's classes, and of its constants and type aliases that other modules may use."""
    for node in ast.parse(path.read_text()).body:
        named: list[ast.expr] = []
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            named = node.targets
        elif isinstance(node, ast.AnnAssign):
            named = [node.target]
        for target in named:
            one = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (name.id for name in one if isinstance(name, ast.Name) and not name.id.startswith("_"))


def test_class_or_public_constant_has_a_name_of_its_own() -> None:
    """One name, one thing: each class name and each public constant is defined once in the package."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in set(definitions(path)) - TYPE_VARIABLES:
            named[name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}
