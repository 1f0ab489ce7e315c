"""The guardian process: when it sends leave requests, and its resources. The parents here are small programs."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.config import SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.runtime.guardian import script as script_module
from consumer_membership.runtime.guardian.leave_requests import line_of
from tests.runtime.guardian.leave_requests import HEARTBEAT, leave_request, script
from tests.runtime.guardian.processes import Application, has_ended, maps, pss_bytes, sleeps_again
from tests.runtime.guardian.sasl_script import SaslScript
from tests.support.scripted_broker import ScriptedBroker
from tests.support.secured import Materials, server_context
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

SCRIPT = script_module.__file__
TLS = TlsSettings(ca_location="/ca")
SASL = SaslSettings(mechanism=SaslMechanism.SCRAM_SHA_512, username="alice", password="pencil")  # noqa: S106
#: A parent that starts the guardian, sends it the bytes of its argument, and then runs the test's program.
PARENT = """
import base64, socket, subprocess
ours, theirs = socket.socketpair()
start = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid())]
pidfd = [os.pidfd_open(os.getpid())] if sys.argv[2] == "pidfd" else []
guardian = subprocess.Popen(start + [str(fd) for fd in pidfd], stdin=theirs.fileno(), pass_fds=pidfd)
theirs.close()
ours.sendall(base64.b64decode(sys.argv[3]))
report("guardian", guardian.pid)
"""


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker that accepts every leave."""
    with ScriptedBroker(script(ErrorCode.none)) as running:
        yield running


@pytest.fixture(params=["pidfd", "getppid"])
def way(request: pytest.FixtureRequest) -> str:
    """Each way in which the guardian can detect the death of its parent."""
    if request.param == "pidfd" and not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfd")
    return str(request.param)


def parent(broker: ScriptedBroker, what: str = "order()", way: str = "getppid", **more: Any) -> Application:
    """Return a parent with one member, "m", and one member that left, "gone"."""
    place = broker.servers[0]
    data = (
        line_of(1, leave_request(place, broker.servers))
        + line_of(2, leave_request(place, member_id="gone"))
        + line_of(2, None)
    )
    return Application(PARENT + what, SCRIPT, way, base64.b64encode(data).decode(), **more)


def leavers(broker: ScriptedBroker) -> list[str]:
    """Return the members whose leaves arrived."""
    return [request.entity.member_id for request in broker.requests(HEARTBEAT)]


def waits_for_input(guardian: psutil.Process) -> bool:
    """Return whether the guardian waits for input; then it also ignores signals."""
    return guardian.status() == psutil.STATUS_SLEEPING and guardian.cwd() == "/"


def test_guardian_leaves_for_a_killed_process(broker: ScriptedBroker, way: str) -> None:
    """The guardian leaves once for the member that had not left, and then ends."""
    with parent(broker, way=way) as application:
        guardian = application.process_named("guardian")
        application.kill()
        broker.wait_for(HEARTBEAT)
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert leavers(broker) == ["m"]


def test_guardian_sends_no_request_after_a_clean_end(broker: ScriptedBroker, way: str) -> None:
    """The guardian ends with an application whose members left, and sends no request."""
    with parent(broker, "ours.sendall(base64.b64decode(order())); order()", way) as application:
        guardian = application.process_named("guardian")
        application.order(base64.b64encode(line_of(1, None)).decode())
        application.order()
        assert application.process.wait(PATIENCE_S) == 0
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert broker.requests() == []


def test_guardian_ignores_the_closed_pipe_of_a_living_process(broker: ScriptedBroker, way: str) -> None:
    """An application that closes all its descriptors is alive; its later death is still detected."""
    with parent(broker, "order(); os.closerange(3, 256); report('closed'); order()", way) as application:
        guardian = application.process_named("guardian")
        wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
        woke = sleeps_again(guardian)
        application.order()
        assert application.read_words() == ["closed"]
        wait_until(woke, "a reaction of the guardian to the closed pipe")
        assert broker.requests() == []
        application.kill()
        broker.wait_for(HEARTBEAT)


@pytest.mark.parametrize("fork", ["os.fork()", "__import__('ctypes').CDLL(None).fork()"])
def test_guardian_leaves_although_a_living_child_holds_the_pipe(broker: ScriptedBroker, way: str, fork: str) -> None:
    """A forked child inherits the other end of the pipe, but only the parent's death counts."""
    what = f"""
child = {fork}
if child == 0:
    while True: signal.pause()
report("child", child)
order()
"""
    with parent(broker, what, way) as application:
        application.process_named("guardian")
        child = application.process_named("child")
        application.kill()
        broker.wait_for(HEARTBEAT)
        assert not has_ended(child)
        child.kill()


def test_guardian_does_not_leave_for_a_stopped_process(broker: ScriptedBroker, way: str) -> None:
    """After SIGSTOP the guardian reads the earlier updates and waits."""
    with parent(broker, "order()", way) as application:
        guardian = application.process_named("guardian")
        wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
        stopped = psutil.Process(application.process.pid)
        stopped.suspend()
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the stop of the application")
        if way == "getppid":
            wait_until(sleeps_again(guardian), "a check by the guardian")
        assert (broker.requests(), has_ended(guardian)) == ([], False)
        stopped.kill()
        broker.wait_for(HEARTBEAT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_guardian_ignores_signals_for_the_application(broker: ScriptedBroker, number: int) -> None:
    """The guardian continues after a signal, because the application may still be killed while it closes."""
    with parent(broker) as application:
        guardian = application.process_named("guardian")
        wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
        guardian.send_signal(number)
        application.kill()
        broker.wait_for(HEARTBEAT)


def test_guardian_leaves_for_a_parent_that_died_before_its_start(broker: ScriptedBroker, way: str) -> None:
    """The guardian finds another parent process and a closed pipe, and leaves for the members in the updates."""
    with parent(broker, "os.kill(os.getpid(), signal.SIGKILL)", way):
        broker.wait_for(HEARTBEAT)
        assert leavers(broker) == ["m"]


@pytest.mark.parametrize(
    ("what", "log"), [("os.close(2)", "/dev/null"), ("a, b = os.pipe(); os.dup2(b, 2); os.close(a)", "pipe:")]
)
def test_guardian_leaves_without_a_usable_stderr(broker: ScriptedBroker, what: str, log: str) -> None:
    """Stderr may be closed, so that a socket could get its descriptor number, or a pipe that no process reads."""
    before_start = PARENT.replace("ours, theirs", f"{what}\nours, theirs")
    line = line_of(1, leave_request(broker.servers[0]))
    with Application(before_start + "order()", SCRIPT, "getppid", base64.b64encode(line).decode()) as application:
        guardian = application.process_named("guardian")
        wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
        assert str(Path(f"/proc/{guardian.pid}/fd/2").readlink()).startswith(log)
        application.kill()
        broker.wait_for(HEARTBEAT)
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert leavers(broker) == ["m"]


def test_guardian_logs_its_leave_in_one_line(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The line on the application's stderr names the member, the reason, the leave and the coordinator."""
    log = tmp_path / "log"
    with log.open("wb") as stderr, parent(broker, stderr=stderr) as application:
        guardian = application.process_named("guardian")
        application.kill()
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        pid, (host, port) = application.process.pid, broker.servers[0]
    (line,) = log.read_text().splitlines()
    assert line.split(" ", 2)[2] == (
        f"INFO consumer_membership.guardian: member m of group orders: its process {pid} died; "
        f"left on its behalf (epoch -1) at coordinator {host}:{port}"
    )


def test_guardian_process_is_small_and_opens_no_port(broker: ScriptedBroker) -> None:
    """The waiting guardian has less than 25 MB of resident memory, no librdkafka, no port and no connection."""
    with parent(broker) as application:
        guardian = application.process_named("guardian")
        wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
        assert guardian.net_connections("inet") == []
        assert guardian.memory_info().rss < 25e6, (guardian.memory_info().rss, pss_bytes(guardian))
        assert "rdkafka" not in maps(guardian)
        assert [name for name in ("kio", "pydantic", "asyncio", "confluent") if name in maps(guardian)] == []


def test_guardian_leaves_over_tls_with_the_password_of_a_killed_process(
    secured_materials: Materials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian still has less than 25 MB; arguments, environment, files and log contain no secret."""
    made = secured_materials
    (place := tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    tls = TlsSettings(
        ca_pem=made.ca_pem,
        certificate_pem=made.client_cert_pem,
        key_pem=made.encrypted_key_pem,
        key_password=made.encrypted_key_password,
    )
    context = server_context(made, tmp_path, wants_certificate=True)
    sasl_script = SaslScript(script(ErrorCode.none), SASL.mechanism.value)
    log = tmp_path / "log"
    with ScriptedBroker(sasl_script, tls=context) as broker, log.open("wb") as stderr:
        line = line_of(1, leave_request(broker.servers[0], tls=tls, sasl=SASL))
        program = PARENT + "ours.sendall(base64.b64decode(order())); order()"
        with Application(program, SCRIPT, "pidfd", "", stderr=stderr) as application:
            guardian = application.process_named("guardian")
            wait_until(lambda: waits_for_input(guardian), "a waiting guardian")
            has_read = sleeps_again(guardian)
            application.order(base64.b64encode(line).decode())
            wait_until(has_read, "the leave request in the guardian")
            assert guardian.memory_info().rss < 25e6, (guardian.memory_info().rss, pss_bytes(guardian))
            seen = [*guardian.cmdline(), *guardian.environ().values()]
            application.kill()
            broker.wait_for(HEARTBEAT)
            wait_until(lambda: has_ended(guardian), "the guardian's end")
    assert list(place.iterdir()) == []
    seen.append(log.read_text())
    assert "left on its behalf (epoch -1)" in seen[-1]
    secrets = (SASL.password, made.encrypted_key_password, "PRIVATE KEY")
    assert [text for text in seen for secret in secrets if secret in text] == []


#: Ends a guardian at the first pause between two attempts, and prints the modules that it has imported, without the
#: standard library except `ssl` and `hashlib`.
MODULES = """
import sys, atexit, time
time.sleep = lambda _: sys.exit()
sys.argv = [sys.argv[1], "1"]
known = sys.stdlib_module_names - {"ssl", "hashlib"} | {"__main__"}
atexit.register(lambda: print(*sorted(n for n in sys.modules if n.partition(".")[0] not in known)))
import runpy; runpy.run_path(sys.argv[0], run_name="__main__")
"""
OURS = "consumer_membership"
OF_ALL = [
    OURS,
    f"{OURS}.config",
    f"{OURS}.runtime",
    f"{OURS}.runtime.guardian",
    f"{OURS}.runtime.guardian.asking",
    f"{OURS}.runtime.guardian.leaving",
    f"{OURS}.runtime.guardian.process",
    f"{OURS}.runtime.guardian.watch",
    f"{OURS}.runtime.guardian.leave_requests",
    f"{OURS}.wire",
    *(f"{OURS}.{name}" for name in ("errors", "wire.codec", "wire.messages")),
    *(f"{OURS}.wire.{name}" for name in ("schema", "serial", "versions")),
]
OF_TLS = [
    f"{OURS}.config.authorities",
    f"{OURS}.config.settings",
    f"{OURS}.light_dataclasses",
    f"{OURS}.runtime.guardian.encryption",
    f"{OURS}.runtime.network",
    f"{OURS}.runtime.network.identity",
    f"{OURS}.runtime.network.tls",
    "hashlib",
]
OF_SASL = [
    f"{OURS}.config.settings",
    f"{OURS}.light_dataclasses",
    f"{OURS}.runtime.guardian.authentication",
    f"{OURS}.runtime.network",
    f"{OURS}.runtime.network.passwords",
    f"{OURS}.wire.authentication",
    f"{OURS}.wire.sasl",
    "hashlib",
]


@pytest.mark.parametrize(
    ("tls", "sasl", "expected"),
    [
        pytest.param(None, None, OF_ALL, id="plaintext"),
        pytest.param(TLS, None, {*OF_ALL, *OF_TLS, "ssl"}, id="ssl"),
        pytest.param(None, SASL, {*OF_ALL, *OF_SASL}, id="sasl_plaintext"),
        pytest.param(TLS, SASL, {*OF_ALL, *OF_TLS, *OF_SASL, "ssl"}, id="sasl_ssl"),
    ],
)
def test_guardian_imports_only_the_standard_library_and_a_few_modules(
    tls: TlsSettings | None, sasl: SaslSettings | None, expected: Iterable[str]
) -> None:
    """More imports would make it large and slow; TLS and SASL are imported only for leave requests that need them."""
    request = leave_request(("127.0.0.1", 1), tls=tls, sasl=sasl)
    # The guardian of a process that is not its parent acts immediately. It reads the request first; the line about the
    # member's leave follows in a later read, because more bytes than one read are between the two.
    lines = line_of(1, request) + b"-" * (1 << 17) + b"\n" + line_of(1, None)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MODULES, SCRIPT],
        check=True,
        capture_output=True,
        input=lines,
    )
    assert done.stdout.decode().split() == sorted(expected)
