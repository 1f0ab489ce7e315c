"""Run a program that reads another file at the path of a system file, which all other processes still read (Linux)."""

from __future__ import annotations

import os
from collections.abc import Sequence

# `unshare` makes the new mounts private, so that they end with the program.
_MOUNT = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def with_file_replaced(path: str, replacement: str, command: Sequence[str]) -> list[str]:
    """Return a command line that runs this command, which reads `replacement` at the existing `path`.

    It needs util-linux, and root or user namespaces.
    """
    privileges = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *privileges, "sh", "-c", _MOUNT, "sh", replacement, path, *command]
