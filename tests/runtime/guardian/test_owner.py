"""The application's side: each process has one guardian, which is restarted and never delays it; also after forks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.runtime.guardian.owner import Guardian, GuardianProcess, _may_hold_stderr
from tests.runtime.guardian.leave_requests import HEARTBEAT, leave_request, script
from tests.runtime.guardian.processes import ROOT, Application, has_ended
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

#: An application whose members are leave requests: after `leaver("m")` the guardian has to leave for m.
PRELUDE = """
import logging, socket, time
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
from consumer_membership.runtime.guardian.owner import GUARDIAN as guardian
from tests.runtime.guardian.leave_requests import leave_request
place = (sys.argv[1], int(sys.argv[2]))
def leaver(name, key=None):
    guardian.update(key or guardian.new_key(), leave_request(place, member_id=name))
"""


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker that accepts every leave."""
    with ScriptedBroker(script(ErrorCode.none)) as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The application's stderr."""
    return tmp_path / "log"


def application(broker: ScriptedBroker, log: Path, program: str) -> Application:
    """An application that runs this program."""
    host, port = broker.servers[0]
    with log.open("ab") as stderr:
        return Application(PRELUDE + program, host, str(port), stderr=stderr)


def leavers(broker: ScriptedBroker, count: int) -> list[str]:
    """Wait until this many leaves have arrived, and return their members."""
    return sorted(request.entity.member_id for request in broker.wait_for(HEARTBEAT, count))


def test_guardian_serves_all_members_of_a_process(broker: ScriptedBroker, log: Path) -> None:
    """Each member has its leave request; the log reports the start of the guardian and its leaves."""
    with application(broker, log, "leaver('one'); leaver('two'); report('guardian', guardian.pid); order()") as app:
        guardian = app.process_named("guardian")
        assert psutil.Process(app.process.pid).children(recursive=True) == [guardian]
        app.kill()
        assert leavers(broker, 2) == ["one", "two"]
        wait_until(lambda: has_ended(guardian), "the guardian's end")
    started, *left = log.read_text().splitlines()
    assert started == (
        f"INFO consumer_membership.guardian Guardian process {guardian.pid} watches process {app.process.pid}"
    )
    assert len(left) == 2


def test_guardian_starts_with_the_first_member(broker: ScriptedBroker, log: Path) -> None:
    """A consumer that never joins starts no guardian."""
    with application(
        broker, log, "guardian.update(1, None); guardian.restart_and_send(); report(guardian.pid); order()"
    ) as app:
        assert app.read_words() == ["None"]
        assert psutil.Process(app.process.pid).children() == []


def test_guardian_that_died_is_started_again_with_all_leave_requests(broker: ScriptedBroker, log: Path) -> None:
    """The next event of any member starts the guardian again."""
    program = """
leaver("one", 1); leaver("gone", 2); leaver("two", 3)
before = guardian.pid
report("guardian", before)
order()
guardian.update(2, None)
while guardian.pid in (None, before):
    time.sleep(0.01)
    guardian.restart_and_send()
report("guardian", guardian.pid)
order()
"""
    with application(broker, log, program) as app:
        killed = app.process_named("guardian")
        killed.kill()
        wait_until(lambda: has_ended(killed), "the end of the killed guardian")
        app.order()
        assert not has_ended(app.process_named("guardian"))
        app.kill()
        assert leavers(broker, 2) == ["one", "two"]
    assert "ended unexpectedly (status 9); it can be started 4 more times" in log.read_text()


def test_guardian_that_the_application_waited_for_is_started_again(broker: ScriptedBroker, log: Path) -> None:
    """An application that waits for any child receives the guardian's exit status, and another guardian starts."""
    program = """
leaver("one", 1)
before = guardian.pid
os.kill(before, signal.SIGKILL)
assert os.wait()[0] == before
while guardian.pid in (None, before):
    time.sleep(0.01)
    guardian.restart_and_send()
report("guardian", guardian.pid)
order()
"""
    with application(broker, log, program) as app:
        assert not has_ended(app.process_named("guardian"))
        app.kill()
        assert leavers(broker, 1) == ["one"]
    assert "ended unexpectedly (the application collected its exit status)" in log.read_text()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no pidfd")
def test_guardian_takes_no_status_of_another_child_with_its_process_id() -> None:
    """After the application waited for the guardian, another child may have its process id and keeps its status."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = os.fstat(ours.fileno())
        dead = os.posix_spawn("/bin/true", ["true"], {})
        pidfd = os.pidfd_open(dead)
        os.waitpid(dead, 0)
        # This process has the process id now.
        other = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
        os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
        process = GuardianProcess(
            pid=other, pidfd=pidfd, descriptor=ours.fileno(), identity=(found.st_dev, found.st_ino)
        )
        assert process.end() == "the application collected its exit status"
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 7
        os.close(pidfd)


def test_guardian_without_a_pidfd_waits_only_for_a_child_that_closed_its_pipe() -> None:
    """Without pidfd, the application waits for the process only after the guardian has closed its end of the pipe."""
    ours, theirs = socket.socketpair()
    found = os.fstat(ours.fileno())
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    process = GuardianProcess(pid=child, pidfd=None, descriptor=ours.fileno(), identity=(found.st_dev, found.st_ino))
    with ours:
        assert process.end() is None
        theirs.close()
        assert [process.end(), process.end()] == ["status 7", "the application collected its exit status"]


def test_guardian_does_not_hold_the_pipes_of_its_application() -> None:
    """A program that reads an application's output until its end does not wait for the guardian."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        host, port = hanging.getsockname()
        program = (
            Application.PRELUDE + PRELUDE + "leaver('m'); report(guardian.pid)\nos.kill(os.getpid(), signal.SIGKILL)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, host, str(port)], check=False, cwd=ROOT, capture_output=True
        )
        # The guardian still waits for the broker's response.
        guardian = psutil.Process(int(done.stdout))
        try:
            assert not has_ended(guardian)
        finally:
            guardian.kill()


def test_guardian_holds_a_socket_as_stderr_only_for_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's stderr is a socket to systemd's journal, where its operator reads the log."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = os.fstat(ours.fileno())
        monkeypatch.setattr("consumer_membership.runtime.guardian.owner._STDERR", ours.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert _may_hold_stderr()
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        assert not _may_hold_stderr()


def test_guardians_broken_pipe_does_not_kill_an_application_with_default_sigpipe(
    broker: ScriptedBroker, log: Path, tmp_path: Path
) -> None:
    """A guardian that closed its end, or that dies during a write, breaks the pipe."""
    script = tmp_path / "script.py"
    script.write_text("import os, signal\nos.close(0)\nos.chdir('/')\nwhile True: signal.pause()")
    program = f"""
from pathlib import Path
from consumer_membership.runtime.guardian.owner import Guardian
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
guardian = Guardian(Path({str(script)!r}))
leaver("one", 1)
report("guardian", guardian.pid)
order()
leaver("two", 2)
report(guardian.pid)
"""
    with application(broker, log, program) as app:
        guardian = app.process_named("guardian")
        wait_until(lambda: guardian.cwd() == "/", "a guardian that has closed its end of the pipe")
        app.order()
        assert app.read_words() == ["None"]


def test_guardian_that_keeps_dying_is_started_five_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application continues without a guardian."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.owner._RESTART_PAUSE_S", 0.0)
    marks = tmp_path / "starts"
    failing = tmp_path / "script.py"
    failing.write_text(f"open({str(marks)!r}, 'a').write('x')")
    guardian = Guardian(failing)
    guardian.update(1, leave_request(("127.0.0.1", 1)))

    def is_over() -> bool:
        guardian.restart_and_send()
        return guardian.pid is None and marks.exists() and marks.read_text() == "x" * 5

    wait_until(is_over, "five starts")
    guardian.restart_and_send()
    assert guardian.pid is None


def test_guardian_that_is_stopped_blocks_no_call_and_receives_the_latest_update(
    broker: ScriptedBroker, log: Path
) -> None:
    """If the pipe is full, the latest update of each member is kept and sent as soon as the pipe accepts it."""
    program = """
leaver("one", 1)
report("guardian", guardian.pid)
order()
for number in range(2000):
    leaver(f"two-{number}", 2)
guardian.update(1, None)
report("queued")
order()
deadline = time.monotonic() + 60
while guardian._outbox or guardian._unsent:
    assert time.monotonic() < deadline
    guardian.restart_and_send(); time.sleep(0.01)
report("sent")
order()
"""
    with application(broker, log, program) as app:
        guardian = app.process_named("guardian")
        guardian.suspend()
        app.order()
        assert app.read_words() == ["queued"]
        guardian.resume()
        app.order()
        assert app.read_words() == ["sent"]
        app.kill()
        assert leavers(broker, 1) == ["two-1999"]
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert len(broker.requests(HEARTBEAT)) == 1


def test_guardians_descriptor_that_the_application_reused_is_not_written_to(broker: ScriptedBroker, log: Path) -> None:
    """If an application closes all descriptors and reuses the number, the guardian's updates are not written there.

    Another guardian starts.
    """
    program = """
leaver("one", 1)
first, number = guardian.pid, guardian._process.descriptor
report("guardian", first)
os.closerange(3, 64)
theirs, peer = socket.socketpair()
peer.setblocking(False)
os.dup2(theirs.fileno(), number)
while guardian.pid in (None, first):
    leaver("two", 2); time.sleep(0.01)
report("guardian", guardian.pid)
try:
    report(peer.recv(100))
except BlockingIOError:
    report("nothing")
order()
"""
    with application(broker, log, program) as app:
        first = app.process_named("guardian")
        second = app.process_named("guardian")
        assert app.read_words() == ["nothing"]
        assert not has_ended(first)
        app.kill()
        # The first guardian has only the first member and also leaves for it, which does no harm.
        assert leavers(broker, 3) == ["one", "one", "two"]
        wait_until(lambda: has_ended(first) and has_ended(second), "the end of both guardians")


def test_guardian_ignores_a_forked_child(broker: ScriptedBroker, log: Path) -> None:
    """The end of a multiprocessing worker causes no leave, and a live worker delays no leave."""
    program = """
leaver("one")
report("guardian", guardian.pid)
short = os.fork()
if short == 0:
    guardian.restart_and_send()
    sys.exit(0)
os.waitpid(short, 0)
child = os.fork()
if child == 0:
    assert guardian.pid is None and guardian._process is None
    report("child", os.getpid())
    while True: signal.pause()
order()
"""
    with application(broker, log, program) as app:
        guardian, child = app.process_named("guardian"), app.process_named("child")
        assert (has_ended(guardian), broker.requests()) == (False, [])
        app.kill()
        assert leavers(broker, 1) == ["one"]
        assert not has_ended(child)
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        child.kill()


def test_guardian_of_a_double_forked_daemon_is_its_own(broker: ScriptedBroker, log: Path) -> None:
    """Each guardian serves only the members of its own process."""
    program = """
leaver("one")
report("guardian", guardian.pid)
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    leaver("two")
    report("guardian", guardian.pid)
    report("daemon", os.getpid())
    while True: signal.pause()
os.waitpid(child, 0)
order()
"""
    with application(broker, log, program) as app:
        first, second = app.process_named("guardian"), app.process_named("guardian")
        daemon = app.process_named("daemon")
        daemon.kill()
        assert leavers(broker, 1) == ["two"]
        wait_until(lambda: has_ended(second), "the end of the daemon's guardian")
        assert not has_ended(first)
        app.kill()
        assert leavers(broker, 2) == ["one", "two"]


def test_guardian_sends_no_leave_after_exec_until_the_process_ends(broker: ScriptedBroker, log: Path) -> None:
    """After exec() the pipe is closed and the process continues; only the end of the process counts."""
    program = """
leaver("one")
report("guardian", guardian.pid)
os.execv(sys.executable, [sys.executable, "-S", "-c", "print('replaced', flush=True); input()"])
"""
    with application(broker, log, program) as app:
        guardian = app.process_named("guardian")
        assert app.read_words() == ["replaced"]
        assert (has_ended(guardian), broker.requests()) == (False, [])
        app.kill()
        assert leavers(broker, 1) == ["one"]


def test_guardian_survives_a_kill_of_the_process_group(broker: ScriptedBroker, log: Path) -> None:
    """The guardian has its own session, so `kill -9 -PGID` does not reach it."""
    with application(broker, log, "leaver('one'); report('guardian', guardian.pid); order()") as app:
        app.process_named("guardian")
        os.killpg(app.process.pid, signal.SIGKILL)
        assert leavers(broker, 1) == ["one"]


@pytest.mark.parametrize(
    ("attribute", "value"), [("executable", "/usr/sbin/uwsgi"), ("executable", ""), ("frozen", True)]
)
def test_guardian_is_not_started_without_a_python_interpreter(
    attribute: str, value: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a frozen application or a server that embeds Python, a warning is logged, and the consumer has no guardian."""
    monkeypatch.setattr(f"sys.{attribute}", value, raising=False)
    guardian = Guardian()
    guardian.update(1, leave_request(("127.0.0.1", 1)))
    assert guardian.pid is None
    assert "is not a Python interpreter" in caplog.text


def test_guardian_logs_a_warning_if_the_process_is_pid_1(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the init process of a PID namespace ends, the kernel kills every process in it."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.owner._INIT", os.getpid())
    guardian = Guardian()
    guardian.update(1, leave_request(broker.servers[0]))
    assert "This process is PID 1" in caplog.text
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGKILL)
    os.waitpid(guardian.pid, 0)
    guardian.reset()
