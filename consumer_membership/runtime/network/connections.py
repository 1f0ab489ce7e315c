"""The open connections to the brokers of one cluster: made on demand, reconnected with backoff, shared by clients.

A broker handles one connection's requests one after the other. Three rules follow:

- Heartbeats, commits and committed offsets have connections of their own, because other requests would delay them.
- Each of these two kinds has one connection to a broker as long as responses come quickly, else up to
  `MAX_CONNECTIONS`: a slow response to one member's commit does not delay another member's heartbeat.
- JoinGroup and SyncGroup have a connection for each member, because they wait at the coordinator for other members.

Clients that request the same thing at the same time, such as the metadata of a topic, share one request, and those that
look up the coordinators of several groups send one request for all of them (`shared_requests`).

A client that has a request without a response on a connection sends the next one on the same connection (`Pinned`), so
that a commit cannot be overtaken by the leave after it, nor a leave by the join after that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from enum import Enum
from functools import partial
from math import inf
from time import monotonic
from typing import NamedTuple

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import AuthenticationError, TransportError
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.runtime.failures import FailureLog, logger
from consumer_membership.runtime.membership_thread import BrokerTraffic
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.shared_requests import SharedRequests
from consumer_membership.runtime.network.transport import BrokerConnection, connect
from consumer_membership.text import speakable
from consumer_membership.types import BrokerAddress
from consumer_membership.wire.connection import ExpectedBroker, WrongBrokerError
from consumer_membership.wire.traffic import Traffic
from consumer_membership.wire.versions import VERSIONS_FOR_ONE_BROKER, Api

#: After this time without a connection, another broker is tried in parallel; a broker on the same continent answers in
#: 0.3 s.
_HEAD_START_S = 0.5
#: The greatest number of connections of one kind to one broker.
MAX_CONNECTIONS = 16
#: Another connection is opened when a request would wait this long on each open connection. A coordinator answers a
#: heartbeat in less than a millisecond, and the join of a new group when its record is written; joins on other
#: connections need not wait for that.
BLOCKED_AFTER_S = 0.02
#: How long a request waits for an additional connection; then it uses the best open one.
_ADDITIONAL_WAIT_S = 0.1
#: Additional connections are closed after this idle time.
ADDITIONAL_IDLE_S = 30.0


class Purpose(Enum):
    """The purpose of a connection."""

    #: A group's heartbeats, commits and committed offsets, with its coordinator.
    GROUP = "group"
    #: A classic member's JoinGroup and SyncGroup, which the coordinator answers when the whole group has joined.
    REBALANCE = "rebalance"
    #: Everything else: metadata, the coordinator's lookup, offsets of partitions.
    CLUSTER = "cluster"


class Listener:
    """A client of shared connections; its functions are called in the context in which it was created.

    `on_lost` is called when the broker ended its last connection for `Purpose.GROUP`: with the broker, the reason, and
    the connection. `on_silence` is called when a broker accepts a connection and does not answer. `longest_pause_s`
    limits the pause between two attempts; None: the settings limit it.
    """

    def __init__(
        self,
        on_lost: Callable[[BrokerAddress, TransportError, BrokerConnection], None] = lambda *_: None,
        on_silence: Callable[[str], None] = lambda _: None,
        longest_pause_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._context = copy_context()
        self._on_lost = on_lost
        self._on_silence = on_silence
        self.longest_pause_s = longest_pause_s

    def lost(self, broker: BrokerAddress, error: TransportError, connection: BrokerConnection) -> None:
        """Report the loss of the last connection to a coordinator."""
        self._context.copy().run(self._on_lost, broker, error, connection)

    def silent(self, message: str) -> None:
        """Report a broker that accepts connections and does not answer."""
        self._context.copy().run(self._on_silence, message)


class Pinned(NamedTuple):
    """The connection of a client's latest request to a coordinator, and the number of that request on it."""

    connection: BrokerConnection
    broker: BrokerAddress
    number: int

    def holds(self, broker: BrokerAddress) -> bool:
        """Whether the next request to this broker has to follow on the same connection."""
        return self.broker == broker and self.connection.is_open and self.connection.answered < self.number


class _Key(NamedTuple):
    purpose: Purpose
    host: str
    port: int
    #: 0: the first connection to this broker for this purpose; the others are additional.
    number: int = 0
    #: The member whose connection this is; None: all members share it.
    owner: Listener | None = None


class _BrokerBackoff:
    """When one broker may be tried again, and why not sooner.

    The pause doubles from reconnect.backoff.ms up to reconnect.backoff.max.ms with each failure in a row, and has up to
    one reconnect.backoff.ms of jitter.
    """

    def __init__(self, broker: BrokerAddress, settings: ConnectionSettings, jitter: Jitter = random.random) -> None:
        self._jitter = jitter
        self._base_s, self._max_s = settings.reconnect_backoff_s, settings.reconnect_backoff_max_s
        self._log = FailureLog(f"Connecting to {speakable(broker.host)}:{broker.port}")
        # At the middle of its spread the delay has no jitter; `failed` adds its own.
        self._delays = Backoff(self._base_s, self._max_s, jitter=lambda: 0.5)
        self._retry_at = 0.0
        #: Why the last attempt failed.
        self.reason = ""
        #: The latest text about a peer that stayed silent, in a present or an earlier attempt; empty after a success.
        self.silence = ""

    @property
    def wait_s(self) -> float:
        """How long no connection to the broker is attempted from now on."""
        return max(0.0, self._retry_at - monotonic())

    def failed(self, error: TransportError, longest_s: float | None) -> None:
        """Count a failure and begin a pause; `longest_s` (None: no limit) shortens it, down to reconnect.backoff.ms."""
        self._log.failed(error)
        self.reason = str(error)
        pause_s = min(self._delays.next_delay() + self._jitter() * self._base_s, self._max_s)
        if longest_s is not None:
            pause_s = min(pause_s, max(longest_s, self._base_s))
        self._retry_at = monotonic() + pause_s

    def succeeded(self) -> None:
        """Forget the failures."""
        self._log.succeeded()
        self._delays.reset()
        self._retry_at = 0.0
        self.silence = ""

    def clear(self) -> None:
        """Permit an attempt now; the failures still count for the pause after it."""
        self._retry_at = 0.0


class Connections:
    """All connections with the same settings; used from one loop. Each client adds a `Listener`."""

    def __init__(self, settings: ConnectionSettings, security: ConnectionSecurity) -> None:
        self._settings = settings
        #: TLS and credentials of later connections.
        self.security = security
        #: The brokers of the cluster, as Metadata last named them.
        self.known_brokers: Mapping[int, BrokerAddress] = {}
        self._listeners: list[Listener] = []
        self._open: dict[_Key, BrokerConnection] = {}
        self._dialing: dict[_Key, asyncio.Task[BrokerConnection]] = {}
        self._backoffs: dict[tuple[str, int], _BrokerBackoff] = {}
        self._traffic: dict[tuple[Purpose, str, int], Traffic] = {}
        #: The broker of each connection, by the address.
        self._addresses: dict[tuple[str, int], BrokerAddress] = {}
        #: The requests that several clients make at the same moment.
        self.shared_requests = SharedRequests()
        self._is_closed = False
        #: The id of the cluster; None: not known yet.
        self.cluster_id: str | None = None
        #: Whether brokers of the cluster check that a connection is meant for them. Older brokers answer the request
        #: for this check as one of an unknown version, so they receive it only during a rolling upgrade.
        self._are_checked = False

    def add(self, listener: Listener) -> None:
        """Report to this client from now on."""
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Forget this client, and close the connections that only it uses."""
        if listener not in self._listeners:
            return
        self._listeners.remove(listener)
        for key in [key for key in (*self._open, *self._dialing) if key.owner is listener]:
            if key in self._dialing:
                self._dialing[key].cancel()
            if key in self._open:
                connection = self._open[key]
                self.drop(connection, TransportError(f"{connection.peer}: the connection was closed by this side"))

    def traffic(self) -> tuple[BrokerTraffic, ...]:
        """The traffic of all connections so far; may be called from any thread."""
        return tuple(
            BrokerTraffic(is_of_group=purpose is not Purpose.CLUSTER, host=host, port=port, counts=traffic.snapshot())
            for (purpose, host, port), traffic in self._traffic.copy().items()
        )

    def any_open(self, purpose: Purpose) -> BrokerConnection | None:
        """The open connection for this purpose on which a request waits least, if there is one."""
        standing = [connection for key, connection in self._open.items() if key.purpose is purpose]
        return min(standing, key=_load, default=None)

    async def any_free(self, purpose: Purpose, timeout_s: float) -> BrokerConnection | None:
        """Like `any_open`; if that connection is blocked, return another one to the same broker."""
        best = self.any_open(purpose)
        if best is None or not _is_blocked(best):
            return best
        key = next(key for key, connection in self._open.items() if connection is best)
        return await self.get(purpose, self._addresses[key.host, key.port], timeout_s)

    async def get(
        self, purpose: Purpose, broker: BrokerAddress, timeout_s: float, listener: Listener | None = None
    ) -> BrokerConnection:
        """Return a connection to this broker for this purpose, and for this member if the purpose is a rebalance.

        If the broker could not be reached and its backoff is not over, this fails at once, so that the caller tries
        another broker instead of waiting.

        Raises:
            TransportError: no connection is open, and none could be made in time.
        """
        if purpose is not Purpose.REBALANCE or listener is None:
            return await self._get_shared(purpose, broker, timeout_s)
        return await self._get(_Key(purpose, broker.host, broker.port, owner=listener), broker, timeout_s)

    async def _get_shared(self, purpose: Purpose, broker: BrokerAddress, timeout_s: float) -> BrokerConnection:
        """Return the first connection to this broker that is not blocked; an additional one if all are blocked."""
        first = self._open.get(_Key(purpose, broker.host, broker.port))
        if first is not None and not first.unanswered:  # nearly always
            return first
        keys = [_Key(purpose, broker.host, broker.port, number) for number in range(MAX_CONNECTIONS)]
        best = self._best(keys)
        if best is None:
            # Other requests may also have waited for it.
            await self._get(keys[0], broker, timeout_s)
            best = self._best(keys)
        if best is not None and _is_blocked(best):
            await _responses_read()
            best = await self._additional(keys, broker, min(timeout_s, _ADDITIONAL_WAIT_S))
        if best is None:
            raise TransportError(
                self._backoff(broker).reason or f"{broker.host}:{broker.port}: the connection is closed"
            )
        return best

    async def _additional(
        self, keys: Sequence[_Key], broker: BrokerAddress, longest_s: float
    ) -> BrokerConnection | None:
        """Return the first connection that is not blocked, or the fastest one after a wait for additional ones.

        Each request that waits here opens another connection, so that a coordinator gets the joins of many members at
        the same time.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + longest_s
        while True:
            best = self._best(keys)
            closed = [key for key in keys if key not in self._open]
            left_s = deadline - clock()
            if best is None or not _is_blocked(best) or not closed or left_s <= 0 or self._backoff(broker).wait_s > 0:
                return best
            key = next((key for key in closed if key not in self._dialing), None) or random.choice(closed)  # noqa: S311
            await asyncio.wait((self._dial(key, broker),), timeout=left_s)

    def _best(self, keys: Sequence[_Key]) -> BrokerConnection | None:
        """The first open connection that is not blocked, so that additional ones become idle; else the fastest one."""
        standing = [self._open[key] for key in keys if key in self._open]
        free = (connection for connection in standing if not _is_blocked(connection))
        return next(free, None) or min(standing, key=_load, default=None)

    async def _get(self, key: _Key, broker: BrokerAddress, timeout_s: float) -> BrokerConnection:
        standing = self._open.get(key)
        if standing is not None:
            return standing
        if self._backoff(broker).wait_s > 0:
            # The same text again, so that logs which count repetitions recognize the same failure.
            raise TransportError(self._backoff(broker).reason)
        attempt = self._dial(key, broker)
        # Unlike `await`, this does not cancel the attempt, which other callers share, when this caller gives up or is
        # cancelled.
        await asyncio.wait((attempt,), timeout=timeout_s)
        if not attempt.done():
            why = self._backoff(broker).silence
            message = f"{broker.host}:{broker.port}: not connected within {timeout_s:.3g} s"
            raise TransportError(f"{message}: {why}" if why else message)
        if attempt.cancelled():
            raise _closed(broker)
        return attempt.result()

    def prepare(self, purpose: Purpose, broker: BrokerAddress) -> None:
        """Begin to connect, for a caller of `get` that follows soon and gets the result."""
        key = _Key(purpose, broker.host, broker.port)
        if key not in self._open and self._backoff(broker).wait_s <= 0:
            self._dial(key, broker)

    def clear_backoff(self, broker: BrokerAddress) -> None:
        """Permit an attempt now, because a live broker has just named this one.

        The caller spaces its requests itself, so each of them may try the broker once.
        """
        self._backoff(broker).clear()

    async def first_of(
        self, purpose: Purpose, brokers: Sequence[BrokerAddress]
    ) -> tuple[BrokerAddress, BrokerConnection]:
        """Return the first connection to one of these brokers, tried in their order with a head start each.

        Waits until the backoff of one of them is over, then tries each broker whose backoff is over, once.

        Raises:
            AuthenticationError: each of them refuses this client, or fails to prove its own identity.
            TransportError: none could be reached; the message has the reason for each.
        """
        await asyncio.sleep(min((self._backoff(broker).wait_s for broker in brokers), default=0.0))
        untried = [broker for broker in brokers if self._backoff(broker).wait_s <= 0]
        attempts: dict[asyncio.Task[BrokerConnection], BrokerAddress] = {}
        failures = [TransportError(self._backoff(broker).reason) for broker in brokers if broker not in untried]
        while untried or attempts:
            if untried:
                broker = untried.pop(0)
                # Another caller may have connected meanwhile; a second connection with the same key would leave the
                # first one unclosed.
                key = _Key(purpose, broker.host, broker.port)
                standing = self._open.get(key)
                if standing is not None:
                    return broker, standing
                attempts[self._dial(key, broker)] = broker
            head_start_s = _HEAD_START_S if untried else None
            done, _ = await asyncio.wait(attempts, timeout=head_start_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                broker = attempts.pop(attempt)
                if attempt.cancelled():
                    raise _closed(broker)
                try:
                    return broker, attempt.result()
                except TransportError as error:
                    failures.append(error)
        are_all_refusals = failures and all(isinstance(failure, AuthenticationError) for failure in failures)
        kind = AuthenticationError if are_all_refusals else TransportError
        raise kind("; ".join(dict.fromkeys(map(str, failures))) or "bootstrap.servers is empty")

    def drop(self, connection: BrokerConnection, error: TransportError) -> None:
        """Close a connection for this reason; the next caller makes a new one."""
        logger.debug("Connection closed: %s", error)
        self._forget(connection)
        connection.drop(error)

    async def close(self) -> None:
        """End all connections and all attempts; later calls fail."""
        self._is_closed = True
        attempts = tuple(self._dialing.values())
        for attempt in attempts:
            attempt.cancel()
        await self.shared_requests.close()
        await asyncio.gather(*attempts, return_exceptions=True)
        standing = list(self._open.values())
        self._open.clear()
        for connection in standing:
            await connection.close()

    def _dial(self, key: _Key, broker: BrokerAddress) -> asyncio.Task[BrokerConnection]:
        if self._is_closed:
            raise _closed(broker)
        attempt = self._dialing.get(key)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(key, broker), name=f"connect to {broker.host}:{broker.port}")
            # The caller may have given up; asyncio would log that the exception was never retrieved.
            attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._dialing[key] = attempt
        return attempt

    async def _connect(self, key: _Key, broker: BrokerAddress) -> BrokerConnection:
        backoff = self._backoff(broker)
        try:
            connection = await connect(
                key.host,
                key.port,
                self._settings,
                self.security,
                expected=self._expected(broker),
                traffic=self._traffic.setdefault(key[:3], Traffic()),
                on_silence=lambda message: self._note_silence(backoff, message),
            )
        except TransportError as error:
            backoff.failed(error, self._longest_pause_s())
            if isinstance(error, WrongBrokerError):
                self._forget_wrong_broker(broker)
            raise
        finally:
            self._dialing.pop(key, None)
        backoff.succeeded()
        offered = connection.versions.ranges.get(Api.API_VERSIONS)
        self._are_checked = offered is not None and offered.highest >= VERSIONS_FOR_ONE_BROKER
        self._open[key] = connection
        self._addresses[key.host, key.port] = broker
        connection.on_closed = partial(self._closed, connection, key, broker)
        self._close_when_idle(connection, ADDITIONAL_IDLE_S if key.number else inf)
        return connection

    def _expected(self, broker: BrokerAddress) -> ExpectedBroker | None:
        """The expected broker for ApiVersions; None if its node or cluster is unknown, or brokers do not check it."""
        if self.cluster_id is None or broker.node_id < 0 or not self._are_checked:
            return None
        return ExpectedBroker(cluster_id=self.cluster_id, node_id=broker.node_id)

    def _forget_wrong_broker(self, broker: BrokerAddress) -> None:
        """Forget addresses that are out of date; with metadata.recovery.strategy=none only this address (KIP-1242)."""
        logger.warning(
            "Broker %s is not at its address any more; the brokers of the cluster are requested again", broker
        )
        kept = {} if self._settings.rebootstraps else self.known_brokers
        self.known_brokers = {node_id: known for node_id, known in kept.items() if known != broker}
        # The cluster itself may be another one.
        self.cluster_id = None

    def _close_when_idle(self, connection: BrokerConnection, longest_s: float = inf) -> None:
        """Close the connection when it has been idle for connections.max.idle.ms, or for a shorter `longest_s`."""
        limit_s = min(self._settings.max_idle_s or inf, longest_s)
        if limit_s == inf or not connection.is_open:
            return
        left_s = limit_s - connection.idle_s
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._close_when_idle, connection, longest_s)
        else:
            message = f"{connection.peer}: idle for {limit_s:g} s (connections.max.idle.ms)"
            self.drop(connection, TransportError(message))

    def _note_silence(self, backoff: _BrokerBackoff, message: str) -> None:
        """Log the silence once, and remember it until the broker is reached; the attempt continues meanwhile."""
        logger.log(logging.DEBUG if backoff.silence else logging.WARNING, "%s", message)
        backoff.silence = message
        for listener in self._listeners.copy():
            listener.silent(message)

    @property
    def silences(self) -> tuple[str, ...]:
        """Texts about the brokers that accept connections and do not answer."""
        return tuple(backoff.silence for backoff in self._backoffs.values() if backoff.silence)

    def _closed(self, connection: BrokerConnection, key: _Key, broker: BrokerAddress, error: TransportError) -> None:
        """Handle a connection that the other side ended; brokers close idle ones."""
        self._forget(connection)
        if key.purpose is not Purpose.GROUP or any(other[:3] == key[:3] for other in self._open):
            logger.debug("Connection to %s lost: %s", broker, error)
            return
        for listener in self._listeners.copy():
            listener.lost(broker, error, connection)

    def _longest_pause_s(self) -> float | None:
        """The shortest of the clients' limits; None: no client has one."""
        limits = (listener.longest_pause_s() for listener in self._listeners)
        return min((limit for limit in limits if limit is not None), default=None)

    def _forget(self, connection: BrokerConnection) -> None:
        self._open = {key: other for key, other in self._open.items() if other is not connection}

    def _backoff(self, broker: BrokerAddress) -> _BrokerBackoff:
        name = (broker.host, broker.port)
        backoff = self._backoffs.get(name)
        if backoff is None:
            backoff = self._backoffs[name] = _BrokerBackoff(broker, self._settings)
        return backoff


def _load(connection: BrokerConnection) -> tuple[float, int]:
    return connection.delay_s, connection.unanswered


def _is_blocked(connection: BrokerConnection) -> bool:
    return connection.delay_s > BLOCKED_AFTER_S


async def _responses_read() -> None:
    """Let the loop read the responses that have arrived: the delay may be in this busy process, not in the broker."""
    await asyncio.sleep(0)  # the loop finds the sockets with bytes
    await asyncio.sleep(0)  # and has read them


def _closed(broker: BrokerAddress) -> TransportError:
    return TransportError(f"{broker.host}:{broker.port}: the client is closed")
