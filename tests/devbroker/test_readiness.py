"""The three questions that readiness asks over the wire, against a socket that answers by rote."""

from __future__ import annotations

import queue
import socket
import struct
import threading

import pytest

from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.readiness import Probe, ProbeError, minor_line


def answer(features: dict[str, int], *, code: int = 0) -> bytes:
    """An ApiVersions answer with one API, an unknown tag before the features and one behind them."""
    listed = b"".join(
        bytes([len(name) + 1]) + name.encode() + struct.pack(">hh", 1, top) + b"\0" for name, top in features.items()
    )
    supported = bytes([len(features) + 1]) + listed
    head = struct.pack(">h", code) + b"\x02" + struct.pack(">hhh", 18, 0, 4) + b"\0" + struct.pack(">i", 0)
    size = bytes([len(supported) & 0x7F | 0x80, len(supported) >> 7])  # two bytes, though one might do
    return head + b"\x03" + b"\x00" + size + supported + b"\x01\x01\xff" + b"\x09\x02\xff\xff"


def framed(body: bytes) -> bytes:
    """An answer as it comes over the wire: length and correlation id in front."""
    return struct.pack(">ii", len(body) + 4, 1) + body


def serve(reply: bytes) -> tuple[str, queue.Queue[bytes]]:
    """Answer one request with these bytes; the address, and the request once it has come."""
    server = socket.create_server(("127.0.0.1", 0))
    requests: queue.Queue[bytes] = queue.Queue()

    def run() -> None:
        with server, server.accept()[0] as connection:
            requests.put(connection.recv(1024))
            connection.sendall(reply)

    threading.Thread(target=run, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}", requests


def features(reply: bytes) -> dict[str, int]:
    """What is read from this answer."""
    address, _ = serve(framed(reply))
    with Probe(address, 5) as probe:
        return probe.supported_features()


def test_features_are_read_between_other_tags() -> None:
    """Tags and APIs of later versions do not get in the way."""
    wanted = {"group.version": 1, "metadata.version": 30}
    assert features(answer(wanted)) == wanted


def test_answer_with_an_error_code_is_refused() -> None:
    """An error leaves the rest of the answer without meaning."""
    with pytest.raises(ProbeError, match="error code 35"):
        features(answer({}, code=35))


def test_every_cut_answer_is_refused() -> None:
    """A half answer is never half a truth."""
    whole = answer({"metadata.version": 30})
    for size in range(len(whole)):
        with pytest.raises(ProbeError, match="the answer ends"):
            features(whole[:size])


def test_features_are_asked_for_in_one_frame() -> None:
    """The broker reads exactly what the length says: ApiVersions 3, no client id, name and version of the software."""
    address, requests = serve(framed(answer({"metadata.version": 27})))
    with Probe(address, 5) as probe:
        assert probe.supported_features() == {"metadata.version": 27}
    frame = requests.get(timeout=5)
    assert struct.unpack(">ihhih", frame[:14]) == (len(frame) - 4, 18, 3, 1, -1)
    assert frame[14:] == b"\0" + b"\x0adevbroker" + b"\x021" + b"\0"


def test_coordinator_is_asked_for_by_its_group() -> None:
    """FindCoordinator 2: the group's id and the type 0, which says group; the answer has an address."""
    address, requests = serve(framed(struct.pack(">ihhih4si", 0, 0, -1, 2, 4, b"host", 9093)))
    with Probe(address, 5) as probe:
        assert probe.find_coordinator("orders") == (0, "host:9093")
    assert requests.get(timeout=5)[4:] == struct.pack(">hhihh6sb", 10, 2, 1, -1, 6, b"orders", 0)


def test_missing_coordinator_is_an_error_code() -> None:
    """The answer of a broker that is still making the offsets topic: COORDINATOR_NOT_AVAILABLE and no address."""
    address, _ = serve(framed(struct.pack(">ihhihi", 0, 15, -1, -1, 0, -1)))
    with Probe(address, 5) as probe:
        assert probe.find_coordinator("orders") == (15, ":-1")


@pytest.mark.parametrize("code", [0, 14, 16])
def test_group_is_described_by_its_error_code(code: int) -> None:
    """DescribeGroups 0 for one group; what comes after the code does not matter."""
    address, requests = serve(framed(struct.pack(">ihh6s", 1, code, 6, b"orders")))
    with Probe(address, 5) as probe:
        assert probe.describe_group("orders") == code
    assert requests.get(timeout=5)[4:] == struct.pack(">hhihih6s", 15, 0, 1, -1, 1, 6, b"orders")


@pytest.mark.parametrize(
    ("level", "line"), [(21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (33, "4.4"), (99, "unknown")]
)
def test_metadata_version_tells_the_minor_line(level: int, line: str) -> None:
    """A line that the table does not have is unknown and not the nearest one."""
    address, _ = serve(framed(answer({"metadata.version": level})))
    assert minor_line(address, 5) == line


@pytest.mark.parametrize("reply", [b"", b"\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", -1)])
def test_something_else_than_a_broker_is_refused(reply: bytes) -> None:
    """A wrong port is named."""
    address, _ = serve(reply)
    with pytest.raises(BrokerUnavailableError, match=f"{address} does not answer as a Kafka broker"):
        minor_line(address, 5)
