"""The lines of a history: complete after a kill, equal after reading, and sorted by time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.chaos import history as h
from tests.chaos.testbed import Progress
from tests.support.together import together
from tests.support.waiting import PROCESS_S

P0, P1 = h.Partition("orders", 0), h.Partition("orders", 1)

EVENTS: tuple[h.Event, ...] = (
    h.Produced(partition=P0, offset=7, number=3, key="k"),
    h.FaultBegan(fault="stop", target="a"),
    h.FaultEnded(fault="stop", target="a"),
    h.OffsetsObserved(group="g", offsets=(h.Offset("orders", 0, 7),)),
    h.OffsetsReset(group="g", partitions=(P0,)),
    h.Recreated(topic="orders"),
    h.Evicted(member="a#1"),
    h.Killed(member="a#1"),
    h.Output(group="g", partition=P1, number=2),
    h.Settled(),
    h.Started(group="g", kind="poll", pid=1, instance_id="a", has_leases=True),
    h.Assigned(member_id="m", epochs=(h.Epoch("orders", 0, 4),)),
    h.Warmed(partitions=(P0,)),
    h.Revoked(partitions=(P0, P1)),
    h.Lost(partitions=(P0,)),
    h.Received(partition=P0, offset=7, number=3, begun_ns=5, lease_until_ns=9, key="k"),
    h.Finished(partition=P0, offset=7),
    h.CommitBegun(commit=1, offsets=(h.Offset("orders", 0, 8),)),
    h.CommitEnded(commit=1, error="ILLEGAL_GENERATION"),
    h.LeaseRenewed(until_ns=77),
    h.Statement(
        begun_ns=1,
        state="STABLE",
        member_id="m",
        member_epoch=4,
        owned=(h.Epoch("orders", 0, 4),),
        lease_until_ns=9,
        verdict="consuming",
        stalled=(P1,),
    ),
    h.Raised(error="boom"),
    h.Closed(),
)


def test_each_event_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every kind of event is equal after writing and reading; its entry has the process, and times do not decrease."""
    assert {type(event) for event in EVENTS} == set(h.Event.__args__)
    with h.HistoryWriter(tmp_path, "a#1") as writer:
        for event in EVENTS:
            writer.write(event)
    entries = h.read_all(tmp_path)
    assert tuple(entry.event for entry in entries) == EVENTS
    assert {entry.process for entry in entries} == {"a#1"}
    times = [entry.at_ns for entry in entries]
    assert times == sorted(times)


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    """If a file ends within a line, `read` returns the events of all complete lines before it."""
    with h.HistoryWriter(tmp_path, "a") as writer:
        writer.write(h.Closed())
        writer.write(h.Settled())
    content = writer.path.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content)):
        writer.path.write_bytes(content[:length])
        assert [entry.event for entry in h.read(writer.path)] == [h.Closed()]


@pytest.mark.parametrize("line", [b"\n", b"7\n", b'{"at":1}\n', b'{"at":1,"process":"a","event":"Nothing"}\n'])
def test_invalid_line_raises(tmp_path: Path, line: bytes) -> None:
    """A complete line that is not an event raises an error."""
    path = tmp_path / "a.history"
    path.write_bytes(line)
    with pytest.raises(ValueError, match=r"not an event|Expecting value"):
        list(h.read(path))


def test_killed_process_leaves_every_event_that_it_wrote(tmp_path: Path) -> None:
    """Events are in the file when `write` returns, even if the process is killed afterwards."""
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests.chaos import history as h\n"
        "writer = h.HistoryWriter(Path(sys.argv[1]), 'a')\n"
        "for number in range(100): writer.write(h.LeaseRenewed(until_ns=number))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=PROCESS_S)
    assert ended.returncode == -signal.SIGKILL
    events = [entry.event for entry in h.read_all(tmp_path)]
    assert events == [h.LeaseRenewed(until_ns=number) for number in range(100)]


def test_lines_of_several_threads_are_complete_and_in_order(tmp_path: Path) -> None:
    """Threads never mix their lines, and the times of a file never decrease."""
    with h.HistoryWriter(tmp_path, "a") as writer:

        def write() -> None:
            for _ in range(200):
                writer.begin_commit([h.Offset("orders", 0, 1)])

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = list(h.read(writer.path))
    numbers = [entry.event.commit for entry in entries if isinstance(entry.event, h.CommitBegun)]
    assert numbers == list(range(1, 801))
    assert [e.at_ns for e in entries] == sorted(e.at_ns for e in entries)


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    """`read_all` returns the events of several processes sorted by the times of their common clock."""
    with h.HistoryWriter(tmp_path, "b") as b, h.HistoryWriter(tmp_path, "a") as a:
        b.write(h.LeaseRenewed(until_ns=1))
        a.write(h.LeaseRenewed(until_ns=2))
        b.write(h.LeaseRenewed(until_ns=3))
    assert [(e.process, e.event) for e in h.read_all(tmp_path)] == [
        ("b", h.LeaseRenewed(until_ns=1)),
        ("a", h.LeaseRenewed(until_ns=2)),
        ("b", h.LeaseRenewed(until_ns=3)),
    ]


def test_progress_reads_each_event_once_in_several_threads(tmp_path: Path) -> None:
    """Faults, the observer and the round read the growing histories at the same time."""
    records, group = 2_000, "orders"
    progress = Progress(tmp_path, frozenset({group}))
    writer = h.HistoryWriter(tmp_path, "a")
    writer.write(h.Started(group=group, kind="poll", pid=1))
    is_written = threading.Event()

    def write() -> None:
        for number in range(records):
            writer.write(h.Received(partition=P0, offset=number, number=number, begun_ns=1))
        is_written.set()

    def read() -> None:
        while not is_written.is_set():
            progress.read()

    together(write, read, read)
    assert progress.read().received == {(P0, number) for number in range(records)}
