"""The command line's `list` with the keys of a client, as its arguments."""

from __future__ import annotations

from collections.abc import Mapping


def list_command(config: Mapping[str, object]) -> list[str]:
    """Return the arguments that list the groups, with an option `-c` for each key."""
    return ["list", *(word for key, value in config.items() for word in ("-c", f"{key}={value}"))]
