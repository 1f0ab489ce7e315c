"""The brokers of a whole test run, for all its processes: each kind is started once and used by every worker.

The process in which pytest was started keeps them (`BrokerKeeper`); the processes that run tests ask it (`RunBrokers`)
over a socket in this run's folder. A broker that no test module holds any longer may be stopped to make space for
others. If the keeper is killed, its brokers' watchdogs end them.
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

#: How many brokers may stand idle beside those that are held: 0.3 GB each, and a fortieth of a core.
MOST_IDLE = 6
_ERRORS = {error.__name__: error for error in (BrokerUnavailableError, BackendMissingError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The arguments of `BrokerPool.shared`, on their way to another process."""

    version: str | None
    nodes: int | None
    properties: dict[str, str]
    backend: Backend | None
    #: Those of `Security`.
    security: dict[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FarNode:
    """A node of a broker that another process keeps; it is read-only."""

    node_id: int
    address: str
    secured: Mapping[str, str]
    pid: int | None
    is_running: bool = True

    def start(self) -> None:
        """Raise, as `stop` and `kill` do."""
        raise BrokerUnavailableError("the nodes of a shared broker are left alone; have one of your own (`own`)")

    stop = kill = remove = start

    def use_version(self, _: str) -> None:
        """Raise, as `start` does."""
        self.start()

    def log_tail(self) -> str:
        """Return nothing: the process that keeps the broker has its log."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A shared broker, on its way from its keeper."""

    backend: Backend
    version: str
    bootstrap_servers: str
    nodes: tuple[FarNode, ...]

    def broker(self) -> Broker:
        """The broker's handle in this process; stopping the handle does not end the broker."""
        return Broker(
            backend=self.backend, version=self.version, bootstrap_servers=self.bootstrap_servers, nodes=self.nodes
        )


def arguments_of(security: Security) -> dict[str, object]:
    """The arguments that make an equal broker in another process."""
    return {
        "key_pem": security.key_pem,
        "certificate_chain_pem": security.certificate_chain_pem,
        "client_authority_pem": security.client_authority_pem,
        "users": dict(security.users),
    }


class BrokerKeeper:
    """Starts brokers for all processes of a run; `stop` ends them all."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="brokers-"))
        self._pool = BrokerPool()
        self._lock = threading.Lock()
        #: How many modules in all processes hold each broker; the one that was let go last is last.
        self._held: Counter[Broker] = Counter()
        self._listener = Listener(str(self.folder / "keeper"), "AF_UNIX")
        threading.Thread(target=self._accept, name="broker keeper", daemon=True).start()

    @property
    def starts(self) -> list[BrokerStart]:
        """The starts of brokers by this keeper."""
        return list(self._pool.starts)

    def stop(self) -> None:
        """Stop all brokers and refuse later requests."""
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
        """Answer one process until it ends; then release its brokers."""
        with connection, ExitStack() as gone:
            held: set[Broker] = set()
            gone.callback(lambda: self._let_go(held))
            with suppress(EOFError, OSError):
                while True:
                    match connection.recv():
                        case Wish() as wish:
                            connection.send(self._answer(wish, held))
                        case None:
                            self._let_go(held)

    def _answer(self, wish: Wish, held: set[Broker]) -> Found | tuple[str, str]:
        try:
            broker = self._shared(wish, held)
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked is told
            return type(error).__name__, str(error)
        nodes = [broker._nodes[node_id] for node_id in broker.node_ids]
        return Found(
            backend=broker.backend,
            version=broker.version,
            bootstrap_servers=broker.bootstrap_servers,
            nodes=tuple(
                FarNode(node_id=node.node_id, address=node.address, secured=dict(node.secured), pid=node.pid)
                for node in nodes
            ),
        )

    def _shared(self, wish: Wish, held: set[Broker]) -> Broker:
        security = Security(**wish.security) if wish.security is not None else None  # type: ignore[arg-type]  # its own
        while True:
            broker = self._pool.shared(
                wish.version, wish.nodes, wish.properties, backend=wish.backend, security=security
            )
            with self._lock:
                # Between the two it may have been stopped to make space.
                if not broker.is_stopped:
                    if broker not in held:
                        held.add(broker)
                        self._held[broker] += 1
                    return broker

    def _let_go(self, held: set[Broker]) -> None:
        """Release brokers that no test of this process holds; stop those that were idle longest."""
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
        #: Of brokers of one test only.
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
        """The run's broker of this kind, whose nodes must not be stopped; arguments as for `devbroker.start`.

        Raises:
            BrokerUnavailableError: As `devbroker.start` does.
        """
        wish = Wish(
            version=version,
            nodes=nodes,
            properties=dict(properties or {}),
            backend=backend,
            security=arguments_of(security) if security is not None else None,
        )
        self._keeper.send(wish)
        answer = self._keeper.recv()
        if not isinstance(answer, Found):
            name, text = answer
            raise _ERRORS[name](text) if name in _ERRORS else RuntimeError(f"{name}: {text}")
        return self._handles.setdefault(answer.bootstrap_servers, answer.broker())

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
        """A broker for the caller alone, whose nodes it may stop; it ends with the block.

        Raises:
            BrokerUnavailableError: As `devbroker.start` does.
        """
        began = time.monotonic()
        with start(version, nodes, properties, backend=backend, security=security) as broker:
            request = BrokerRequest(version=version, nodes=nodes, properties=properties or {})
            self.starts.append(BrokerStart(kind=f"{request} (of one test)", seconds=time.monotonic() - began))
            yield broker

    def let_go(self) -> None:
        """Release all shared brokers of this process; the next request asks the keeper again."""
        self._keeper.send(None)
