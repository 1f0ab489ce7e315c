"""One question to a cluster from the command line: what it is asked with, and how a refusal ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

from consumer_membership.admin import GroupAdmin
from consumer_membership.demo.display import discard
from consumer_membership.errors import ConfigurationError, MembershipError

#: The exit codes: all went well; a broker or the network refused; the arguments are wrong; Ctrl-C, as shells have it.
DONE, REFUSED, MISUSED, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Which cluster to ask about which group, and how long; None: the default."""

    config: Mapping[str, object]
    group: str
    is_json: bool = False
    timeout_s: float | None = None

    def admin(self) -> GroupAdmin:
        """Who asks.

        Raises:
            ConfigurationError: the configuration cannot work.
        """
        if self.timeout_s is None:
            return GroupAdmin(self.config)
        return GroupAdmin(self.config, timeout_s=self.timeout_s)


def answered(command: str, ask: Callable[[], int], out: TextIO, err: TextIO) -> int:
    """The exit code of `ask`, which writes to `out`; what it raises is one line on `err`."""
    # What failed on the way is in the error, if it mattered in the end.
    logging.getLogger("consumer_membership").addHandler(logging.NullHandler())
    try:
        code = ask()
        out.flush()
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain about the same pipe once more at its exit.
        discard(out)
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except MembershipError as error:
        err.write(f"consumer-membership {command}: {error}\n")
        return MISUSED if isinstance(error, ConfigurationError) else REFUSED
    return code
