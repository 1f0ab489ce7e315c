"""The command line `consumer-membership`: arguments in, text or JSON out.

It uses the package as any application does, so what it shows is what the public API tells.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default); the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:
        from consumer_membership.cli.run import run_program  # it needs nothing of the extra `cli`

        return run_program(given[1:])
    from consumer_membership.cli import command

    return command.main(given)
