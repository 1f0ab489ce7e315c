"""A machine between tasks and their driver: it records, alters, injects and drops their bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from consumer_membership.spark.line import Side


class Relay:
    """Passes connections on to `to`; tasks connect to `address`.

    `altered` returns the bytes to pass on in place of the driver's bytes on the connection with this number.
    """

    def __init__(self, to: tuple[str, int], altered: Callable[[int, bytes], bytes] | None = None) -> None:
        self._to = to
        self._altered = altered or (lambda _, passed: passed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.port = self.address[1]
        self.calls = 0
        #: Connections on which the driver has sent something.
        self.answered = 0
        self._near: list[socket.socket] = []
        self._far: list[socket.socket] = []
        self._passed: dict[Side, bytes] = {"driver": b"", "task": b""}
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def passed(self, sender: Side) -> bytes:
        """All bytes that this end sent, of all connections."""
        return self._passed[sender]

    def inject(self, forged: bytes) -> None:
        """Send bytes to the task of the latest connection as if the driver had sent them."""
        self._near[-1].sendall(forged)

    def forget(self) -> None:
        """End every current connection; new connections are passed on."""
        for end in (*self._near, *self._far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Refuse new connections and end the current ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.forget()
        for thread in tuple(self._threads):
            thread.join()
        for end in (*self._near, *self._far):
            end.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
                self._near.append(near)
                self._far.append(far)
                self.calls += 1
                for copied in (self._copy_of_the_task, self._copy_of_the_driver):
                    self._threads.append(threading.Thread(target=copied, args=(self.calls, near, far), daemon=True))
                    self._threads[-1].start()

    def _copy_of_the_task(self, _: int, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while passed := near.recv(4096):
                self._passed["task"] += passed
                far.sendall(passed)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)

    def _copy_of_the_driver(self, number: int, near: socket.socket, far: socket.socket) -> None:
        is_first = True
        with contextlib.suppress(OSError):
            while passed := far.recv(4096):
                self._passed["driver"] += passed
                near.sendall(self._altered(number, passed))
                self.answered += is_first
                is_first = False
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)
