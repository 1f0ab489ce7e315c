"""SIGUSR2: each consumer with `recorder.signal.enable` writes a recording, and the program's own handler also runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_membership.recorder.recording import read
from tests.support.waiting import PROCESS_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="Windows has no SIGUSR2"),
]

_PROGRAM = """
import os, signal, sys, threading
from consumer_membership import Consumer

handled = []
signal.signal(signal.SIGUSR2, lambda number, frame: handled.append(number))
config = {"bootstrap.servers": "127.0.0.1:1", "recorder.directory": sys.argv[1], "log_level": 0}
wanted = [Consumer({**config, "group.id": f"wanted-{n}", "recorder.signal.enable": True}) for n in range(2)]
other = Consumer({**config, "group.id": "other"})
late = []
thread = threading.Thread(target=lambda: late.append(Consumer({**config, "group.id": "late",
    "recorder.signal.enable": True})))
thread.start()
thread.join()
before = set(threading.enumerate())
os.kill(os.getpid(), signal.SIGUSR2)
for thread in set(threading.enumerate()) - before:
    thread.join()
print(handled == [signal.SIGUSR2])
for consumer in (*wanted, other, *late):
    consumer.close()
"""


def test_dump_signal_makes_each_enabled_consumer_write_a_recording(tmp_path: Path) -> None:
    """Other threads write the recordings. A consumer created outside the main thread logs that the key is ignored."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    recordings = sorted(tmp_path.iterdir())
    assert [path.name.split("-2")[0] for path in recordings] == ["wanted-0", "wanted-1"]
    assert [read(path).cause for path in recordings] == ["SIGUSR2", "SIGUSR2"]
    assert "recorder.signal.enable=true is ignored" in done.stderr


_REPLACED_HANDLER = """
import os, signal, sys, threading
from consumer_membership import Consumer

config = {"bootstrap.servers": "127.0.0.1:1", "recorder.directory": sys.argv[1], "log_level": 0}
first = Consumer({**config, "group.id": "first", "recorder.signal.enable": True})
ours = signal.getsignal(signal.SIGUSR2)
signal.signal(signal.SIGUSR2, lambda number, frame: ours(number, frame))
second = Consumer({**config, "group.id": "second", "recorder.signal.enable": True})
before = set(threading.enumerate())
os.kill(os.getpid(), signal.SIGUSR2)
for thread in set(threading.enumerate()) - before:
    thread.join()
for consumer in (first, second):
    consumer.close()
"""


def test_dump_signal_whose_handler_is_wrapped_records_each_consumer_once(tmp_path: Path) -> None:
    """A consumer created after a program wrapped the handler installs another one; each consumer writes one file."""
    done = subprocess.run(
        [sys.executable, "-c", _REPLACED_HANDLER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name.split("-2")[0] for path in tmp_path.iterdir()) == ["first", "second"]
