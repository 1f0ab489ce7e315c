"""The process that runs the broker of a test session: `python -m consumer_membership.testing.broker_keeper FOLDER`.

The module `shared_broker` starts this process, and its docstring describes when the process ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from consumer_membership.devbroker import BrokerUnavailableError, start
from consumer_membership.testing.shared_broker import FOUND, USERS


def keep(folder: Path) -> None:
    """Start a broker, write its address to the folder, and stop it when no process uses it any more."""
    import fcntl  # noqa: PLC0415 - Windows lacks it

    found = folder / FOUND
    try:
        with start() as broker:
            _report(found, {"bootstrap_servers": broker.bootstrap_servers})
            with (folder / USERS).open("a") as users:
                fcntl.flock(users, fcntl.LOCK_EX)
                found.unlink()
    except BrokerUnavailableError as error:
        _report(found, {"error": str(error)})


def _report(found: Path, answer: dict[str, str]) -> None:
    """Write the result, and close standard output, because the parent process waits until it is closed."""
    found.with_suffix(".new").write_text(json.dumps(answer))
    found.with_suffix(".new").rename(found)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
