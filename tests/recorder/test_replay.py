"""Each recording of simulated members replays identically, and a different core is detected."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.effects import LookUpTopics
from consumer_membership.membership.events import CoordinatorLost, Polled, Subscribed, TimePassed, TopicsLookedUp
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.recording import read, write
from consumer_membership.recorder.replay import Replay
from consumer_membership.recorder.ring import Recorder
from consumer_membership.recorder.values import RecordingError
from consumer_membership.types import Subscription, TopicPattern
from tests.recorder.members import Recorded, simulated
from tests.simulation.profiles import PROFILES

#: In every second run, the ring is so small that recordings begin with a checkpoint.
WEIGHTS = (40, 2_000)
SEEDS_PER_BLOCK, BLOCKS = 2, 5
LEAST_RECORDINGS, LEAST_CHECKPOINTS = 100, 20


def is_identical(recorder: Recorder, path: Path) -> bool:
    """Return whether a replay of the written file has the same effects and the same view."""
    held = recorder.contents()
    write(path, held, "a test", held.entries[-1].at if held.entries else 0.0)
    replay = Replay(read(path))
    return replay.run() is None and replay.count == len(held.entries)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_recordings_of_simulation_replay_identically(tmp_path: Path, block: int) -> None:
    """Recordings of all processes of all profiles replay: killed, fenced, closed, taken over, of both protocols."""
    count = checkpoints = 0
    different = []
    for name in PROFILES:
        for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
            for number, recorder in enumerate(simulated(name, seed, segment_weight=WEIGHTS[seed % 2])):
                count += 1
                checkpoints += recorder.contents().state is not None
                if not is_identical(recorder, tmp_path / "a"):
                    different.append((name, seed, number))
    assert different == []
    print(f"{count} recordings, {checkpoints} of them from a checkpoint: all of them replay identically")
    assert count >= LEAST_RECORDINGS
    assert checkpoints >= LEAST_CHECKPOINTS


def test_replay_finds_first_different_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry with other effects is returned with both versions."""
    member = Recorded()
    member.join()
    member.tell(Polled(), CoordinatorLost(reason="broken"), Polled())
    recording = member.written(tmp_path / "a")
    monkeypatch.setattr(MemberCore, "_on_coordinator_lost", lambda *_: None)
    difference = Replay(recording).run()
    assert difference is not None
    assert (difference.number, difference.what) == (8, "its effects differ")
    assert difference.recorded != difference.replayed


def test_replay_finds_different_random_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A different random draw is a difference even if the effects are equal."""
    member = Recorded()
    member.join()
    recording = member.written(tmp_path / "a")
    made = Heartbeats.__init__

    def greedy(one: Heartbeats, settings: object, jitter: object) -> None:
        made(one, settings, jitter)  # type: ignore[arg-type]
        jitter()  # type: ignore[operator]

    monkeypatch.setattr(Heartbeats, "__init__", greedy)
    difference = Replay(recording).run()
    assert difference is not None
    assert difference.what == "a random number was drawn that is not in the recording"


def test_replay_repeats_exception_of_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception occurs at the same event; if the bug is fixed, the replay reports a difference."""
    member = Recorded()
    member.join()

    advance = MemberCore._advance

    def fail(one: MemberCore) -> None:
        if one.context.event.now >= 200.0:
            raise ZeroDivisionError("by nothing")
        advance(one)

    with monkeypatch.context() as broken:
        broken.setattr(MemberCore, "_advance", fail)
        with pytest.raises(ZeroDivisionError):
            member.recorder.handle(Polled(), 200.0)
        recording = member.written(tmp_path / "a")
        assert Replay(recording).run() is None
    difference = Replay(recording).run()
    assert difference is not None
    assert difference.what == "it raised ZeroDivisionError: by nothing in the recording, and nothing in the replay"


def test_replay_until_stops_at_given_time(tmp_path: Path) -> None:
    """The steps of a replay until a time end with the member's state at this time."""
    member = Recorded()
    member.join()
    replay = Replay(member.written(tmp_path / "a"))
    assert [step.view.state.name for step in replay.steps(until=102.0)] == ["UNSUBSCRIBED", "JOINING"]
    assert replay.count == 2


def test_replay_limits_cpu_time_of_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that takes more CPU time than a real one ends the replay with an error that names it."""
    monkeypatch.setattr("consumer_membership.recorder.replay.MOST_CPU_S", 0.1)
    member = Recorded(MemberSettings(group_id="g", topic_refresh_s=60.0))
    pattern = TopicPattern(text="^a", broker="a.*", member="(b)")
    member.tell(Subscribed(subscription=Subscription(patterns=frozenset({pattern}))), Polled(), TimePassed())
    asked = [
        one for entry in member.recorder.contents().entries for one in entry.effects if isinstance(one, LookUpTopics)
    ]
    member.tell(TopicsLookedUp(request_id=asked[-1].request_id, names=frozenset({"a" * 50})))
    path = tmp_path / "a.gz"
    member.written(path)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b'"(b)"', b'"(a+)+b"')))
    with pytest.raises(RecordingError, match=r"event 4 takes more than 0\.1 s of CPU time"):
        Replay(read(path)).run()
