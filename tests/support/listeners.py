"""Ports of proxies. When the ports are closed, all connections end, including connections that are being opened.

`asyncio.start_server` is not used: it serves each connection in a task, and a task that is canceled before its first
step does not close the connection. The client's connection would stay open, and pytest would report the socket in a
later test.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

#: Serves one connection until it returns or raises OSError; then the connection is aborted.
Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Listeners:
    """The ports of one event loop. The loop must have no tasks except the caller's task and those of connections."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        #: Accepted connections that their task has not taken over yet.
        self._connections: set[socket.socket] = set()
        #: Strong references, because an event loop keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str, serve: Serve) -> int:
        """Open a port, whose connections `serve` handles; return its number."""
        listener = socket.create_server((host, 0))
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.add_reader(listener, self._accept, listener, serve)
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Close the ports first, because clients reconnect when their connections end; then end all connections."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections:  # their tasks were canceled before the first step
            connection.close()
        await asyncio.sleep(0)  # asyncio closes the socket of an aborted transport in its next step

    def _accept(self, listener: socket.socket, serve: Serve) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the client has already closed the connection
            return
        connection.setblocking(False)
        self._connections.add(connection)
        task = self._loop.create_task(self._serve(connection, serve))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, serve: Serve) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection)
        finally:
            self._connections.discard(connection)  # the transport closes it
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            with suppress(OSError):  # the broker behind the proxy is not running
                await serve(reader, writer)
        finally:
            writer.transport.abort()
