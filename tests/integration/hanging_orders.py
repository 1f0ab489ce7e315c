"""The example for Kubernetes with a handler that hangs once, at the first record with the value `hang`."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from confluent_kafka import Message

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "kubernetes"))

import orders  # type: ignore[import-not-found]


def handle(message: Message) -> None:
    """Handle a record as the example does, but hang at the first record with the value `hang`."""
    hung = Path(os.environ["HUNG"])
    if message.value() == b"hang" and not hung.exists():
        hung.touch()
        threading.Event().wait()


orders.handle = handle
orders.main()
