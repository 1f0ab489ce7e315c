"""The three readiness requests over the wire, against a socket with scripted responses."""

from __future__ import annotations

import queue
import socket
import struct
import threading

import pytest

from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.readiness import Probe, ProbeError, minor_line
from tests.support.waiting import PATIENCE_S


def answer(features: dict[str, int], *, code: int = 0) -> bytes:
    """Build an ApiVersions response with one API and an unknown tag before and after the features."""
    listed = b"".join(
        bytes([len(name) + 1]) + name.encode() + struct.pack(">hh", 1, top) + b"\0" for name, top in features.items()
    )
    supported = bytes([len(features) + 1]) + listed
    head = struct.pack(">h", code) + b"\x02" + struct.pack(">hhh", 18, 0, 4) + b"\0" + struct.pack(">i", 0)
    size = bytes([len(supported) & 0x7F | 0x80, len(supported) >> 7])  # two bytes, although one byte is enough
    return head + b"\x03" + b"\x00" + size + supported + b"\x01\x01\xff" + b"\x09\x02\xff\xff"


def framed(body: bytes) -> bytes:
    """Add length and correlation id to a response."""
    return struct.pack(">ii", len(body) + 4, 1) + body


def serve(reply: bytes) -> tuple[str, queue.Queue[bytes]]:
    """Answer one request with these bytes; return the address and a queue of the request."""
    server = socket.create_server(("127.0.0.1", 0))
    requests: queue.Queue[bytes] = queue.Queue()

    def run() -> None:
        with server, server.accept()[0] as connection:
            requests.put(connection.recv(1024))
            connection.sendall(reply)

    threading.Thread(target=run, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}", requests


def features(reply: bytes) -> dict[str, int]:
    """Return the features that are parsed from this response."""
    address, _ = serve(framed(reply))
    with Probe(address, PATIENCE_S) as probe:
        return probe.supported_features()


def test_supported_features_ignores_unknown_tags() -> None:
    """Tags and APIs of later versions are skipped."""
    wanted = {"group.version": 1, "metadata.version": 30}
    assert features(answer(wanted)) == wanted


def test_supported_features_raises_on_error_code() -> None:
    """A response with an error code raises an error, because the rest of the response has no meaning."""
    with pytest.raises(ProbeError, match="error code 35"):
        features(answer({}, code=35))


def test_supported_features_raises_on_truncated_response() -> None:
    """A truncated response never returns partial features."""
    whole = answer({"metadata.version": 30})
    for size in range(len(whole)):
        with pytest.raises(ProbeError, match="the response ends"):
            features(whole[:size])


def test_supported_features_sends_one_frame() -> None:
    """The frame is ApiVersions 3 without client id, with the software's name and version."""
    address, requests = serve(framed(answer({"metadata.version": 27})))
    with Probe(address, PATIENCE_S) as probe:
        assert probe.supported_features() == {"metadata.version": 27}
    frame = requests.get(timeout=PATIENCE_S)
    assert struct.unpack(">ihhih", frame[:14]) == (len(frame) - 4, 18, 3, 1, -1)
    assert frame[14:] == b"\0" + b"\x0adevbroker" + b"\x021" + b"\0"


def test_find_coordinator_requests_group_and_returns_address() -> None:
    """FindCoordinator 2 sends the group id and key type 0; the response has an address."""
    address, requests = serve(framed(struct.pack(">ihhih4si", 0, 0, -1, 2, 4, b"host", 9093)))
    with Probe(address, PATIENCE_S) as probe:
        assert probe.find_coordinator("orders") == (0, "host:9093")
    assert requests.get(timeout=PATIENCE_S)[4:] == struct.pack(">hhihh6sb", 10, 2, 1, -1, 6, b"orders", 0)


def test_find_coordinator_returns_code_of_missing_coordinator() -> None:
    """While the broker creates the offsets topic, it returns COORDINATOR_NOT_AVAILABLE without address."""
    address, _ = serve(framed(struct.pack(">ihhihi", 0, 15, -1, -1, 0, -1)))
    with Probe(address, PATIENCE_S) as probe:
        assert probe.find_coordinator("orders") == (15, ":-1")


@pytest.mark.parametrize("code", [0, 14, 16])
def test_describe_group_returns_error_code(code: int) -> None:
    """`describe_group` sends DescribeGroups 0 for one group, and returns the error code of the response."""
    address, requests = serve(framed(struct.pack(">ihh6s", 1, code, 6, b"orders")))
    with Probe(address, PATIENCE_S) as probe:
        assert probe.describe_group("orders") == code
    assert requests.get(timeout=PATIENCE_S)[4:] == struct.pack(">hhihih6s", 15, 0, 1, -1, 1, 6, b"orders")


@pytest.mark.parametrize(
    ("level", "line"), [(21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (33, "4.4"), (99, "unknown")]
)
def test_minor_line_maps_metadata_version(level: int, line: str) -> None:
    """A level that the table lacks is unknown, not the nearest line."""
    address, _ = serve(framed(answer({"metadata.version": level})))
    assert minor_line(address, 5) == line


@pytest.mark.parametrize("reply", [b"", b"\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", -1)])
def test_minor_line_raises_if_server_is_not_a_broker(reply: bytes) -> None:
    """If the server does not respond like a broker, the error names its address, because the port may be wrong."""
    address, _ = serve(reply)
    with pytest.raises(BrokerUnavailableError, match=f"{address} does not respond like a Kafka broker"):
        minor_line(address, 5)
