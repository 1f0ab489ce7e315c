"""Replay the recordings of members on real brokers: the replay must have the same effects."""

from __future__ import annotations

import tempfile
from pathlib import Path

from consumer_membership import Consumer
from consumer_membership.recorder.recording import read
from consumer_membership.recorder.replay import Replay
from tests.support.costs import REPLAYED


def assert_replays(path: Path) -> None:
    """Assert that the replay of this file has the same effects and the same view."""
    recording = read(path)
    replay = Replay(recording)
    difference = replay.run()
    assert difference is None, (path, recording.cause, difference)
    assert (replay.count, recording.is_whole) == (len(recording.entries), True), path
    REPLAYED.append(path.name)


def assert_all_replay(folder: Path) -> int:
    """Assert that each file of the folder, which may be missing, replays; return the number of files."""
    paths = sorted(folder.glob("*.gz"))
    for path in paths:
        assert_replays(path)
    return len(paths)


def assert_consumer_replays(consumer: Consumer) -> None:
    """Assert that the recording of this consumer so far replays."""
    with tempfile.TemporaryDirectory() as folder:
        assert_replays(consumer.dump(folder))
