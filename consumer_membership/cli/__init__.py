"""The command line `consumer-membership`.

The commands use only the public API of the package, so their output shows what an application can see.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default) and return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:
        from consumer_membership.cli.run import run_program  # does not need the extra `cli`

        return run_program(given[1:])
    from consumer_membership.cli import command

    return command.main(given)
