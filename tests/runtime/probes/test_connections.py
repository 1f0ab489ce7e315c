"""Connections of probes: each is answered in time, however slow, numerous or malformed the other connections are."""

from __future__ import annotations

import errno
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from consumer_membership.config.settings import ListenAddress, ProbeSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.probes import connections
from consumer_membership.runtime.probes.connections import MOST_CONNECTIONS, _peer_of, _remedy, listening
from consumer_membership.runtime.probes.requests import LONGEST_HEAD
from consumer_membership.runtime.probes.thread import ProbeThread
from tests.runtime.probes.watched import HTTP, WatchedConsumer, ask, end, served_address
from tests.support.waiting import PATIENCE_S, PROCESS_S, wait_until


@pytest.fixture
def at() -> Iterator[ListenAddress]:
    """The address at which the consumer's probes are served."""
    probes, watched = ProbeThread(), WatchedConsumer()
    probes.attend(HTTP, watched)
    yield served_address(probes)
    end(probes, watched)


def caller(at: ListenAddress, data: bytes = b"") -> socket.socket:
    """Return a connection that has sent these bytes."""
    opened = socket.create_connection((at.host, at.port), PATIENCE_S)
    if data:
        opened.sendall(data)
    return opened


def received(opened: socket.socket) -> bytes:
    """Return all bytes that the connection receives until its end."""
    data = b""
    while chunk := opened.recv(65536):
        data += chunk
    return data


def status(opened: socket.socket) -> str:
    """Return the status code of the response."""
    return received(opened).decode("latin-1").split(" ")[1]


def test_probe_request_may_arrive_in_pieces(at: ListenAddress) -> None:
    """Bytes after the head of the request are not read."""
    with caller(at, b"GET /li") as opened:
        assert ask(at, "/livez")[0] == 200
        opened.sendall(b"vez HTTP/1.1\r\nHost: a\r\n")
        assert ask(at, "/livez")[0] == 200
        opened.sendall(b"\r\n" + 10_000 * b"more")
        assert status(opened) == "200"


def test_probe_answers_get_and_head_and_rejects_other_methods(at: ListenAddress) -> None:
    """Each response ends its connection."""
    code, body, answer = ask(at, "/livez", "HEAD")
    assert (code, body, int(answer.headers["content-length"]) > 0) == (200, "", True)
    assert (answer.headers["connection"], answer.will_close) == ("close", True)
    code, _, answer = ask(at, "/livez", "DELETE")
    assert (code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_probe_request_with_an_endless_head_is_rejected(at: ListenAddress) -> None:
    """The request is rejected as soon as its head is too long, whatever it contains."""
    with caller(at, b"GET /livez HTTP/1.1\r\nX: " + LONGEST_HEAD * b"x") as opened:
        assert status(opened) == "431"
    with caller(at, LONGEST_HEAD * b"\r\n" + b"\r\n") as opened:
        assert status(opened) == "431"


def test_probe_request_that_is_slow_gets_a_timeout_response(at: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time from the first byte of a request to its last byte is limited, however steadily the bytes arrive."""
    monkeypatch.setattr(connections, "CONNECTION_LIMIT_S", 0.2)
    with caller(at, b"GET /livez HTTP/1.1\r\n") as opened:
        opened.settimeout(0.01)
        data = b""
        while not data:
            try:
                opened.sendall(b"x")
                data = opened.recv(65536)
            except TimeoutError:
                pass
        assert data.startswith(b"HTTP/1.1 408 ")
    with caller(at) as silent:
        assert received(silent) == b""


def test_probe_is_answered_despite_a_thousand_silent_connections(at: ListenAddress) -> None:
    """The oldest connections are closed, so that few are open at any time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    crowd = [caller(at, b"GET /livez HT" if number % 2 else b"") for number in range(1_000)]
    try:
        assert [ask(at, path)[0] for path in ("/livez", "/readyz", "/health")] == [200, 200, 200]
        for opened in crowd[: 1_000 - MOST_CONNECTIONS]:
            with suppress(ConnectionResetError):  # it was closed before its bytes were read
                assert received(opened) == b""
    finally:
        for opened in crowd:
            opened.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_flood_from_one_host_does_not_end_another_hosts_probe(at: ListenAddress) -> None:
    """The host with the most connections loses some, so a probe from another host still gets its response."""
    with caller(at, b"GET /li") as probe:
        crowd = [
            socket.create_connection((at.host, at.port), PATIENCE_S, source_address=("127.0.0.2", 0))
            for _ in range(3 * MOST_CONNECTIONS)
        ]
        ended = [received(opened) for opened in crowd[: 2 * MOST_CONNECTIONS]]
        probe.sendall(b"vez HTTP/1.1\r\n\r\n")
        assert (status(probe), set(ended)) == ("200", {b""})
        for opened in crowd:
            opened.close()


@pytest.mark.parametrize(
    ("one", "other", "is_one_host"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_probe_hosts_are_distinguished_by_address_or_ipv6_network(*, one: str, other: str, is_one_host: bool) -> None:
    """A host can use any number of IPv6 addresses of its network."""
    assert (_peer_of(one) == _peer_of(other)) is is_one_host


def test_probe_response_that_is_not_read_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of megabytes waits for its reader as long as a request may take; other requests are answered meanwhile."""
    monkeypatch.setattr(connections, "CONNECTION_LIMIT_S", 0.5)
    probes, consumer = ProbeThread(lambda: (30_000_000 * b"x", "text/plain")), WatchedConsumer()
    probes.attend(HTTP, consumer)
    at = served_address(probes)
    with caller(at, b"GET /metrics HTTP/1.1\r\n\r\n") as opened:
        assert ask(at, "/livez")[0] == 200
        assert opened.recv(4) == b"HTTP"
        wait_until(
            lambda: probes._sockets is not None and not probes._sockets._connections,
            "the end of the connection",
        )
        opened.settimeout(PATIENCE_S)
        size = 0
        try:
            while chunk := opened.recv(65536):
                size += len(chunk)
        except ConnectionResetError:
            pass
        assert size < 30_000_000
    assert len(ask(at, "/metrics")[1]) == 30_000_000
    end(probes, consumer)


_FEW_FILES = """
import resource, socket, sys
from consumer_membership.runtime.probes.thread import ProbeThread
from tests.runtime.probes.watched import HTTP, WatchedConsumer, ask, end, served_address
probes, watched = ProbeThread(), WatchedConsumer()
probes.attend(HTTP, watched)
at = served_address(probes)
used = max(int(name) for name in __import__("os").listdir("/proc/self/fd"))
callers = [socket.socket() for _ in range(30)]
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, used + 40))
for one in callers:
    one.connect((at.host, at.port))
ends = [one.recv(1) for one in callers[:10]]
for one in callers:
    one.close()
print(ends == 10 * [b""], ask(at, "/livez")[0])
end(probes, watched)
"""


def test_probes_are_answered_in_a_process_without_free_descriptors() -> None:
    """Connections that cannot be accepted wait, and the oldest connection is closed for the next one."""
    done = subprocess.run(
        [sys.executable, "-c", _FEW_FILES], capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert (done.stdout, done.stderr) == ("True 200\n", "")


# ---- listening addresses ---------------------------------------------------------------------------------------------


def test_listening_on_a_port_in_use_raises_configuration_error() -> None:
    """The error has key, value and remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = ListenAddress(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(
            ConfigurationError, match=rf"health\.http\.address='{address}': port {address.port} is in use"
        ):
            listening(address)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "2001:db8::1"])
def test_listening_on_an_address_of_another_host_raises_configuration_error(host: str) -> None:
    """The rule also holds for an unknown host name."""
    with pytest.raises(ConfigurationError, match=r"is not an address of this host .*0\.0\.0\.0 or \[::\]"):
        listening(ListenAddress(host=host, port=8080))


def test_remedy_names_a_privileged_port() -> None:
    """The system refuses privileged ports only to processes without the right to use them; root has the right."""
    denied = PermissionError(errno.EACCES, "Permission denied")
    low, high = (ListenAddress(host="127.0.0.1", port=port) for port in (80, 8080))
    assert _remedy(low, denied) == "this process has no permission to listen on port 80; use port 1024 or higher"
    assert _remedy(high, denied) == (
        "this process cannot listen there ([Errno 13] Permission denied); use another address"
    )


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_listening_on_all_ipv6_addresses_also_serves_ipv4() -> None:
    """In a dual-stack cluster a pod listens on [::], whereas [::1] serves only IPv6."""
    probes, consumer = ProbeThread(), WatchedConsumer()
    everywhere, itself = (ListenAddress(host=host, port=0) for host in ("::", "::1"))
    for address in (everywhere, itself):
        probes.attend(ProbeSettings(address=address), consumer)
    for host in ("::1", "127.0.0.1"):
        assert ask(ListenAddress(host=host, port=served_address(probes, everywhere).port), "/livez")[0] == 200
    assert ask(served_address(probes, itself), "/livez")[0] == 200
    assert str(served_address(probes, itself)).startswith("[::1]:")
    end(probes, consumer)
