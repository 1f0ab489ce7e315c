"""`consumer-membership run`: a program as it is, with this package's consumer in the place of confluent-kafka's.

Alone among the commands it needs none of what the extra `cli` brings: it is for images that run one program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

#: Where the `sitecustomize` is that Python imports at its start.
_STARTUP = Path(__file__).parent / "startup"

RUN_DESCRIPTION = """\
Runs a program in which confluent_kafka.Consumer is this package's, from the
first import on: the program itself, and the Python processes that it starts.
Arguments of the program follow it; what Python is started with -I, -E or -S
does not see it.

examples:
  consumer-membership run -- python app.py --verbose
  consumer-membership run -m app.worker --verbose
  consumer-membership run -- gunicorn app:server
"""
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run_program(program: Sequence[str]) -> NoReturn:
    """Become the program that these arguments name.

    Raises:
        SystemExit: they name none, or it cannot be started; its code is a shell's (127: not found, 126: no program).
    """
    form = argparse.RawDescriptionHelpFormatter
    usage = "%(prog)s [--] PROGRAM [ARGUMENT ...]\n       %(prog)s -m MODULE [ARGUMENT ...]"
    parser = argparse.ArgumentParser("consumer-membership run", usage, RUN_DESCRIPTION, formatter_class=form)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = list(program)
    if given[:1] in (["-h"], ["--help"]):
        parser.parse_args(given)
    is_module = given[:1] == ["-m"]
    program = given[1:] if given[:1] in (["-m"], ["--"]) else given
    if not program or (program[0].startswith("-") and given[:1] != ["--"]):
        parser.error("name a program, or with -m a module")
    if is_module:
        program = [sys.executable, "-m", *program]
    elif program[0].endswith(".py") and Path(program[0]).is_file() and not os.access(program[0], os.X_OK):
        program = [sys.executable, *program]
    paths = [str(_STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        os.execvpe(program[0], program, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)})  # noqa: S606
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        print(f"consumer-membership run: {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        raise SystemExit(code) from None
