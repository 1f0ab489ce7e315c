"""The brokers of a test run, for all of its processes: each kind of broker is started once, and all workers use it.

The main pytest process keeps the brokers (`BrokerKeeper`). The processes that run tests request brokers from it
(`RunBrokers`), over a socket in this run's folder. A broker that no test module holds may be stopped to save memory. If
the main process is killed, the watchdogs of its brokers end them.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from consumer_membership.devbroker import Backend, BackendMissingError, Broker, BrokerUnavailableError, Security, start
from consumer_membership.devbroker.request import BrokerRequest
from tests.support.broker_pool import BrokerPool, BrokerStart

#: How many idle brokers may run in addition to held brokers; each needs 0.3 GB and a fortieth of a core.
MOST_IDLE = 6
_ERRORS = {error.__name__: error for error in (BrokerUnavailableError, BackendMissingError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBrokerRequest:
    """A request to the keeper: the arguments of `BrokerPool.shared`."""

    version: str | None
    nodes: int | None
    properties: dict[str, str]
    backend: Backend | None
    #: The arguments of `Security`.
    security: dict[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNode:
    """A read-only view of a broker's node that another process has started."""

    node_id: int
    address: str
    secured: Mapping[str, str]
    pid: int | None
    is_running: bool = True

    def start(self) -> None:
        """Raise an error: tests must not control the nodes of shared brokers."""
        raise BrokerUnavailableError(
            "tests must not control the nodes of a shared broker; start a separate broker with `own`"
        )

    stop = kill = remove = start

    def use_version(self, _: str) -> None:
        """Raise an error, as `start` does."""
        self.start()

    def log_tail(self) -> str:
        """Return an empty text: the log is in the process that started the broker."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBroker:
    """The keeper's response to a request: a shared broker."""

    backend: Backend
    version: str
    bootstrap_servers: str
    nodes: tuple[RemoteNode, ...]

    def broker(self) -> Broker:
        """Return a handle for this process; stopping the handle does not stop the broker."""
        return Broker(
            backend=self.backend, version=self.version, bootstrap_servers=self.bootstrap_servers, nodes=self.nodes
        )


def arguments_of(security: Security) -> dict[str, object]:
    """Return the arguments with which another process can create an equal `Security`."""
    return {
        "key_pem": security.key_pem,
        "certificate_chain_pem": security.certificate_chain_pem,
        "client_authority_pem": security.client_authority_pem,
        "users": dict(security.users),
    }


class BrokerKeeper:
    """Starts brokers for all processes of a run, and ends them with `stop`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="brokers-"))
        self._pool = BrokerPool()
        self._lock = threading.Lock()
        #: How many processes hold each broker. The broker that was released last is at the end.
        self._held: Counter[Broker] = Counter()
        self._listener = Listener(str(self.folder / "keeper"), "AF_UNIX")
        threading.Thread(target=self._accept, name="broker keeper", daemon=True).start()

    @property
    def starts(self) -> list[BrokerStart]:
        """The starts of this keeper's brokers."""
        return list(self._pool.starts)

    def stop(self) -> None:
        """Stop all brokers; later requests fail."""
        self._listener.close()
        self._pool.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Serve the requests of one process until it ends; then release its brokers."""
        with connection, ExitStack() as at_end:
            held: set[Broker] = set()
            at_end.callback(lambda: self._release(held))
            with suppress(EOFError, OSError):
                while True:
                    match connection.recv():
                        case SharedBrokerRequest() as request:
                            connection.send(self._response(request, held))
                        case None:
                            self._release(held)

    def _response(self, request: SharedBrokerRequest, held: set[Broker]) -> SharedBroker | tuple[str, str]:
        try:
            broker = self._shared(request, held)
        except Exception as error:  # noqa: BLE001 - the requesting process raises it
            return type(error).__name__, str(error)
        nodes = [broker._nodes[node_id] for node_id in broker.node_ids]
        return SharedBroker(
            backend=broker.backend,
            version=broker.version,
            bootstrap_servers=broker.bootstrap_servers,
            nodes=tuple(
                RemoteNode(node_id=node.node_id, address=node.address, secured=dict(node.secured), pid=node.pid)
                for node in nodes
            ),
        )

    def _shared(self, request: SharedBrokerRequest, held: set[Broker]) -> Broker:
        arguments = request.security
        security = Security(**arguments) if arguments is not None else None  # type: ignore[arg-type]  # its own
        while True:
            broker = self._pool.shared(
                request.version, request.nodes, request.properties, backend=request.backend, security=security
            )
            with self._lock:
                # Another thread may have stopped the broker before this one got the lock.
                if not broker.is_stopped:
                    if broker not in held:
                        held.add(broker)
                        self._held[broker] += 1
                    return broker

    def _release(self, held: set[Broker]) -> None:
        """Release the brokers of one process; stop the brokers that have been idle longest."""
        with self._lock:
            for broker in held:
                count = self._held.pop(broker) - 1
                self._held[broker] = count
            held.clear()
            idle = [broker for broker, count in self._held.items() if not count]
            surplus = idle[: max(0, len(idle) - MOST_IDLE)]
            for broker in surplus:
                del self._held[broker]
                broker.stop()


class RunBrokers:
    """The brokers that tests request: shared brokers of the run's keeper, and their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keeper = Client(str(folder / "keeper"), "AF_UNIX")
        self._handles: dict[str, Broker] = {}
        #: The starts of brokers of one test.
        self.starts: list[BrokerStart] = []

    def shared(
        self,
        version: str | None = None,
        nodes: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        backend: Backend | None = None,
        security: Security | None = None,
    ) -> Broker:
        """Return the run's broker of this kind. Callers must not stop its nodes.

        The arguments are those of `devbroker.start`.

        Raises:
            BrokerUnavailableError: As for `devbroker.start`.
        """
        request = SharedBrokerRequest(
            version=version,
            nodes=nodes,
            properties=dict(properties or {}),
            backend=backend,
            security=arguments_of(security) if security is not None else None,
        )
        self._keeper.send(request)
        response = self._keeper.recv()
        if not isinstance(response, SharedBroker):
            name, text = response
            raise _ERRORS[name](text) if name in _ERRORS else RuntimeError(f"{name}: {text}")
        return self._handles.setdefault(response.bootstrap_servers, response.broker())

    @contextmanager
    def own(
        self,
        version: str | None = None,
        nodes: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        backend: Backend | None = None,
        security: Security | None = None,
    ) -> Iterator[Broker]:
        """Start a broker for this caller only, which may stop its nodes; the broker ends with the block.

        Raises:
            BrokerUnavailableError: As for `devbroker.start`.
        """
        began = time.monotonic()
        with start(version, nodes, properties, backend=backend, security=security) as broker:
            request = BrokerRequest(version=version, nodes=nodes, properties=properties or {})
            self.starts.append(BrokerStart(kind=f"{request} (of one test)", seconds=time.monotonic() - began))
            yield broker

    def release(self) -> None:
        """Release all shared brokers of this process; the next call of `shared` requests them again."""
        self._keeper.send(None)
