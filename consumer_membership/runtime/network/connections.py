"""The open connections of one client: made on demand, one for each broker and purpose, reconnected with backoff.

A group's heartbeats and commits have their own connection: a broker answers one connection's requests in order, so a
slow response to another request would delay them. They share one, so that a commit cannot be overtaken by the leave
after it, nor a leave by the join after that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from time import monotonic
from typing import NamedTuple

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import AuthenticationError, TransportError
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.runtime.failures import FailureLog, logger
from consumer_membership.runtime.membership_thread import BrokerTraffic
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.transport import BrokerConnection, connect
from consumer_membership.text import speakable
from consumer_membership.types import BrokerAddress
from consumer_membership.wire.connection import ExpectedBroker, WrongBrokerError
from consumer_membership.wire.traffic import Traffic
from consumer_membership.wire.versions import VERSIONS_FOR_ONE_BROKER, Api

#: After this time without a connection, another broker is tried in parallel; one on the same continent answers in 0.3
#: s.
_HEAD_START_S = 0.5


class Purpose(Enum):
    """The purpose of a connection."""

    #: A group's heartbeats, commits and committed offsets, with its coordinator.
    GROUP = "group"
    #: A classic member's JoinGroup and SyncGroup, which the coordinator answers when the whole group has joined.
    REBALANCE = "rebalance"
    #: Everything else: metadata, the coordinator's lookup, offsets of partitions.
    CLUSTER = "cluster"


class _Key(NamedTuple):
    purpose: Purpose
    host: str
    port: int


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
        #: The texts about peers that stayed silent, of the present attempts or those before.
        self.silence = ""

    @property
    def wait_s(self) -> float:
        """How long the broker is left alone from now on."""
        return max(0.0, self._retry_at - monotonic())

    def failed(self, error: TransportError, longest_s: float | None) -> None:
        """Count a failure, and begin a pause of `longest_s` (None: no limit) or reconnect.backoff.ms at most."""
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
    """All connections of one client; used from one loop.

    `on_lost` is called when the other side ended a connection: with its purpose, the broker, the reason, and whether
    requests were waiting on it. `on_silence` is called when a broker accepts a connection and does not answer.
    `longest_pause_s` limits the pause between two attempts; None: the settings limit it. `on_wrong_broker` is called
    when an address led to another broker of the cluster, or to another cluster (KIP-1242).
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        security: ConnectionSecurity,
        on_lost: Callable[[Purpose, BrokerAddress, TransportError, bool], None],
        on_silence: Callable[[str], None] = lambda _: None,
        *,
        longest_pause_s: Callable[[], float | None] = lambda: None,
        on_wrong_broker: Callable[[BrokerAddress], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._security = security
        self._on_lost = on_lost
        self._on_silence = on_silence
        self._open: dict[_Key, BrokerConnection] = {}
        self._dialing: dict[_Key, asyncio.Task[BrokerConnection]] = {}
        self._backoffs: dict[tuple[str, int], _BrokerBackoff] = {}
        self._traffic: dict[_Key, Traffic] = {}
        self._is_closed = False
        self._longest_pause_s = longest_pause_s
        self._on_wrong_broker = on_wrong_broker
        #: The id of the cluster; None: not known yet.
        self.cluster_id: str | None = None
        #: Whether a broker of the cluster checks that a connection is meant for it. The others answer that request as
        #: one of an unknown version, so they receive it only during a rolling upgrade.
        self._are_checked = False

    def traffic(self) -> tuple[BrokerTraffic, ...]:
        """The traffic of all connections so far; may be called from any thread."""
        return tuple(
            BrokerTraffic(
                is_of_group=key.purpose is not Purpose.CLUSTER,
                host=key.host,
                port=key.port,
                counts=traffic.snapshot(),
            )
            for key, traffic in self._traffic.copy().items()
        )

    def any_open(self, purpose: Purpose) -> BrokerConnection | None:
        """An open connection for this purpose, if there is one."""
        return next((connection for key, connection in self._open.items() if key.purpose is purpose), None)

    async def get(self, purpose: Purpose, broker: BrokerAddress, timeout_s: float) -> BrokerConnection:
        """The connection to this broker for this purpose.

        If the broker could not be reached and its backoff is not over, this fails at once, so that the caller tries
        another broker instead of waiting.

        Raises:
            TransportError: there is none, and none could be made in time.
        """
        standing = self._open.get(_Key(purpose, broker.host, broker.port))
        if standing is not None:
            return standing
        if self._backoff(broker).wait_s > 0:
            # The same text again, so that logs which count repetitions take it for the same failure.
            raise TransportError(self._backoff(broker).reason)
        attempt = self._dial(purpose, broker)
        # Unlike awaiting it, this leaves the attempt to other callers when this one gives up or is cancelled.
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
        if _Key(purpose, broker.host, broker.port) not in self._open and self._backoff(broker).wait_s <= 0:
            self._dial(purpose, broker)

    def clear_backoff(self, broker: BrokerAddress) -> None:
        """Permit an attempt now, because a live broker has just named this one.

        The caller spaces its requests itself, so each of them may try the broker once.
        """
        self._backoff(broker).clear()

    async def first_of(
        self, purpose: Purpose, brokers: Sequence[BrokerAddress]
    ) -> tuple[BrokerAddress, BrokerConnection]:
        """Return the first connection to one of these brokers, tried in their order with a head start each.

        Waits for the backoff of the first that may be tried again, then tries each once.

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
                # Another caller may have connected meanwhile; a second connection in its place would leave it unclosed.
                standing = self._open.get(_Key(purpose, broker.host, broker.port))
                if standing is not None:
                    return broker, standing
                attempts[self._dial(purpose, broker)] = broker
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
        attempts = list(self._dialing.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        standing = list(self._open.values())
        self._open.clear()
        for connection in standing:
            await connection.close()

    def _dial(self, purpose: Purpose, broker: BrokerAddress) -> asyncio.Task[BrokerConnection]:
        if self._is_closed:
            raise _closed(broker)
        key = _Key(purpose, broker.host, broker.port)
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
                self._security,
                expected=self._expected(broker),
                traffic=self._traffic.setdefault(key, Traffic()),
                on_silence=lambda message: self._note_silence(backoff, message),
            )
        except TransportError as error:
            backoff.failed(error, self._longest_pause_s())
            if isinstance(error, WrongBrokerError):
                self._on_wrong_broker(broker)
            raise
        finally:
            self._dialing.pop(key, None)
        backoff.succeeded()
        offered = connection.versions.ranges.get(Api.API_VERSIONS)
        self._are_checked = offered is not None and offered.highest >= VERSIONS_FOR_ONE_BROKER
        self._open[key] = connection
        connection.on_closed = partial(self._closed, connection, key.purpose, broker)
        self._close_when_idle(connection)
        return connection

    def _expected(self, broker: BrokerAddress) -> ExpectedBroker | None:
        """The broker for ApiVersions; None if its node or its cluster is not known, or brokers do not check it."""
        if self.cluster_id is None or broker.node_id < 0 or not self._are_checked:
            return None
        return ExpectedBroker(cluster_id=self.cluster_id, node_id=broker.node_id)

    def _close_when_idle(self, connection: BrokerConnection) -> None:
        """Close the connection when it has been idle for connections.max.idle.ms; checks again until then."""
        limit_s = self._settings.max_idle_s
        if not limit_s or not connection.is_open:
            return
        left_s = limit_s - connection.idle_s
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._close_when_idle, connection)
        else:
            message = f"{connection.peer}: idle for {limit_s:g} s (connections.max.idle.ms)"
            self.drop(connection, TransportError(message))

    def _note_silence(self, backoff: _BrokerBackoff, message: str) -> None:
        """Log the silence once and remember it until the broker is reached; an attempt may take that long."""
        logger.log(logging.DEBUG if backoff.silence else logging.WARNING, "%s", message)
        backoff.silence = message
        self._on_silence(message)

    @property
    def silences(self) -> tuple[str, ...]:
        """Texts about the brokers that accept connections and do not answer."""
        return tuple(backoff.silence for backoff in self._backoffs.values() if backoff.silence)

    def _closed(
        self,
        connection: BrokerConnection,
        purpose: Purpose,
        broker: BrokerAddress,
        error: TransportError,
        had_waiters: bool,  # noqa: FBT001  # the connection calls it so
    ) -> None:
        self._forget(connection)
        self._on_lost(purpose, broker, error, had_waiters)

    def _forget(self, connection: BrokerConnection) -> None:
        self._open = {key: other for key, other in self._open.items() if other is not connection}

    def _backoff(self, broker: BrokerAddress) -> _BrokerBackoff:
        name = (broker.host, broker.port)
        backoff = self._backoffs.get(name)
        if backoff is None:
            backoff = self._backoffs[name] = _BrokerBackoff(broker, self._settings)
        return backoff


def _closed(broker: BrokerAddress) -> TransportError:
    return TransportError(f"{broker.host}:{broker.port}: the client is closed")
