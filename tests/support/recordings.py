"""What members in tests on real brokers recorded, run again: each recording must lead to the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

from consumer_membership import Consumer
from consumer_membership.recorder.recording import read
from consumer_membership.recorder.replay import Replay
from tests.support.costs import REPLAYED


def assert_replays(path: Path) -> None:
    """This file leads to the same effects, all of them, and to the same view."""
    recording = read(path)
    replay = Replay(recording)
    difference = replay.run()
    assert difference is None, (path, recording.cause, difference)
    assert (replay.count, recording.is_whole) == (len(recording.entries), True), path
    REPLAYED.append(path.name)


def assert_all_replay(folder: Path) -> int:
    """Each file of this folder does, if there is one; how many there are."""
    paths = sorted(folder.glob("*.gz"))
    for path in paths:
        assert_replays(path)
    return len(paths)


def assert_consumer_replays(consumer: Consumer) -> None:
    """What this consumer has recorded until now does."""
    with tempfile.TemporaryDirectory() as folder:
        assert_replays(consumer.dump(folder))
