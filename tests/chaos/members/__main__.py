"""Run one member: `python -m tests.chaos.members MEMBER PROCESS GROUP TOPIC SERVERS FOLDER`.

MEMBER is a `MemberPlan` as JSON. Each line of stdin is an order (`Order`). The member closes at the end of stdin and on
SIGTERM or SIGINT. It is killed when the process that started it ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import signal
import sys
from pathlib import Path

from tests.chaos import planted
from tests.chaos.members.account import Account
from tests.chaos.plan import Loop, MemberPlan

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the member until it is closed, or fails permanently."""
    member, process, group, topic, servers, folder = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A shell makes background processes ignore SIGINT; this restores its handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    faulthandler.enable()
    planted.apply_from_environment()
    plan = MemberPlan.from_json(member)
    # Each program has its own imports, so that a member of another client does not import this package.
    match plan.loop:
        case Loop.POLL | Loop.CONSUME:
            from tests.chaos.members.calls import run_calls as run  # noqa: PLC0415
        case Loop.ASYNC:
            from tests.chaos.members.asynchronous import run_async as run  # noqa: PLC0415
        case Loop.PROCESSOR | Loop.TRANSACTIONS:
            from tests.chaos.members.handlers import run_processor as run  # noqa: PLC0415
        case Loop.MANUAL:
            from tests.chaos.members.manual import run_manual as run  # noqa: PLC0415
        case Loop.SPARK:
            from tests.chaos.members.spark import run_spark as run  # noqa: PLC0415
        case Loop.RAW:
            from tests.chaos.members.raw import run_raw as run  # noqa: PLC0415
        case Loop.JAVA:
            raise ValueError(f"a Java member does not run in Python: {member}")
    with Account(plan, process, group, topic, servers, Path(folder)) as account:
        return run(account)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
