"""Rules of the architecture: inheritance, writers of attributes, imports between modules, and names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "consumer_membership"
CORE = PACKAGE / "membership"

#: The largest number of the package's own classes in an inheritance chain, including the class itself.
MOST_LEVELS = 2
#: The root of the exception tree, which `errors.py` documents.
ERRORS = "MembershipError"


def classes(folder: Path) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield every class definition, including nested ones."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path, node


def bases_of(node: ast.ClassDef) -> list[str]:
    """Return the names of the base classes: `Generic[T]` as `Generic`, `ast.AST` as `AST`."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def lines_of(name: str, bases: Mapping[str, list[str]]) -> list[list[str]]:
    """Return every inheritance chain of a class through the package's own classes, beginning with the class."""
    ways = [way for base in bases[name] if base in bases and base != name for way in lines_of(base, bases)]
    return [[name, *way] for way in ways] or [[name]]


def test_class_hierarchies_have_at_most_two_levels() -> None:
    """Inheritance has at most two levels, because it must not split a class over files.

    Exceptions are excluded, because they have a documented tree.
    """
    bases = {node.name: bases_of(node) for _, node in classes(PACKAGE)}
    tall = {name for name in bases for way in lines_of(name, bases) if len(way) > MOST_LEVELS and ERRORS not in way}
    assert tall == set()


# ---- one writer per attribute ---------------------------------------------------------------------------------------


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that are assigned within this node."""
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
    """Return the fields of this module's private dataclasses, which other classes of the module may fill."""
    return {
        field.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.startswith("_")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def test_core_attributes_are_assigned_only_by_their_own_class() -> None:
    """Only the methods of a class assign its attributes; neither other objects nor subclasses do."""
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


def test_core_code_outside_classes_assigns_no_attribute() -> None:
    """Functions and module-level code of the core assign no attributes."""
    found = []
    for path in sorted(CORE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        outside = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
        found += [f"{path.name}: {ast.unparse(target)}" for node in outside for target in targets(node)]
    assert found == []


# ---- imports --------------------------------------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """Return the file of each module of the package, by its name without the package prefix."""
    names = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(parts).removesuffix("__init__").rstrip("."): path for path, parts in names.items()}


def imported(name: str, path: Path, known: Collection[str]) -> set[str]:
    """Return the package modules that a module imports, including imports in functions and for types only."""
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
    """Return the groups of modules that import each other, directly or indirectly."""

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


def test_circles_finds_import_cycles_of_any_length() -> None:
    """A cycle is found whatever its length, and modules that only import it are not part of it."""
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert circles(imports) == [["a", "b", "c"], ["f", "g"]]


def test_package_has_no_import_cycles() -> None:
    """The package has no import cycle, not even through imports in functions or for types only."""
    known = modules()
    assert circles({name: imported(name, path, known) for name, path in known.items()}) == []


# ---- names ----------------------------------------------------------------------------------------------------------

#: Type variables, which have no meaning outside of their module.
TYPE_VARIABLES = {"T", "AnswerT"}


def definitions(path: Path) -> Iterator[str]:
    """Yield the names of a module's classes, public constants and type aliases."""
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


def test_class_and_public_constant_names_are_unique() -> None:
    """Each class and each public constant name is defined once in the package, so that one name means one thing."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in set(definitions(path)) - TYPE_VARIABLES:
            named[name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}
