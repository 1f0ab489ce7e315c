"""The example for Kubernetes with a handler that hangs once: at the first record that orders it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from confluent_kafka import Message

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "kubernetes"))

import orders  # type: ignore[import-not-found]


def handle(message: Message) -> None:
    """As the example's, but for that record."""
    hung = Path(os.environ["HUNG"])
    if message.value() == b"hang" and not hung.exists():
        hung.touch()
        threading.Event().wait()


orders.handle = handle
orders.main()
