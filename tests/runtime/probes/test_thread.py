"""The probe thread of a process: shared by its consumers, started by the first and ended with the last.

The tests also cover forks and real consumers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from consumer_membership import Consumer, KafkaException
from consumer_membership.aio import AIOConsumer
from consumer_membership.config.settings import ListenAddress, ProbeSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.runtime.probes import health_file, thread
from consumer_membership.runtime.probes.thread import ProbeThread
from tests.runtime.probes.watched import HTTP, WatchedConsumer, ask, end, health_of, served_address
from tests.support.waiting import PATIENCE_S, PROCESS_S, wait_until

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "group.id": "orders", "log_level": 0}
ADDRESS = "127.0.0.1:0"
V = HealthVerdict


def answering() -> set[threading.Thread]:
    """Return the threads that answer probes."""
    return {one for one in threading.enumerate() if one.name == "membership probes"}


def served() -> ListenAddress:
    """Return the address at which this process's probes are served."""
    return thread.THIS_PROCESS.probes.served()[ADDRESS]


def is_free(at: ListenAddress) -> bool:
    """Return whether no process serves probes at this address."""
    try:
        ask(at, "/livez")
    except ConnectionRefusedError:
        return True
    return False


# ---- consumers in the report -----------------------------------------------------------------------------------------


def test_probe_address_is_shared_by_consumers_and_ends_with_the_last() -> None:
    """The address and its one thread exist until the last consumer is closed."""
    before = answering()
    probes, first, second = ProbeThread(), WatchedConsumer("a"), WatchedConsumer("b", V.JOINING)
    probes.attend(HTTP, first)
    at = served_address(probes)
    assert at.port > 0
    assert ask(at, "/readyz")[:2] == (200, "ready: yes\n[+] a/client idle: a test\n")
    probes.attend(HTTP, second)
    assert len(answering() - before) == 1
    assert ask(at, "/readyz")[:2] == (503, "ready: no\n[+] a/client idle: a test\n[-] b/client joining: a test\n")
    end(probes, first)
    assert ask(at, "/readyz")[:2] == (503, "ready: no\n[-] b/client joining: a test\n")
    end(probes, second)
    assert is_free(at)
    wait_until(lambda: answering() == before, "the end of the thread")


def test_probe_address_and_file_report_only_their_consumers(tmp_path: Path) -> None:
    """Two addresses and a file share one thread."""
    before = answering()
    probes, consumers = ProbeThread(), [WatchedConsumer(name) for name in "abc"]
    other = ListenAddress(host="localhost", port=0)
    path = tmp_path / "health.json"
    probes.attend(HTTP, consumers[0])
    probes.attend(ProbeSettings(address=other), consumers[1])
    probes.attend(ProbeSettings(address=other, file=str(path)), consumers[2])
    assert len(answering() - before) == 1

    def groups(text: str) -> list[str]:
        return [one["group_id"] for one in json.loads(text)["consumers"]]

    assert groups(ask(served_address(probes), "/health")[1]) == ["a"]
    assert groups(ask(served_address(probes, other), "/health")[1]) == ["b", "c"]
    assert groups(path.read_text()) == ["c"]
    end(probes, *consumers)
    assert not path.exists()
    wait_until(lambda: answering() == before, "the end of the thread")


def test_health_file_is_touched_while_no_restart_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a restart would help, the file's modification time stays unchanged, and its text has the reason."""
    monkeypatch.setattr(health_file, "WRITE_INTERVAL_S", 0.02)
    monkeypatch.setattr(thread, "WRITE_INTERVAL_S", 0.02)
    path = tmp_path / "health.json"
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(ProbeSettings(file=str(path)), watched)
    first = path.stat().st_mtime
    wait_until(lambda: path.stat().st_mtime > first, "a newer file")
    watched.now = health_of(V.NOT_POLLED, helps=True)
    wait_until(lambda: "not_polled" in path.read_text(), "the verdict in the file")
    modified_at, written = path.stat().st_mtime, path.read_text()
    wait_until(lambda: path.read_text() != written, "another text in the file")
    assert path.stat().st_mtime == modified_at
    end(probes, watched)


def test_probes_end_with_a_consumer_that_was_dropped() -> None:
    """The probe thread keeps no consumer alive, and the finalizer only wakes the thread."""
    before = answering()
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(HTTP, watched)
    at = served_address(probes)
    (running,) = answering() - before
    del watched
    probes.ring()
    running.join(PATIENCE_S)
    assert is_free(at)


def test_probes_are_answered_while_another_thread_is_busy() -> None:
    """Python gives each thread its turn; only code that holds the GIL would delay a response."""
    probes, watched, is_over = ProbeThread(), WatchedConsumer(), threading.Event()
    probes.attend(HTTP, watched)
    busy = threading.Thread(target=lambda: [None for _ in iter(is_over.is_set, True)])
    busy.start()
    assert [ask(served_address(probes), "/livez")[0] for _ in range(5)] == [200] * 5
    is_over.set()
    busy.join()
    end(probes, watched)


def test_probe_address_can_be_reused_at_once() -> None:
    """A consumer that is created after the last close gets the address, on another thread."""
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(HTTP, watched)
    at = served_address(probes)
    end(probes, watched)
    for _ in range(20):
        again = WatchedConsumer()
        probes.attend(ProbeSettings(address=at), again)
        assert ask(at, "/livez")[0] == 200
        end(probes, again)
        assert is_free(at)


def test_probe_address_is_closed_if_the_health_file_raises(tmp_path: Path) -> None:
    """Every resource that was opened for a consumer whose constructor raises is closed."""
    before = answering()
    probes, watched = ProbeThread(), WatchedConsumer()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        probes.attend(ProbeSettings(address=HTTP.address, file=str(tmp_path)), watched)
    assert (probes.served(), answering()) == ({}, before)


def test_probe_thread_survives_a_consumer_whose_health_raises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The response refers to the log, and a later request may succeed."""
    monkeypatch.setattr(thread, "WRITE_INTERVAL_S", 0.02)
    monkeypatch.setattr(thread, "_ERROR_PAUSE_S", 0.01)
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(ProbeSettings(address=HTTP.address, file=str(tmp_path / "health.json")), watched)
    watched.now = None
    assert ask(served_address(probes), "/livez")[0] == 500
    wait_until(lambda: "the thread continues" in caplog.text, "the fault in the log")
    watched.now = health_of(V.IDLE)
    assert ask(served_address(probes), "/livez")[0] == 200
    end(probes, watched)


# ---- fork ------------------------------------------------------------------------------------------------------------

_FORK = """
import os, signal, sys
from consumer_membership.config.settings import ProbeSettings
from consumer_membership.runtime.probes.thread import THIS_PROCESS
from tests.runtime.probes.watched import LOOPBACK, WatchedConsumer, ask, end, served_address
parent = WatchedConsumer("parent")
settings = ProbeSettings(address=LOOPBACK, file=sys.argv[1])
THIS_PROCESS.probes.attend(settings, parent)
at = served_address(THIS_PROCESS.probes)
ask(at, "/livez")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    inherited = THIS_PROCESS.probes.served()
    own = WatchedConsumer("child")
    THIS_PROCESS.probes.attend(ProbeSettings(address=LOOPBACK), own)
    mine = served_address(THIS_PROCESS.probes)
    os.write(writer, f"{inherited} {ask(mine, '/livez')[1].split()[3]} {ask(at, '/livez')[1].split()[3]}".encode())
    signal.pause()
print(os.read(reader, 100).decode())
end(THIS_PROCESS.probes, parent)
try:
    ask(at, "/livez")
except ConnectionRefusedError:
    print("free")
again = WatchedConsumer("parent")
THIS_PROCESS.probes.attend(ProbeSettings(address=at, file=sys.argv[1]), again)
print(ask(at, "/livez")[1].split()[3])
end(THIS_PROCESS.probes, again)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_serves_only_its_own_consumers_and_frees_the_parents_address(tmp_path: Path) -> None:
    """The parent's address and file are free when the parent closes them, however long the child lives."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, str(tmp_path / "health.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_S, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["{} child/client parent/client", "free", "parent/client"]


# ---- consumers -------------------------------------------------------------------------------------------------------


def test_consumer_serves_probes_until_it_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a broker the consumer is not ready, but a restart would not help. The log has the port."""
    caplog.set_level(logging.INFO, "consumer_membership.session")
    path = tmp_path / "health.json"
    before = answering()
    config = {**NO_BROKER, "health.http.address": ADDRESS, "health.file": str(path), "client.id": "pod-7"}
    with Consumer(config) as consumer:
        at = served()
        assert f"Serving probes at http://{at}: /livez, /readyz, /health, /metrics" in caplog.text
        assert ask(at, "/livez")[:2] == (
            200,
            "live: yes\n[+] orders/pod-7 starting: no subscription and no assignment\n",
        )
        consumer.subscribe(["orders"])
        wait_until(
            lambda: "joining" in ask(at, "/readyz")[1], "a member that joins", between=lambda: consumer.poll(0.01)
        )
        assert ask(at, "/readyz")[0] == 503
        status, metrics, answer = ask(at, "/metrics")
        assert (status, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
        assert 'client_id="pod-7"' in metrics
        (reported,) = json.loads(ask(at, "/health")[1])["consumers"]
        assert (reported["state"], reported["would_restart_help"]) == ("JOINING", False)
        assert json.loads(path.read_text())["live"] is True
    assert is_free(at)
    assert not path.exists()
    wait_until(lambda: answering() == before, "the end of the thread")


def test_consumers_of_several_groups_are_reported_together() -> None:
    """Each consumer leaves the report when it is closed."""
    groups = ["a", "b", "c"]
    consumers = [Consumer({**NO_BROKER, "group.id": name, "health.http.address": ADDRESS}) for name in groups]
    at = served()
    for number, consumer in enumerate(consumers):
        assert [one["group_id"] for one in json.loads(ask(at, "/livez", headers={"Accept": "application/json"})[1])
                ["consumers"]] == groups[number:]  # fmt: skip
        consumer.close()
    assert is_free(at)


def test_dropped_consumer_frees_its_address_and_file(tmp_path: Path) -> None:
    """A dropped consumer frees its resources as a closed one does."""
    path = tmp_path / "health.json"
    before = answering()
    consumer = Consumer({**NO_BROKER, "health.http.address": ADDRESS, "health.file": str(path)})
    at = served()
    (running,) = answering() - before
    del consumer
    gc.collect()
    running.join(PATIENCE_S)
    assert is_free(at)
    assert not path.exists()


def test_asyncio_consumer_serves_probes_while_its_loop_is_blocked() -> None:
    """The probe thread answers, so a blocked event loop does not delay the response."""

    async def run() -> tuple[int, ListenAddress]:
        consumer = AIOConsumer({**NO_BROKER, "health.http.address": ADDRESS})
        at = served()
        status = ask(at, "/livez")[0]  # this call blocks the loop
        await consumer.close()
        return status, at

    status, at = asyncio.run(run())
    assert status == 200
    assert is_free(at)


def test_consumer_raises_for_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor raises, names the environment variable if there is one, and leaves no thread."""
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(HTTP, watched)
    at = served_address(probes)
    before = set(threading.enumerate())
    with pytest.raises(KafkaException, match=f"health.http.address='{at}': port {at.port} is in use"):
        Consumer({**NO_BROKER, "health.http.address": str(at)})
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS", str(at))
    with pytest.raises(KafkaException, match="CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS"):
        Consumer(NO_BROKER)
    gc.collect()
    assert {one.name for one in set(threading.enumerate()) - before} == set()
    end(probes, watched)


_WITHOUT = """
import sys, threading
from consumer_membership import Consumer
with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "orders", "log_level": 0}) as consumer:
    consumer.subscribe(["orders"])
    print([name for name in sys.modules if name.startswith(("consumer_membership.runtime.probes", "http.server"))])
    print(sorted(one.name for one in threading.enumerate() if "probes" in one.name or "health" in one.name))
"""


def test_consumer_without_probe_keys_imports_no_probe_module() -> None:
    """Without the keys, a consumer also starts no probe thread."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")
