"""Generate the synopses, options and exit codes of the reference: `python -m tests.support.command_line_tables`.

The document `docs/reference/command-line.md` has a generated region for each subcommand and for the table of causes,
between `<!-- NAME: begin -->` and `<!-- NAME: end -->`. The text comes from the argument parser.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from consumer_membership.cli import command
from consumer_membership.cli.command import COMMANDS, Command
from consumer_membership.observe.findings import Cause
from tests.support.documents import DOCS

DOCUMENT = DOCS / "reference/command-line.md"
#: The width of a synopsis, so that it fits on a page.
_COLUMNS = 96
#: `run` has its own parser, because it passes its arguments to another program.
_OWN_USAGE = {
    "run": "consumer-membership run [--] PROGRAM [ARGUMENT ...]\nconsumer-membership run -m MODULE [ARGUMENT ...]"
}


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a subcommand."""
    parser = command._parser()
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    subparser: argparse.ArgumentParser = found.choices[name]
    return subparser


def region(one: Command) -> Iterator[str]:
    """Yield the generated lines of a subcommand."""
    parser = parser_of(one.name)
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=_COLUMNS)
    usage = _OWN_USAGE.get(one.name) or parser.format_usage().removeprefix("usage: ").rstrip()
    yield from ("", "```text", *re.sub(r"\n {7}(?= )", "\n", usage).splitlines(), "```", "")
    yield from ("| option | description |", "|---|---|")
    for action in parser._actions:
        if action.dest != "help":
            yield f"| {_flags(action)} | {_description(parser, action)} |"
    yield from ("", "| exit code | meaning |", "|---|---|")
    yield from (f"| {code} | {_with_options(text)} |" for code, text in one.exits.items())
    yield ""


def _flags(action: argparse.Action) -> str:
    value = "" if action.metavar is None or action.nargs == 0 else f" {action.metavar}"
    if action.nargs == "+":
        value += " ..."
    if not action.option_strings:
        return f"`{action.metavar}`"
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings)


def _description(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action)
    text = re.sub(r"\$[A-Z_]+", lambda found: f"`{found[0]}`", text)
    return _with_options(text) + ("; required" if action.required and action.option_strings else "")


def _with_options(text: str) -> str:
    """Return the text with its options in backticks."""
    return re.sub(r"(?<!`)(--[a-z-]+)", r"`\1`", text)


def causes() -> Iterator[str]:
    """Yield the table of the causes that `doctor --json` can contain."""
    yield from ("", "| `cause` | finding |", "|---|---|")
    yield from (f"| `{cause.name.lower()}` | {cause.value} |" for cause in Cause)
    yield ""


def renewed(text: str) -> str:
    """Return the document with the current regions."""
    regions = {one.name: region(one) for one in COMMANDS} | {"causes": causes()}
    for name, lines in regions.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, name
        text = "\n".join((before + begin, *lines, end)) + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
