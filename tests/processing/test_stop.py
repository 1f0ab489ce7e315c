"""Signal handlers stop a processor, and one handler may interrupt another at any instruction."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from consumer_membership.processing import Processor
from tests.support.waiting import PATIENCE_S, wait_until

#: No broker listens at this address, so the processor polls but has no group to leave.
CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "stopped"}


def test_stop_may_be_interrupted_by_stop_now_anywhere() -> None:
    """The handler of a second signal interrupts the first one; no lock that it needs is held then."""
    processor = Processor(CONFIG, ["orders"], print)
    engine = processor._engine
    running = threading.Thread(target=processor.run, kwargs={"handle_signals": False}, daemon=True)
    running.start()
    wait_until(lambda: engine._loop is not None, "the poll loop")

    def interrupted(_frame: FrameType, _event: str, _argument: object) -> Any:
        sys.settrace(None)
        engine.stop_now()
        sys.settrace(interrupted)
        return interrupted

    def stop() -> None:
        sys.settrace(interrupted)
        engine.stop()
        sys.settrace(None)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    running.join(PATIENCE_S)
    assert not running.is_alive()
