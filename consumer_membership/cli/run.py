"""`consumer-membership run`: run an unchanged program with this package's consumer instead of confluent-kafka's.

This command does not need the extra `cli`, so that container images with one program can use it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

#: The folder of the `sitecustomize` module that Python imports at startup.
_STARTUP = Path(__file__).parent / "startup"

RUN_DESCRIPTION = """\
Run a program in which confluent_kafka.Consumer is the consumer of this
package, without a change of its code. This also applies to Python processes
that the program starts. It does not apply to Python started with -I, -E or -S.
"""
RUN_EXAMPLES = """\
  consumer-membership run -- python app.py --verbose
  consumer-membership run -m app.worker --verbose
  consumer-membership run -- gunicorn app:server
"""
RUN_EXITS: Mapping[int, str] = {
    2: "no program is given",
    126: "the program cannot be executed",
    127: "the program was not found; in all other cases the exit code is that of the program",
}
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run_program(program: Sequence[str]) -> NoReturn:
    """Replace this process with the program.

    Raises:
        SystemExit: No program is given (2), or it cannot be started; as in a shell, 127 if it was not found, else 126.
    """
    form = argparse.RawDescriptionHelpFormatter
    usage = "%(prog)s [--] PROGRAM [ARGUMENT ...]\n       %(prog)s -m MODULE [ARGUMENT ...]"
    epilog = f"examples:\n{RUN_EXAMPLES}"
    parser = argparse.ArgumentParser("consumer-membership run", usage, RUN_DESCRIPTION, epilog, formatter_class=form)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = list(program)
    if given[:1] in (["-h"], ["--help"]):
        parser.parse_args(given)
    is_module = given[:1] == ["-m"]
    program = given[1:] if given[:1] in (["-m"], ["--"]) else given
    if not program or (program[0].startswith("-") and given[:1] != ["--"]):
        parser.error("a program is required, or -m and a module")
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
