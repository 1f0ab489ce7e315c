"""The log messages in the package's code, and the page that explains them (docs/reference/log-messages.md).

The messages, levels and loggers on the page are generated. The last column is written by hand, and kept. If you change
a message, run `python -m tests.support.log_messages`: it updates the page, and prints messages without an explanation.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.support.documents import DOCS, ROOT, tables

PAGE = DOCS / "reference" / "log-messages.md"
PACKAGE = ROOT / "consumer_membership"
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_RECEIVER = re.compile(r"(?:^|[._])(?:log|logger|LOG|LOGGER)(?:\(\))?$")
#: The modules that receive a logger as an argument, each with the name of this logger.
_GIVEN: Mapping[str, str] = MappingProxyType(
    {
        "runtime/application/closing.py": "consumer_membership.session",
        "runtime/application/delivery.py": "consumer_membership.session",
        "runtime/application/session_observer.py": "consumer_membership.session",
    }
)
#: Functions that return texts which other modules log: module and function, with the logger and the level.
_TEXTS: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType(
    {
        ("runtime/application/lifetime.py", "warning"): ("consumer_membership.session", "WARNING"),
        ("recorder/dumps.py", "write_automatically"): ("consumer_membership.network", "WARNING"),
    }
)
_HEAD = "| message | level | cause and what to do |"
_MEMBERSHIP = "consumer_membership.membership"


class LogMessage(NamedTuple):
    """A message of one logger; `...` replaces each variable part."""

    logger: str
    text: str
    level: str


def messages() -> list[LogMessage]:
    """Return all messages of the package, sorted by logger and text."""
    levels: dict[tuple[str, str], set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for one in _messages_of(path):
            if re.search(r"[A-Za-z]", one.text):
                levels.setdefault((one.logger, one.text), set()).update(one.level.split(" or "))
    order = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    return [
        LogMessage(logger, text, " or ".join(sorted(found, key=order.index)))
        for (logger, text), found in sorted(levels.items())
    ]


def causes() -> dict[tuple[str, str], str]:
    """Return the explanations on the page, by logger and message."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        logger = part.partition("\n")[0].strip("`")
        for table in tables(part):
            if table[0] != _HEAD:
                continue
            for row in table[2:]:
                message, _, cause = re.split(r" (?<!\\)\| ", row.removeprefix("| ").removesuffix(" |"), maxsplit=2)
                found[logger, message.strip("`").replace("\\|", "|")] = cause
    return found


def rendered() -> str:
    """Return the current page: its introduction, the messages of the code, and its existing explanations."""
    known, current = causes(), messages()
    keys = {(one.logger, one.text) for one in current}
    spare = {key: cause for key, cause in known.items() if key not in keys}
    lines = [PAGE.read_text().partition("\n## ")[0].rstrip()]
    logger = ""
    for one in current:
        if one.logger != logger:
            logger = one.logger
            lines += ["", f"## `{logger}`", "", _HEAD, "|---|---|---|"]
        cause = known.get((one.logger, one.text)) or _nearest(one, spare)
        text = one.text.replace("|", "\\|")
        lines.append(f"| `{text}` | {one.level} | {cause} |")
    return "\n".join(lines) + "\n"


def _nearest(message: LogMessage, spare: dict[tuple[str, str], str]) -> str:
    """Return the explanation of the most similar removed message, and remove it from `spare`; "?" if there is none."""
    texts = [text for logger, text in spare if logger == message.logger]
    close = difflib.get_close_matches(message.text, texts, n=1, cutoff=0.6)
    return spare.pop((message.logger, close[0])) if close else "?"


# ---- from the code ----


def _messages_of(path: Path) -> Iterator[LogMessage]:
    name = str(path.relative_to(PACKAGE))
    source = path.read_text()
    tree = ast.parse(source)
    logger = _logger_of(name, source)
    for function, node in _nodes(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node, function, logger)
        found = _TEXTS.get((name, function.name)) if function is not None else None
        if found is not None and isinstance(node, ast.Return) and node.value is not None:
            yield from (LogMessage(found[0], text, found[1]) for text in _texts(node.value, function, node.lineno))


def _logger_of(name: str, source: str) -> str:
    found = set(re.findall(r"(?:getLogger|PackageLog)[(,]\s*\"([\w.]+)\"", source))
    if name in _GIVEN:
        return _GIVEN[name]
    if len(found) == 1:
        return found.pop()
    if "getLogger(__name__)" in source:
        return "consumer_membership." + name.removesuffix(".py").replace("/", ".")
    return "consumer_membership.network"  # the `logger` of `runtime.failures`


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, ast.AST]]:
    """Yield each node with the innermost function that contains it."""
    waiting: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, ast.AST]] = [(None, tree)]
    while waiting:
        function, node = waiting.pop()
        yield function, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        waiting += [(inner, child) for child in ast.iter_child_nodes(node)]


def _of_call(
    call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef | None, logger: str
) -> Iterator[LogMessage]:
    called = ast.unparse(call.func)
    receiver, _, method = called.rpartition(".")
    at = call.lineno
    if called == "Warned":
        yield from (LogMessage(_MEMBERSHIP, text, "WARNING") for text in _texts(call.keywords[0].value, function, at))
    elif method == "_once_then_counted":
        yield from (LogMessage(logger, text, "WARNING") for text in _texts(call.args[0], function, at))
    elif called == "FailureLog":
        return
    elif _RECEIVER.search(receiver) and method in _LEVELS:
        level = "ERROR" if method == "exception" else method.upper()
        yield from (LogMessage(logger, text, level) for text in _texts(call.args[0], function, at))
    elif _RECEIVER.search(receiver) and method == "log" and len(call.args) > 1:
        level = " or ".join(_levels(call.args[0], function, at)) or "DEBUG or WARNING"
        yield from (LogMessage(logger, text, level) for text in _texts(call.args[1], function, at))


def _levels(node: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None, before: int) -> Iterator[str]:
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _levels(body, function, before)
            yield from _levels(orelse, function, before)
        case ast.Attribute(value=ast.Name(id="logging"), attr=level):
            yield level
        case ast.Name(id=name):
            for value in _assigned(name, function, before):
                yield from _levels(value, function, before)


def _texts(node: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None, before: int) -> Iterator[str]:
    """Yield the texts that an expression can evaluate to, with `...` for each variable part."""
    match node:
        case ast.Constant(value=str(text)):
            yield _plain(text)
        case ast.JoinedStr(values=values):
            yield _plain("".join(str(v.value) if isinstance(v, ast.Constant) else "..." for v in values))
        case ast.IfExp(body=body, orelse=orelse):
            yield from _texts(body, function, before)
            yield from _texts(orelse, function, before)
        case ast.Name(id=name):
            for value in _assigned(name, function, before):
                yield from _texts(value, function, before)


def _assigned(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef | None, before: int) -> list[ast.expr]:
    """Return the value of the last assignment to this name before this line, in the same function."""
    found = [
        node
        for node in ast.walk(function or ast.Module(body=[], type_ignores=[]))
        if isinstance(node, ast.Assign) and node.lineno < before and ast.unparse(node.targets[0]) == name
    ]
    return [max(found, key=lambda node: node.lineno).value] if found else []


def _plain(text: str) -> str:
    text = re.sub(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdrfgx]", "...", text).replace("%%", "%")
    return re.sub(r"\.{3,}(?:\s*\.{3})+", "...", text).strip()


def main() -> None:
    """Update the page, and print the messages that have no explanation."""
    PAGE.write_text(rendered())
    for (logger, text), cause in causes().items():
        if cause == "?":
            print(f"{logger}: {text}")


if __name__ == "__main__":
    main()
