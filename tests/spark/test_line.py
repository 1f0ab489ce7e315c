"""The authenticated line between a driver and a task: its frames alone, and its handshake over real connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.spark.line import (
    BROKEN,
    LINE_VERSION,
    AuthenticatedLine,
    Caller,
    LineVersionError,
    RefusedFrameError,
    Seal,
    Side,
    admit,
    call,
)
from tests.spark.relay import Relay
from tests.support.waiting import PATIENCE_S

SECRET = "5e" * 32
CALLER = Caller(instance=3, attempt=(1 << 60) + 1)
#: Longer than any test, so that no call ends because of this timeout.
NEVER_S = 3600.0
NONCES: dict[Side, str] = {"driver": "0" * 32, "task": "1" * 32}

count = st.integers(0, 5)


def written(secret: str = SECRET, sender: Side = "driver", nonces: dict[Side, str] = NONCES) -> list[bytes]:
    """Six frames."""
    seal = Seal(secret, sender, nonces)
    return [seal.sealed({"order": number}) for number in range(6)]


def read(frames: list[bytes]) -> list[int]:
    """The numbers in the frames that a task accepts, up to the first one that it refuses."""
    seal, numbers = Seal(SECRET, "driver", NONCES), []
    for frame in frames:
        try:
            numbers.append(int(str(seal.opened(frame)["order"])))
        except RefusedFrameError:
            break
    return numbers


@given(count, st.integers(0, 10_000), st.integers(1, 255))
def test_altered_frame_is_refused(number: int, place: int, difference: int) -> None:
    """If any byte of a frame changes, the frame and its successors are refused; earlier frames are accepted."""
    frames = written()
    altered = bytearray(frames[number])
    altered[place % len(altered)] ^= difference
    assert read([*frames[:number], bytes(altered), *frames[number + 1 :]]) == list(range(number))


@given(st.lists(count, max_size=8))
def test_frames_are_accepted_only_in_their_order(order: list[int]) -> None:
    """A repeated, omitted or moved frame is refused, and so is every frame after it."""
    frames = written()
    in_order = next((place for place, number in enumerate(order) if place != number), len(order))
    assert read([frames[number] for number in order]) == list(range(in_order))


@pytest.mark.parametrize(
    "frames",
    [
        written("6f" * 32),
        written(sender="task"),
        written(nonces={**NONCES, "driver": "2" * 32}),
        written(nonces={**NONCES, "task": "2" * 32}),
        [b'{"order": "stop"}', b" ", b""],
    ],
)
def test_frame_of_another_run_direction_or_connection_is_refused(frames: list[bytes]) -> None:
    """A key belongs to one secret, one direction and the two nonces of one connection."""
    assert (read(written()), read(frames)) == ([0, 1, 2, 3, 4, 5], [])


def test_line_authenticates_both_ends_without_sending_the_secret() -> None:
    """Objects arrive in order in both directions, and the secret is never sent in any form."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Relay(listener.getsockname()) as relay,
        ThreadPoolExecutor() as pool,
        socket.create_connection(relay.address) as near,
        listener.accept()[0] as far,
    ):
        admitted = pool.submit(admit, far, SECRET, PATIENCE_S)
        task, driver = call(near, SECRET, CALLER, PATIENCE_S), admitted.result(PATIENCE_S)
        assert driver.caller == CALLER
        driver.send({"order": "stop"})
        task.send({"progress": 1})
        task.send({"progress": 2})
        reports = driver.received()
        assert next(task.received()) == {"order": "stop"}
        assert [next(reports), next(reports)] == [{"progress": 1}, {"progress": 2}]
        task.hang_up()
        assert next(reports, None) is None
    passed = relay.passed("task") + relay.passed("driver")
    assert b'"instance": 3' in passed
    assert SECRET.encode() not in passed
    assert bytes.fromhex(SECRET) not in passed


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The driver's and the peer's end of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        driver, _ = listener.accept()
    with driver, peer:
        yield driver, peer


def test_call_returns_after_the_driver_has_registered_the_task(ends: tuple[socket.socket, socket.socket]) -> None:
    """A task goes on, and can fence its predecessor, only after the driver has registered it."""
    driver, peer = ends
    noted: list[Caller] = []
    is_noting, may_go_on = threading.Event(), threading.Event()

    def note(caller: Caller) -> None:
        noted.append(caller)
        is_noting.set()
        assert may_go_on.wait(PATIENCE_S)

    with ThreadPoolExecutor() as pool:
        admitted = pool.submit(admit, driver, SECRET, PATIENCE_S, note)
        called = pool.submit(call, peer, SECRET, CALLER, PATIENCE_S)
        assert is_noting.wait(PATIENCE_S)
        assert (noted, called.done()) == ([CALLER], False)
        may_go_on.set()
        assert (admitted.result(PATIENCE_S).caller, called.result(PATIENCE_S).caller) == (CALLER, CALLER)


@pytest.mark.parametrize(
    "sent",
    [
        b"x" * 5_000,
        b"[" * 1_000 + b"\n",
        b"\n",
        b"[]\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"line": %d, "nonce": "short"}\n' % LINE_VERSION,
        b'{"line": %d, "nonce": 7}\n' % LINE_VERSION,
        b'{"line": %d, "nonce": "%s"}\n' % (LINE_VERSION, b"0" * 32) + b"x" * 5_000,
        b'{"line": %d, "nonce": "%s"}\n{"instance": 0, "attempt": 1}\n' % (LINE_VERSION, b"0" * 32),
    ],
)
def test_admit_refuses_invalid_handshakes_without_waiting(
    ends: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    """`admit` reads a bounded number of bytes and refuses an invalid handshake before its timeout."""
    driver, peer = ends
    peer.sendall(sent)
    with pytest.raises(BROKEN):
        admit(driver, SECRET, NEVER_S)


def test_admit_bounds_the_handshake_as_a_whole(ends: tuple[socket.socket, socket.socket]) -> None:
    """A peer that sends single bytes gets no more time than a silent peer."""
    driver, peer = ends
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.02):
            peer.sendall(b" ")

    with ThreadPoolExecutor() as pool:
        dripping = pool.submit(drip)
        try:
            with pytest.raises(TimeoutError):
                admit(driver, SECRET, 0.2)
        finally:
            is_over.set()
        dripping.result(PATIENCE_S)


@pytest.mark.parametrize(
    "introduced",
    [lambda end: admit(end, SECRET, NEVER_S), lambda end: call(end, SECRET, CALLER, NEVER_S)],
    ids=["driver", "task"],
)
def test_other_line_version_raises_an_error_with_both_versions(
    ends: tuple[socket.socket, socket.socket], introduced: Callable[[socket.socket], AuthenticatedLine]
) -> None:
    """The error has both versions of the package and the remedy."""
    mine, theirs = ends
    theirs.sendall(b'{"line": 9, "package": "8.7.6", "nonce": "%s"}\n' % (b"0" * 32))
    with pytest.raises(
        LineVersionError, match=r"consumer-membership '8\.7\.6'.*install the same version on the driver"
    ):
        introduced(mine)
