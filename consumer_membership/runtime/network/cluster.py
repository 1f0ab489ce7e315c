"""Requests that any broker of the cluster answers: brokers, topics, leaders and their offsets.

It finds brokers (bootstrap, then Metadata) and retries until the caller's time is over. `coordinator_call` is the only
way to a coordinator: `group_client` uses it for requests about a group, `exchanges` for a member's requests.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar
from uuid import UUID

from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import AuthenticationError, MembershipError, TransportError, UnsupportedProtocolError
from consumer_membership.runtime.failures import logger
from consumer_membership.runtime.membership_thread import BrokerTraffic
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.connections import Connections, Listener, Pinned, Purpose
from consumer_membership.runtime.network.shared_requests import RequestBatch
from consumer_membership.runtime.network.transport import AnswerTimedOutError, BrokerConnection, canonical
from consumer_membership.translation import answers, requests
from consumer_membership.translation.metadata import ClusterMetadata, TopicMetadata, cluster_metadata, list_offsets
from consumer_membership.translation.verdicts import broker_error, is_retriable
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api, BrokerVersions

AnswerT = TypeVar("AnswerT")
CallT = TypeVar("CallT", Call, tuple[Call, ...])

#: The node id of a bootstrap server, before Metadata names it.
_UNKNOWN_NODE = -1
#: After this time, the brokers of the cluster are requested from a bootstrap server, unless another response named them
#: first. Only later connections need them, and the first steps of a member are faster without this request.
_LEARN_AFTER_S = 0.5


class BrokerRefusal(MembershipError):  # noqa: N818  # a refusal, as against a fault of the network or of ours
    """A broker answered with an error code.

    `retriable`: a later attempt may succeed. `rediscover`: it may succeed at another coordinator, which has to be
    looked up first.
    """

    def __init__(self, error: BrokerError, *, retriable: bool, rediscover: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.retriable = retriable
        self.rediscover = rediscover


_Offset: TypeAlias = int | BrokerRefusal | TransportError

#: Why a client without an address finds no broker.
NO_SERVERS = "bootstrap.servers is not set; set it to at least one HOST:PORT"


class Cluster:
    """The brokers of one cluster; every method belongs to the loop that called the first one.

    Methods raise BrokerRefusal if a broker refuses permanently, or still does when `timeout_s` is over, and
    TransportError if no broker answers in that time; the default is socket.timeout.ms.

    `connections` are shared with other clients that have the same settings; None: they are made here, with `security`,
    which is made from the settings if it is None. `on_coordinator_lost` is called when a broker ended the last
    connection to a coordinator while no request of this client was in flight on it; a request in flight fails instead.
    `on_silence` is called when a broker accepts a connection and does not answer. `longest_pause_s` limits the pause
    between two attempts to connect; None: the settings limit it. All are called in the context of the constructor's
    caller.

    Raises:
        ConfigurationError: a file for TLS cannot be read.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        security: ConnectionSecurity | None = None,
        on_coordinator_lost: Callable[[BrokerAddress, str], None] | None = None,
        on_silence: Callable[[str], None] = lambda _: None,
        *,
        longest_pause_s: Callable[[], float | None] = lambda: None,
        connections: Connections | None = None,
    ) -> None:
        self._settings = settings
        self._on_coordinator_lost = on_coordinator_lost
        self._has_own_connections = connections is None
        self._connections = connections or Connections(settings, security or ConnectionSecurity(settings))
        self._listener = Listener(self._connection_lost, on_silence, longest_pause_s)
        self._connections.add(self._listener)
        #: The latest request to a coordinator, and how many requests wait on each connection.
        self._pinned: Pinned | None = None
        self._waiting: Counter[BrokerConnection] = Counter()
        #: The coordinators that this client sent requests to.
        self._coordinators: set[BrokerAddress] = set()
        #: The leaders of the partitions whose offsets were requested, as Metadata last named them.
        self.leaders: dict[TopicPartition, BrokerAddress] = {}
        self._learning: asyncio.Task[None] | None = None
        self._bootstrap = tuple(
            BrokerAddress(node_id=_UNKNOWN_NODE, host=host, port=port) for host, port in settings.bootstrap_servers
        )

    def traffic(self) -> tuple[BrokerTraffic, ...]:
        """The traffic of its connections with each broker so far; may be called from any thread."""
        return self._connections.traffic()

    @property
    def connections(self) -> Connections:
        """The connections in use."""
        return self._connections

    def use(self, connections: Connections) -> None:
        """Send later requests over these connections; requests in flight keep theirs."""
        if connections is not self._connections:
            self._connections.remove(self._listener)
            self._connections = connections
            connections.add(self._listener)

    async def close(self) -> None:
        """End the connections that no other client uses; requests in flight on them fail."""
        self._connections.remove(self._listener)
        if self._has_own_connections:
            await self._connections.close()
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)

    async def brokers(self, timeout_s: float | None = None) -> tuple[BrokerAddress, ...]:
        """The brokers of the cluster."""
        found = await self.metadata((), timeout_s)
        return tuple(found.brokers.values())

    async def topics(
        self, names: Iterable[str] | None = None, timeout_s: float | None = None
    ) -> Mapping[str, TopicMetadata]:
        """The topics of these names (None: all), each with its partitions or its error."""
        return (await self.metadata(names, timeout_s)).topics

    async def metadata(self, names: Iterable[str] | None, timeout_s: float | None = None) -> ClusterMetadata:
        """The cluster's id, controller and brokers, and the topics of these names (None: all)."""
        wanted = None if names is None else tuple(names)
        return await self._retry("metadata", timeout_s, lambda: self._topics_named(wanted))

    async def topic_names(self, topic_ids: frozenset[UUID], timeout_s: float) -> Mapping[UUID, str]:
        """The names of these topic ids; unknown ids, and ids that this client must not see, are absent."""
        if not topic_ids:
            return {}
        found = await self._retry(
            "the names of topics",
            timeout_s,
            # Half of the time: a connection that fails silently leaves time for another one.
            lambda: self._topics_of(topic_ids, timeout_s / 2),
        )
        # Only a topic that exists and that this client may see has a name; its partitions may have errors.
        return {topic.topic_id: name for name, topic in found.topics.items() if topic.topic_id in topic_ids}

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        timeout_s: float,
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """Return the offset at each partition's timestamp, or the reason why it is unknown when the time is over.

        A timestamp is -1 for the end, -2 for the start, or ms since 1970; an offset of -1 means that no record is that
        young. Each leader receives a request, and a leader that moved is looked up again. Offsets that are already
        known are kept.
        """
        found: dict[TopicPartition, _Offset] = {}
        missing = dict(partitions)

        async def request() -> None:
            failure: BrokerRefusal | TransportError | None = None
            answers = await self._offsets_of_leaders(missing, read_committed=read_committed)
            for partition, answer in answers.items():
                found[partition] = answer
                if not isinstance(answer, int) and _may_pass(answer):
                    failure = answer
                else:
                    del missing[partition]
            if failure is not None:
                raise failure

        if missing:
            try:
                await self._retry("offsets", timeout_s, request)
            except (TransportError, BrokerRefusal) as error:
                return dict.fromkeys(missing, error) | found
        return found

    async def end_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """Return the end of each partition (its high watermark), or why it is unknown; one request to each leader."""
        return await self._offsets_of_leaders(
            dict.fromkeys(partitions, requests.LATEST_TIMESTAMP), read_committed=False
        )

    async def stable_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """Like `end_offsets`, for the last stable offset: the end for read_committed consumers."""
        return await self._offsets_of_leaders(dict.fromkeys(partitions, requests.LATEST_TIMESTAMP), read_committed=True)

    async def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """Like `end_offsets`, for the offset of the oldest record that still exists."""
        return await self._offsets_of_leaders(
            dict.fromkeys(partitions, requests.EARLIEST_TIMESTAMP), read_committed=False
        )

    async def offsets_at(
        self, partitions: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """Like `end_offsets`, for the first offset not older than each partition's moment (ms); -1: there is none."""
        return await self._offsets_of_leaders(partitions, read_committed=False)

    async def _offsets_of_leaders(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> Mapping[TopicPartition, _Offset]:
        if not partitions:
            return {}
        found = await self._topics_named({partition.topic for partition in partitions})
        by_leader: dict[BrokerAddress, dict[TopicPartition, int]] = defaultdict(dict)
        answers: dict[TopicPartition, _Offset] = {}
        for partition, timestamp in partitions.items():
            leader = _leader(found, partition)
            if isinstance(leader, BrokerAddress):
                by_leader[leader][partition] = timestamp
                self.leaders[partition] = leader
            else:
                answers[partition] = _refusal(leader)
        for leader in by_leader:
            self._connections.clear_backoff(leader)
        for of_leader in await asyncio.gather(
            *(
                self._offsets_of_leader(leader, share, read_committed=read_committed)
                for leader, share in by_leader.items()
            )
        ):
            answers |= of_leader
        return answers

    async def _offsets_of_leader(
        self, leader: BrokerAddress, partitions: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> Mapping[TopicPartition, _Offset]:
        timeout_s = self._settings.socket_timeout_s
        try:
            connection = await self._connections.get(Purpose.CLUSTER, leader, timeout_s)
            call = negotiated(
                connection, lambda versions: requests.list_offsets(versions, partitions, read_committed=read_committed)
            )
            message = await self._send(connection, call, timeout_s)
        except (TransportError, BrokerRefusal) as error:
            return dict.fromkeys(partitions, error)
        return {
            partition: _refusal(answer) if isinstance(answer, BrokerError) else answer
            for partition, answer in list_offsets(message, partitions).items()
        }

    # ---- coordinators ------------------------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str, timeout_s: float | None = None) -> BrokerAddress:
        """Look up the group's coordinator at one broker, in one attempt; a refusal has whether a retry may help.

        The connection of a broker that does not answer within `timeout_s` (socket.timeout.ms at most) is closed.
        """
        key = "coordinator", timeout_s

        async def look_up() -> BrokerAddress | BrokerError:
            requests_now = self._connections.shared_requests
            return await requests_now.in_batch(key, group_id, lambda groups: self._coordinators_of(groups, timeout_s))

        # A later call for a group whose lookup is in flight waits for that lookup.
        found = await self._connections.shared_requests.together((*key, group_id), look_up)
        if isinstance(found, BrokerError):
            raise _refusal(found)
        self._connections.clear_backoff(found)
        return found

    async def _coordinators_of(
        self, groups: RequestBatch[str], timeout_s: float | None
    ) -> Mapping[str, BrokerAddress | BrokerError]:
        """Look up all groups with one request, or with one each at brokers before version 4 of FindCoordinator."""
        connection = await self._any()
        group_ids = groups.take()
        calls = negotiated(connection, lambda versions: requests.find_coordinators(versions, group_ids))
        limit_s = self._patience_s(timeout_s)
        messages = await asyncio.gather(*(self._send(connection, call, limit_s) for call in calls))
        of_all = messages * len(group_ids) if len(messages) == 1 else messages
        return {
            group_id: answers.find_coordinator(message, group_id)
            for group_id, message in zip(group_ids, of_all, strict=True)
        }

    async def with_coordinator(
        self,
        group_id: str,
        what: str,
        timeout_s: float,
        request: Callable[[BrokerAddress, float], Awaitable[AnswerT]],
        lookup_s: float | None = None,
    ) -> AnswerT:
        """Return the result of `request(coordinator, seconds left)`, retried with backoff while that may help.

        The coordinator is looked up before each attempt: it may have moved, and the lookup costs a round trip. If a
        broker does not name it within `lookup_s` (None: socket.timeout.ms), the next lookup uses a new connection.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s

        async def attempt() -> AnswerT:
            coordinator = await self.find_coordinator(group_id, lookup_s)
            return await request(coordinator, deadline - clock())

        return await self._retry(what, timeout_s, attempt)

    def prepare(self, coordinator: BrokerAddress) -> None:
        """Begin to connect to this coordinator, for a request that follows soon."""
        self._connections.prepare(Purpose.GROUP, coordinator)

    async def coordinator_call(
        self,
        coordinator: BrokerAddress,
        build: Callable[[BrokerVersions], Call],
        timeout_s: float,
        *,
        purpose: Purpose = Purpose.GROUP,
        answer_s: float | None = None,
        ends_connection: bool = True,
        on_write: Callable[[], None] = lambda: None,
    ) -> Message:
        """Return a coordinator's response to one request, tried once; all requests to coordinators use this method.

        `timeout_s` limits connecting, and also connecting and the response together unless `answer_s` gives the
        response more time. If no response comes in time, the connection is closed, so that the next request makes a new
        one, which works if the old one's packets are lost. It stays open if the broker has sent anything since the
        request was written, or if `ends_connection` is False: then the missing response proves nothing about the
        connection, which other requests share. A canceled rebalance request also ends its connection, so that the next
        one does not wait behind it. `on_write` is called right before the request is written; if it raises, the request
        is not written.

        Raises:
            UnsupportedProtocolError: the broker and this package have no version in common.
            TransportError: no response.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (timeout_s if answer_s is None else answer_s)
        connection = await self._connection(purpose, coordinator, timeout_s)
        call = build(connection.versions)
        if clock() >= deadline:
            raise TransportError(f"{connection.peer}: not connected within {timeout_s:.3g} s")
        on_write()
        written_at = clock()
        if purpose is Purpose.GROUP:
            self._pinned = Pinned(connection, coordinator, connection.written + 1)
            self._coordinators.add(coordinator)
        self._waiting[connection] += 1
        try:
            # The request is written before this coroutine is suspended: nothing comes between it and `on_write`.
            return await connection.request(call, deadline - clock())
        except AnswerTimedOutError as error:
            if ends_connection and connection.responded_at < written_at:
                self._connections.drop(connection, error)
            raise
        except asyncio.CancelledError:
            if purpose is Purpose.REBALANCE:
                self._connections.drop(connection, TransportError(f"{connection.peer}: {call.name} was cancelled"))
            raise
        finally:
            self._waiting[connection] -= 1
            self._waiting += Counter()  # drops connections without a request

    async def _connection(self, purpose: Purpose, coordinator: BrokerAddress, timeout_s: float) -> BrokerConnection:
        """Return the connection for the next request, which must not overtake an earlier one."""
        if purpose is Purpose.GROUP and self._pinned is not None and self._pinned.holds(coordinator):
            return self._pinned.connection
        return await self._connections.get(purpose, coordinator, timeout_s, self._listener)

    # ---- any broker --------------------------------------------------------------------------------------------------

    async def group_config(self, group_id: str, timeout_s: float) -> Mapping[str, str]:
        """Return the group's session timeout and heartbeat interval, by `translation.requests.GROUP_CONFIG_KEYS`.

        They are the broker's defaults if the group has no settings of its own; the group need not exist. Keys that the
        broker does not know are absent. Requires the right DESCRIBE_CONFIGS on the group.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._any()
        except TimeoutError as error:
            raise TransportError(f"No broker could be reached within {timeout_s:.3g} s") from error
        call = negotiated(connection, lambda versions: requests.describe_group_config(versions, group_id))
        found = answers.group_config(await self._send(connection, call, deadline - clock()), group_id)
        if isinstance(found, BrokerError):
            raise _refusal(found)
        return found

    def offers(self, api: Api) -> bool:
        """Whether a connected broker offers this API."""
        connection = self._connections.any_open(Purpose.CLUSTER)
        return connection is not None and api.value in connection.versions.ranges

    async def any_call(
        self, build: Callable[[BrokerVersions], Call], timeout_s: float | None = None, *, connects: bool = True
    ) -> Message:
        """Return any broker's answer to one request, tried once; without `connects`, only on an open connection.

        Raises:
            UnsupportedProtocolError: the broker and this package have no version in common.
            TransportError: no answer within `timeout_s` (None: socket.timeout.ms), or no connection.
        """
        limit_s = self._patience_s(timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                connection = self._connections.any_open(Purpose.CLUSTER)
                if connection is None and not connects:
                    raise TransportError("No connection is open")
                connection = connection or await self._any()
        except TimeoutError as error:
            raise TransportError(f"No broker could be reached within {limit_s:.3g} s") from error
        return await self._send(connection, build(connection.versions), limit_s)

    async def _topics_named(self, names: Iterable[str] | None) -> ClusterMetadata:
        may_create = self._settings.allow_auto_create_topics
        wanted = None if names is None else frozenset(names)
        return await self._connections.shared_requests.together(
            ("metadata", wanted),
            lambda: self._metadata(
                lambda versions: requests.metadata_of_names(versions, wanted, may_create=may_create)
            ),
        )

    async def _topics_of(self, topic_ids: frozenset[UUID], timeout_s: float) -> ClusterMetadata:
        return await self._connections.shared_requests.together(
            ("names", topic_ids, timeout_s),
            lambda: self._metadata(lambda versions: requests.metadata_of_ids(versions, topic_ids), timeout_s),
        )

    async def _metadata(
        self, build: Callable[[BrokerVersions], Call], timeout_s: float | None = None
    ) -> ClusterMetadata:
        connection = await self._any()
        message = await self._send(connection, negotiated(connection, build), self._patience_s(timeout_s))
        found = cluster_metadata(message)
        if isinstance(found, BrokerError):
            # REBOOTSTRAP_REQUIRED (KIP-1102): the known brokers, and this connection, are no longer of use.
            if self._settings.rebootstraps:
                self._connections.known_brokers = {}
            self._connections.drop(connection, TransportError(f"{connection.peer}: {found}"))
            raise BrokerRefusal(found, retriable=True)
        self._connections.known_brokers = found.brokers or self._connections.known_brokers
        self._connections.cluster_id = found.cluster_id
        return found

    async def _any(self) -> BrokerConnection:
        """Return a connection to any broker: an open one, else to a known broker, else to a bootstrap server.

        With metadata.recovery.strategy=none, bootstrap servers are used only as long as no broker is known (KIP-899).
        """
        standing = await self._connections.any_free(Purpose.CLUSTER, self._settings.socket_timeout_s)
        if standing is not None:
            return standing
        if not self._connections.known_brokers and not self._bootstrap:
            raise TransportError(NO_SERVERS)
        known = random.sample(list(self._connections.known_brokers.values()), len(self._connections.known_brokers))
        bootstrap = () if known and not self._settings.rebootstraps else await self._bootstrap_servers()
        others = random.sample(bootstrap, len(bootstrap))
        try:
            broker, connection = await self._connections.first_of(Purpose.CLUSTER, (*known, *others))
        except TransportError as error:
            raise type(error)(f"No broker can be reached: {error}") from error
        if broker.node_id == _UNKNOWN_NODE:
            self._learn_brokers_soon()
        return connection

    async def _bootstrap_servers(self) -> tuple[BrokerAddress, ...]:
        """The configured bootstrap servers, or the names of their addresses (client.dns.lookup)."""
        if not self._settings.has_canonical_bootstrap:
            return self._bootstrap
        found: dict[BrokerAddress, None] = {}
        for server in self._bootstrap:
            try:
                names = await canonical(server.host, server.port, self._settings.address_family)
            except TransportError as error:
                logger.debug("%s:%d cannot be resolved and is used unchanged: %s", server.host, server.port, error)
                names = (server.host,)  # the attempt to connect reports the cause
            found |= dict.fromkeys(BrokerAddress(node_id=_UNKNOWN_NODE, host=name, port=server.port) for name in names)
        return tuple(found)

    def _learn_brokers_soon(self) -> None:
        """Request the brokers of the cluster, after the request for which the connection was made."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn_brokers(), name="the cluster's brokers")

    async def _learn_brokers(self) -> None:
        await asyncio.sleep(_LEARN_AFTER_S)
        if self._connections.known_brokers:
            return
        try:
            await self.metadata(())
        except (BrokerRefusal, TransportError) as error:
            logger.debug("The brokers of the cluster are unknown: %s", error)

    def _patience_s(self, timeout_s: float | None) -> float:
        """The time limit of one answer."""
        limit_s = self._settings.socket_timeout_s
        return limit_s if timeout_s is None else min(limit_s, timeout_s)

    async def _send(self, connection: BrokerConnection, call: Call, timeout_s: float) -> Message:
        """Send one request; if neither its answer nor any other comes in time, the connection is closed."""
        written_at = asyncio.get_running_loop().time()
        try:
            return await connection.request(call, timeout_s)
        except AnswerTimedOutError as error:
            if connection.responded_at < written_at:
                self._connections.drop(connection, error)
            raise

    async def _retry(self, what: str, timeout_s: float | None, request: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Retry until there is an answer, a final refusal, or no time left; then raise the last failure."""
        limit_s = self._settings.socket_timeout_s if timeout_s is None else timeout_s
        failures: list[MembershipError] = []

        async def attempt() -> AnswerT:
            try:
                return await request()
            except (BrokerRefusal, TransportError) as error:
                logger.debug("The request for %s failed: %s", what, error)
                failures.append(error)
                raise

        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(
                multiplier=self._settings.reconnect_backoff_s, max=self._settings.reconnect_backoff_max_s
            ),
        )
        try:
            async with asyncio.timeout(limit_s):
                return await retrying(attempt)
        except TimeoutError as error:
            if failures:
                raise failures[-1] from error
            message = f"No broker responded within {limit_s:.3g} s to the request for {what}"
            raise TransportError(": ".join((message, *self._connections.silences))) from error

    def _connection_lost(self, broker: BrokerAddress, error: TransportError, connection: BrokerConnection) -> None:
        """Handle the loss of the last connection to a coordinator, which another client may have opened."""
        if self._on_coordinator_lost is None or broker not in self._coordinators:
            return
        self._coordinators.discard(broker)
        logger.info(
            "Group coordinator %s is unavailable or invalid due to cause: %s. Rediscovery will be attempted.",
            broker,
            error,
        )
        if connection not in self._waiting:
            self._on_coordinator_lost(broker, str(error))


def negotiated(connection: BrokerConnection, build: Callable[[BrokerVersions], CallT]) -> CallT:
    """Return the call or calls in this broker's version, or raise a permanent refusal (UNSUPPORTED_VERSION)."""
    try:
        return build(connection.versions)
    except UnsupportedProtocolError as error:
        raise unsupported(error) from error


def unsupported(error: UnsupportedProtocolError) -> BrokerRefusal:
    """UNSUPPORTED_VERSION as a permanent refusal, for a request that the broker does not support."""
    return BrokerRefusal(broker_error(ErrorCode.unsupported_version, str(error)), retriable=False)


def _refusal(error: BrokerError) -> BrokerRefusal:
    return BrokerRefusal(error, retriable=is_retriable(error.code))


def _leader(found: ClusterMetadata, partition: TopicPartition) -> BrokerAddress | BrokerError:
    """The partition's leader, or the cluster's error."""
    name = f"{partition.topic} [{partition.partition}]"
    topic = found.topics.get(partition.topic)
    if topic is not None and topic.error is not None:
        return topic.error
    metadata = None if topic is None else topic.partitions.get(partition.partition)
    if metadata is None:
        return broker_error(ErrorCode.unknown_topic_or_partition, name)
    if metadata.leader is None or metadata.leader not in found.brokers:
        return broker_error(ErrorCode.leader_not_available, name)
    return found.brokers[metadata.leader]


def _may_pass(error: BaseException) -> bool:
    """Whether a retry may help; not after refused credentials: some brokers lock an account after a few refusals."""
    if isinstance(error, AuthenticationError):
        return False
    return isinstance(error, TransportError) or (isinstance(error, BrokerRefusal) and error.retriable)
