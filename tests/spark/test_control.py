"""The line between a driver and its tasks, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from consumer_membership.errors import TransportError
from consumer_membership.spark.control import ControlLink, ControlServer, Failure, Order
from consumer_membership.spark.plan import ControlAddress
from tests.spark.recorders import progress

PATIENCE_S = 20.0


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    Retrying(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.01), retry=retry_if_not_result(bool))(condition)


@pytest.fixture
def server() -> Iterator[ControlServer]:
    """A driver."""
    with closing(ControlServer("127.0.0.1", "127.0.0.1")) as server:
        yield server


def test_reports_reach_the_driver(server: ControlServer) -> None:
    """The latest of each member, by instance."""
    with closing(ControlLink(server.address, 1, 5)) as one, closing(ControlLink(server.address, 0, 6)) as two:
        one.report(progress(1, 5, 10))
        one.report(progress(1, 5, 20))
        two.report(progress(0, 6, 7))
        until(lambda: server.progress() == (progress(0, 6, 7), progress(1, 5, 20)))
        assert (one.order, two.order) == (None, None)


def test_order_to_stop_reaches_everybody(server: ControlServer) -> None:
    """Those too that call after it."""
    with closing(ControlLink(server.address, 0, 1)) as early:
        until(lambda: server.attempts() == {0: 1})
        server.stop()
        until(lambda: early.order is Order.STOP)
        with closing(ControlLink(server.address, 1, 2)) as late:
            until(lambda: late.order is Order.STOP)


def test_later_attempt_replaces_an_earlier_one(server: ControlServer) -> None:
    """Whichever calls first; the earlier one's reports count no more."""
    with closing(ControlLink(server.address, 0, 2)) as second:
        until(lambda: server.attempts() == {0: 2})
        assert not server.has_replacements
        with closing(ControlLink(server.address, 0, 1)) as first, closing(ControlLink(server.address, 0, 3)) as third:
            until(lambda: first.order is Order.SUPERSEDED)
            until(lambda: second.order is Order.SUPERSEDED)
            third.report(progress(0, 3, 30))
            until(lambda: len(server.progress()) == 1)
            second.report(progress(0, 2, 20))
            second.fail("SinkError", "words")
            until(lambda: len(server.failures()) == 1)
            assert (server.progress(), server.has_replacements) == ((progress(0, 3, 30),), True)
            assert third.order is None


def test_failure_is_told_with_its_place(server: ControlServer) -> None:
    """Whether it was the latest attempt's says who was replaced from outside the run."""
    with closing(ControlLink(server.address, 0, 7)) as link:
        link.fail("FencedError", "replaced")
        until(lambda: bool(server.failures()))
    assert server.failures() == (Failure(instance=0, attempt=7, kind="FencedError", text="replaced", was_latest=True),)


def test_end_of_the_driver_is_an_order_to_stop(server: ControlServer) -> None:
    """Killed, or hung up: the socket's end says so."""
    with closing(ControlLink(server.address, 0, 1)) as link:
        until(lambda: server.attempts() == {0: 1})
        server.close()
        until(lambda: link.order is Order.STOP)
        link.report(progress(0, 1, 1))


class Firewall:
    """Between a task and its driver: it forgets the connections that it passes."""

    def __init__(self, to: ControlAddress) -> None:
        self._to = (to.host, to.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.calls = 0
        #: Connections on which the driver has said something.
        self.answered = 0
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._pass, daemon=True).start()

    def forget(self) -> None:
        """Reset every connection there is, and none that is made again meanwhile."""
        for end in tuple(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nobody through any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.forget()
        for end in self._ends:
            end.close()

    def _pass(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                self.calls += 1
                threading.Thread(target=_copied, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            near.sendall(far.recv(4096))
            self.answered += 1
        _copied(far, near)


def _copied(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while words := one.recv(4096):
            other.sendall(words)


def test_line_that_breaks_is_made_again(server: ControlServer) -> None:
    """The task goes on meanwhile, is no replacement of itself, and hears what the driver says afterwards."""
    with (
        closing(Firewall(server.address)) as firewall,
        closing(ControlLink(replace(server.address, port=firewall.port), 0, 1)) as link,
    ):
        until(lambda: firewall.answered == 1)
        firewall.forget()
        until(lambda: firewall.calls == 2)

        def is_heard() -> bool:
            link.report(progress(0, 1, 7))
            return server.progress() == (progress(0, 1, 7),)

        until(is_heard)
        assert (link.order, server.has_replacements) == (None, False)
        server.stop()
        until(lambda: link.order is Order.STOP)
        assert link.cut_short is None


def test_line_that_breaks_hears_of_the_attempt_that_came_meanwhile(server: ControlServer) -> None:
    """Its task was taken for lost, and another one works in its place."""
    with (
        closing(Firewall(server.address)) as firewall,
        closing(ControlLink(replace(server.address, port=firewall.port), 0, 1)) as first,
    ):
        until(lambda: firewall.answered == 1)
        firewall.forget()
        with closing(ControlLink(server.address, 0, 2)):
            until(lambda: first.order is Order.SUPERSEDED)


def test_driver_that_does_not_answer_is_gone_after_a_while(server: ControlServer) -> None:
    """An order like its end, of which the task may know that nobody gave it."""
    with closing(Firewall(server.address)) as firewall:
        address = replace(server.address, port=firewall.port)
        with closing(ControlLink(address, 0, 1, gone_after_s=0.1)) as link:
            until(lambda: firewall.answered == 1)
            firewall.close()
            until(lambda: link.order is Order.STOP)
            assert link.cut_short is not None


def test_stranger_is_not_listened_to(server: ControlServer) -> None:
    """Without the secret nothing is taken; nonsense ends the line and harms nobody."""
    with closing(ControlLink(replace(server.address, secret="guess" + server.address.secret), 0, 9)) as stranger:
        stranger.report(progress(0, 9, 1))
        until(lambda: stranger.order is Order.STOP)
    for words in (b"\n", b"[]\n", b"nonsense\n", json.dumps({"secret": server.address.secret}).encode() + b"\n"):
        with socket.create_connection((server.address.host, server.address.port)) as plain:
            plain.sendall(words)
            assert plain.recv(1) == b""
    assert (server.progress(), server.attempts()) == ((), {})


def test_driver_that_cannot_be_reached_is_named() -> None:
    """With address and remedy."""
    with closing(ControlServer("127.0.0.1", "127.0.0.1")) as server:
        address = server.address
    with pytest.raises(TransportError, match=rf"127.0.0.1:{address.port}.*spark.driver.host"):
        ControlLink(address, 0, 1)


def test_server_ends_with_its_threads() -> None:
    """Nothing of a run is left on the driver."""
    before = set(threading.enumerate())
    server = ControlServer("127.0.0.1", "127.0.0.1")
    link = ControlLink(server.address, 0, 1)
    until(lambda: server.attempts() == {0: 1})
    server.close()
    link.close()
    until(lambda: set(threading.enumerate()) <= before)
