# This module uses `Any`, because entities of many versions share no type.
"""A small broker over real TCP; a test determines its responses.

`ScriptedBroker(script)` runs one or more nodes in one thread. It decodes each request with kio and passes it to the
script, which returns the action: a response entity, `DROP` (never respond), `DISCONNECT`, `Raw` bytes, `Later` (respond
when a gate opens), or `Last` (respond and disconnect). If the script returns None, the broker itself responds to the
requests that every client sends first: ApiVersions, Metadata, FindCoordinator.

The broker's thread calls the script for one request at a time, so a script may have state, like a fake coordinator.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeAlias
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersion as ApiVersionV0
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.api_versions.v3.response import ApiVersion
from kio.schema.describe_groups.v5 import response as describe_groups_v5
from kio.schema.describe_groups.v6 import response as describe_groups_v6
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.response import Coordinator
from kio.schema.metadata.v12 import response as metadata_v12
from kio.schema.metadata.v13 import response as metadata_v13
from kio.serial import entity_reader, entity_writer

from tests.support.waiting import PATIENCE_S, wait_until

#: The versions that a broker of Kafka 4.3 supports of the APIs that this package calls (rules 6.5).
NEWEST: Mapping[int, tuple[int, int]] = {
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    13: (0, 5),
    15: (0, 6),
    17: (0, 1),
    18: (0, 4),
    32: (1, 4),
    36: (0, 2),
    68: (0, 1),
    69: (0, 1),
}
ZERO = timedelta(0)
SIZE_BYTES = 4


class Silence(Enum):
    """No response."""

    DROP = "never respond, and keep the connection open"
    DISCONNECT = "close the connection"


DROP, DISCONNECT = Silence.DROP, Silence.DISCONNECT


class Gate:
    """Holds responses until a test opens it, from any thread."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def open(self) -> None:
        """Release the responses."""
        self._opened.set_result(None)

    async def wait(self) -> None:
        """Wait until the gate is open."""
        await asyncio.wrap_future(self._opened)


@dataclass(frozen=True, slots=True)
class Later:
    """Send this response when the gate opens; later responses on the connection wait for it."""

    answer: Any
    gate: Gate


@dataclass(frozen=True, slots=True)
class Raw:
    """Send exactly these bytes, including the size."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as a node received it."""

    node_id: int
    connection: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any

    @property
    def response(self) -> Any:
        """The response's class in kio; its nested classes are in the same module."""
        return load_response_schema(self.api_key, self.version)


@dataclass(frozen=True, slots=True)
class Last:
    """Send this response and close the connection immediately."""

    answer: Any


#: A response entity, Silence, Raw, Later, Last, or None for the broker's default response.
Answer: TypeAlias = Any
Script: TypeAlias = Callable[[Received], Answer]


@dataclass(slots=True)
class Topic:
    """A topic for Metadata, with the leader of each partition (-1: no leader)."""

    topic_id: UUID
    leaders: Sequence[int]


@dataclass(slots=True)
class _Node:
    node_id: int
    port: int = 0
    #: Bound to the port and never listening. While the node is stopped, this socket reserves the port: no process gets
    #: it, and no client gets it as its local port.
    reservation: socket.socket | None = None
    listener: socket.socket | None = None
    connections: set[socket.socket] = field(default_factory=set)


class ScriptedBroker:
    """A cluster of `nodes` scripted nodes (ids from 1); a context manager.

    `versions` has the APIs of ApiVersions responses, `topics` the topics of Metadata responses, and `coordinator` is
    the node in FindCoordinator responses. All three may be changed while the broker runs. With a `tls` context, its
    ports accept only TLS.
    """

    def __init__(
        self,
        script: Script = lambda _: None,
        *,
        nodes: int = 1,
        versions: Mapping[int, tuple[int, int]] = NEWEST,
        topics: Mapping[str, Topic] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = script
        self._tls = tls
        self.versions = dict(versions)
        self.topics = dict(topics or {})
        self.coordinator = 1
        self.advertised: dict[int, tuple[str, int]] = {}
        self._nodes = {node_id: _Node(node_id) for node_id in range(1, nodes + 1)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted broker", daemon=True)
        self._requests: list[Received] = []
        self._changed = threading.Condition()
        self._connections = 0
        self._handlers: set[asyncio.Task[None]] = set()
        self._failures: list[object] = []
        self._loop.set_exception_handler(lambda _, context: self._failures.append(context))

    # ---- for the test ------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The hosts and ports of the nodes."""
        return tuple(("127.0.0.1", node.port) for node in self._nodes.values())

    @property
    def bootstrap_servers(self) -> str:
        """The nodes as a value of `bootstrap.servers`."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    def requests(self, api_key: int | None = None) -> list[Received]:
        """Return the requests so far, of one API or of all APIs."""
        with self._changed:
            return [request for request in self._requests if api_key in (None, request.api_key)]

    def wait_for(self, api_key: int, count: int = 1, patience_s: float = PATIENCE_S) -> list[Received]:
        """Wait for this number of requests of this API, and return them."""
        with self._changed:
            wait_until(
                lambda: len(self._of(api_key)) >= count,
                f"{count} requests of API {api_key}",
                patience_s,
                changed=self._changed,
                seen=lambda: len(self._of(api_key)),
            )
            return self._of(api_key)

    def stop_node(self, node_id: int) -> None:
        """Close a node's port and connections."""
        self._call(self._close_node(self._nodes[node_id]))

    def start_node(self, node_id: int) -> None:
        """Open a node's previous port again."""
        self._call(self._open_node(self._nodes[node_id]))

    def disconnect(self, node_id: int) -> None:
        """Close a node's connections; its port stays open."""
        self._call(self._drop_connections(self._nodes[node_id]))

    def __enter__(self) -> Self:
        self._thread.start()
        for node in self._nodes.values():
            self._call(self._open_node(node))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        # An exception of the script fails the test, unless the test has already failed.
        assert error is not None or not self._failures, self._failures

    # ---- the broker's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    def _of(self, api_key: int) -> list[Received]:
        return [request for request in self._requests if request.api_key == api_key]

    async def _open_node(self, node: _Node) -> None:
        if node.reservation is None:
            node.reservation = _bound(0)
            node.port = node.reservation.getsockname()[1]
        node.listener = _bound(node.port)
        node.listener.setblocking(False)
        node.listener.listen()
        self._loop.add_reader(node.listener, self._accept, node, node.listener)

    async def _close_node(self, node: _Node) -> None:
        if node.listener is not None:
            self._loop.remove_reader(node.listener)
            node.listener.close()
            node.listener = None
            await self._drop_connections(node)

    async def _drop_connections(self, node: _Node) -> None:
        for connection in node.connections:
            with suppress(OSError):  # the client has already closed the connection
                connection.shutdown(socket.SHUT_RDWR)

    async def _close(self) -> None:
        for node in self._nodes.values():
            await self._close_node(node)
        for handler in self._handlers.copy():
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        for node in self._nodes.values():
            for connection in node.connections:  # their handlers were canceled before they began
                connection.close()
            if node.reservation is not None:
                node.reservation.close()

    def _accept(self, node: _Node, listener: socket.socket) -> None:
        """Accept a connection, and serve it in a task.

        `asyncio.start_server` is not used: if it is closed after it has accepted a connection and before the connection
        is served, the connection stays open without responses, and its client waits for connection.setup.timeout.
        """
        try:
            connection, _ = listener.accept()
        except OSError:  # the client has already closed the connection
            return
        connection.setblocking(False)
        node.connections.add(connection)
        handler = self._loop.create_task(self._serve(node, connection))
        self._handlers.add(handler)
        handler.add_done_callback(self._ended)

    def _ended(self, handler: asyncio.Task[None]) -> None:
        self._handlers.discard(handler)
        if not handler.cancelled() and (error := handler.exception()) is not None:
            self._failures.append(error)

    async def _serve(self, node: _Node, connection: socket.socket) -> None:
        self._connections += 1
        number = self._connections
        writer: asyncio.StreamWriter | None = None
        try:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection, ssl=self._tls)
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            while not writer.is_closing():
                size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
                await self._answer(_parse(node.node_id, number, await reader.readexactly(size)), writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            node.connections.discard(connection)
            if writer is not None:
                writer.close()

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
        answer = self.script(request)
        if answer is None:
            answer = self.own_answer(request)
        if isinstance(answer, Later):
            await answer.gate.wait()
            answer = answer.answer
        if answer is DISCONNECT:
            writer.close()
        elif isinstance(answer, Raw):
            writer.write(answer.data)
        elif isinstance(answer, Last):
            writer.write(frame(answer.answer, request.correlation_id))
            writer.close()
        elif answer is not DROP:
            writer.write(frame(answer, request.correlation_id))

    # ---- the broker's default responses ------------------------------------------------------------------------------

    def own_answer(self, request: Received) -> Answer:
        """Return the broker's default response, for requests for which the script returns None."""
        match request.api_key:
            case 18:
                return self._api_versions(request)
            case 3:
                return self._metadata(request)
            case 10:
                return self._find_coordinator(request)
            case 15:
                return _no_groups(request)
            case _:
                raise AssertionError(f"the script has no response for {request}")

    def _api_versions(self, request: Received) -> Answer:
        lowest, highest = self.versions[18]
        if not lowest <= request.version <= highest:
            return ApiVersionsResponseV0(error_code=ErrorCode.unsupported_version, api_keys=())
        kind = ApiVersion if request.version == 3 else ApiVersionV0
        keys = tuple(kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items())
        if request.version == 0:
            return ApiVersionsResponseV0(error_code=ErrorCode.none, api_keys=keys)
        return request.response(error_code=ErrorCode.none, api_keys=keys, throttle_time=ZERO)

    def address(self, node_id: int) -> tuple[str, int]:
        """Return the address that the node advertises."""
        return self.advertised.get(node_id, ("127.0.0.1", self._nodes[node_id].port))

    def _metadata(self, request: Received) -> Answer:
        module: Any = {12: metadata_v12, 13: metadata_v13}[request.version]
        brokers = tuple(
            module.MetadataResponseBroker(node_id=node_id, host=self.address(node_id)[0], port=self.address(node_id)[1])
            for node_id in self._nodes
        )
        wanted = request.entity.topics
        if wanted is None:
            topics = [_topic(module, name, topic) for name, topic in self.topics.items()]
        else:
            topics = [self._requested(module, requested) for requested in wanted]
        more = {"error_code": ErrorCode.none} if request.version == 13 else {}
        return module.MetadataResponse(
            throttle_time=ZERO,
            brokers=brokers,
            cluster_id="scripted",
            controller_id=1,
            topics=tuple(topics),
            **more,
        )

    def _requested(self, module: Any, requested: Any) -> Any:
        for name, topic in self.topics.items():
            if name == requested.name or (requested.name is None and topic.topic_id == requested.topic_id):
                return _topic(module, name, topic)
        by_id = requested.name is None
        return module.MetadataResponseTopic(
            error_code=ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition,
            name=requested.name,
            topic_id=requested.topic_id,
            partitions=(),
        )

    def _find_coordinator(self, request: Received) -> Answer:
        host, port = self.address(self.coordinator)
        coordinator = {"node_id": self.coordinator, "host": host, "port": port}
        if request.version < 4:
            return request.response(throttle_time=ZERO, error_code=ErrorCode.none, error_message=None, **coordinator)
        return request.response(
            throttle_time=ZERO,
            coordinators=tuple(
                Coordinator(key=key, error_code=ErrorCode.none, error_message=None, **coordinator)
                for key in request.entity.coordinator_keys
            ),
        )


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound to this loopback port (0: any); sockets that do not listen may share the port."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _no_groups(request: Received) -> Answer:
    """Return a response without classic groups; members with group.protocol=auto send this request before they join."""
    module: Any = {5: describe_groups_v5, 6: describe_groups_v6}[request.version]
    more = {"error_message": None} if request.version == 6 else {}
    groups = tuple(
        module.DescribedGroup(
            error_code=ErrorCode.group_id_not_found,
            group_id=group_id,
            group_state="Dead",
            protocol_type="",
            protocol_data="",
            members=(),
            **more,
        )
        for group_id in request.entity.groups
    )
    return request.response(throttle_time=ZERO, groups=groups)


def _topic(module: Any, name: str, topic: Topic) -> Any:
    return module.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=name,
        topic_id=topic.topic_id,
        partitions=tuple(
            module.MetadataResponsePartition(
                error_code=ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
                partition_index=index,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=(1,),
                isr_nodes=(1,),
            )
            for index, leader in enumerate(topic.leaders)
        ),
    )


def _parse(node_id: int, connection: int, data: bytes) -> Received:
    api_key = int.from_bytes(data[:2], "big")
    version = int.from_bytes(data[2:4], "big")
    schema = load_request_schema(api_key, version)
    header, offset = entity_reader(schema.__header_schema__)(data, 0)
    entity, _ = entity_reader(schema)(data, offset)
    return Received(
        node_id=node_id,
        connection=connection,
        api_key=api_key,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        entity=entity,
    )


def frame(entity: Any, correlation_id: int) -> bytes:
    """Return the bytes of a response: size, header, entity."""
    buffer = io.BytesIO()
    header_type = entity.__header_schema__
    entity_writer(header_type)(buffer, header_type(correlation_id=correlation_id))
    entity_writer(type(entity))(buffer, entity)
    data = buffer.getvalue()
    return len(data).to_bytes(SIZE_BYTES, "big") + data
