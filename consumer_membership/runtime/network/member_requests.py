"""Performs a member's effects for the network: each is tried once, or until it succeeds, and answered with an event.

One table has the handler of each effect. In addition, there are the application's questions, which use the member's
connections and do not involve the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic, time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from consumer_membership.config import ByDuration, OffsetReset, StartSettings
from consumer_membership.errors import AuthenticationError, InternalError, TransportError, UnsupportedProtocolError
from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicEffect,
    ComputeAssignment,
    DescribeTopics,
    LeaderEffect,
    NotifyAssignor,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
)
from consumer_membership.membership.effects import (
    CheckHolder,
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    FindCoordinator,
    LearnSessionTimeout,
    LookUpTopics,
    NetworkEffect,
    ReadAnnouncements,
    ResolveTopicIds,
    SendHeartbeat,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLookupFailed,
    Event,
    GroupDescribed,
    GroupDescribeFailed,
    HeartbeatFailed,
    HeartbeatRejected,
    HolderChecked,
    SessionTimeoutLearned,
    StartOffsetsFailed,
    StartOffsetsFetched,
    TopicIdsResolved,
    TopicsLookedUp,
    TopicsNotLookedUp,
    Verdict,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.states import SILENT
from consumer_membership.runtime.line import EndOffsets, RefusedError, UnansweredError
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.runtime.membership_thread import KnownCommit
from consumer_membership.runtime.network.announcements import Announcements
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.exchanges import (
    NOT_KNOWN,
    REQUEST_TIMEOUT_S,
    CoordinatorEffect,
    ExchangeOutcome,
    exchange,
    unreached,
)
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.runtime.network.leader_requests import LeaderRequests
from consumer_membership.runtime.network.offsets_ahead import FoundOffsets, OffsetsAhead
from consumer_membership.runtime.network.outbox import Outbox, Turn
from consumer_membership.translation.descriptions import GroupDescription, MemberDescription
from consumer_membership.translation.metadata import present_of, refused_of
from consumer_membership.translation.requests import SESSION_TIMEOUT_KEY, MemberIdentity
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import (
    CONFLICT_CODE,
    JOIN_EPOCH,
    NO_EPOCH,
    NO_MEMBER_ID,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    GroupProtocol,
    Holder,
    OffsetAndMetadata,
    TopicPartition,
)
from consumer_membership.wire.error_codes import ErrorCode

if TYPE_CHECKING:  # it imports more than a consumer needs
    from consumer_membership.runtime.network.process_locks import ProcessLocks

_LOG = PackageLog("consumer_membership.network", "BROKER")

Handler: TypeAlias = Callable[[Any], Awaitable[GroupEvent]]

#: The effects of both protocols for the network, and for the assignor.
NetworkOrder: TypeAlias = NetworkEffect | ClassicEffect | LeaderEffect

#: The time limit of a SyncGroup, which is answered when the leader's assignor is ready: Java's request.timeout.ms.
SYNC_TIMEOUT_S = 30.0
#: The time limit of ListOffsets for partitions without committed offset; librdkafka looks the rest up itself.
LIST_OFFSETS_TIMEOUT_S = 3.0
#: The start of a partition without committed offset, in the form of ListOffsets.
_LATEST, _EARLIEST = -1, -2
#: The result of ListOffsets if no record is as young as the timestamp.
_NO_RECORD = -1
#: librdkafka's OFFSET_INVALID: with auto.offset.reset=error it reports the partition to the application itself.
_NO_OFFSET = -1001
#: States of a classic group whose members get another assignment soon.
_IN_BETWEEN = frozenset({"PreparingRebalance", "CompletingRebalance"})
_COMES_BACK = "it rejoins with the consumer protocol"
#: librdkafka's number for a broker that lacks a feature.
UNSUPPORTED_CODE = -165
#: The text of confluent-kafka.
_NOT_FETCHED = "Failed to get committed offsets"


class MemberRequests:
    """Performs the network's effects of one member, on the loop of its thread.

    `report` receives news for the core before an effect is answered: why the coordinator is not found yet. `locks`
    prove to other processes that this one lives (`takeover-when-dead`); None: another policy.
    """

    def __init__(
        self,
        cluster: Cluster,
        member: MemberCore,
        start: StartSettings,
        report: Callable[[Event], None],
        locks: ProcessLocks | None = None,
    ) -> None:
        self._locks = locks
        self._cluster = cluster
        self._group = GroupClient(cluster)
        self._member = member
        self._start = start
        self._report = report
        #: The latest reported failure of the running lookup.
        self._reported: BrokerError | None = None
        self._is_looking_up = False
        self._outbox = Outbox()
        #: The task of the JoinGroup or SyncGroup in flight.
        self._rebalance: asyncio.Task[object] | None = None
        #: The committed offsets that this member knows; only changed key by key, so that another thread may copy it.
        self.committed_offsets: dict[TopicPartition, KnownCommit] = {}
        #: The names of the subscribed topics according to their latest check; the name of an id never changes.
        self._topic_names: Mapping[UUID, str] = {}
        self._ahead = OffsetsAhead(self._read_ahead)
        leader = LeaderRequests(cluster, member)
        self._announcements = Announcements(cluster, member.settings.group_id)
        #: The handler of each effect.
        self.handlers: Mapping[type[NetworkOrder], Handler] = MappingProxyType(
            {
                SendHeartbeat: self._heartbeat,
                CommitOffsets: self._commit,
                SendJoin: self._rebalancing,
                SendSync: self._rebalancing,
                SendClassicHeartbeat: self._exchange,
                SendClassicLeave: self._leave,
                FindCoordinator: self._find_coordinator,
                DescribeGroup: self._describe,
                CheckHolder: self._check_holder,
                LearnSessionTimeout: self._learn_session_timeout,
                ReadAnnouncements: self._announcements.read,
                WriteAnnouncement: self._announcements.write,
                ResolveTopicIds: self._resolve,
                LookUpTopics: self._look_up,
                FetchCommitted: self._fetch_committed,
                DescribeTopics: leader.describe_topics,
                ComputeAssignment: leader.compute_assignment,
                NotifyAssignor: leader.notify_assignor,
            }
        )

    async def close(self) -> None:
        """End the reading of committed offsets that no order waits for."""
        await self._ahead.close()

    async def answer_to(self, order: NetworkOrder) -> GroupEvent:
        """Perform this effect and return the event that answers it, which also reports every failure."""
        return await self.handlers[type(order)](order)

    # ---- with the coordinator ----------------------------------------------------------------------------------------

    async def _exchange(
        self,
        order: CoordinatorEffect,
        inspect: Callable[[BrokerAddress, Turn], Awaitable[ExchangeOutcome | None]] | None = None,
    ) -> ExchangeOutcome:
        """Send this request in its turn (`outbox`), after a check of the group that may make it unnecessary."""
        coordinator = self._member.coordinator
        if coordinator is None:
            return await self._send(order, None, lambda: None)
        may_go = asyncio.Event()
        turn = self._outbox.enter(
            coordinator,
            may_go.set,
            is_join=isinstance(order, SendHeartbeat) and order.heartbeat.member_epoch == JOIN_EPOCH,
            is_leave=isinstance(order, SendHeartbeat) and order.heartbeat.is_leave,
        )
        try:
            await may_go.wait()
            outcome = None if inspect is None else await inspect(coordinator, turn)
            return outcome or await self._send(order, coordinator, partial(self._write, order, turn))
        finally:
            turn.end()

    def _write(self, order: CoordinatorEffect, turn: Turn) -> None:
        turn.write()
        if isinstance(order, SendHeartbeat):
            # The join is written before the task of the reading begins.
            self._ahead.begin(order.expected)
        if isinstance(order, SendJoin | SendSync):
            # It may wait at the coordinator for other members; later requests do not wait for its response.
            turn.end()

    async def _send(
        self, order: CoordinatorEffect, coordinator: BrokerAddress | None, on_write: Callable[[], None]
    ) -> ExchangeOutcome:
        timeout_s = REQUEST_TIMEOUT_S
        if isinstance(order, SendSync):
            timeout_s = SYNC_TIMEOUT_S
        elif isinstance(order, SendClassicHeartbeat):
            timeout_s = min(REQUEST_TIMEOUT_S, self._member.classic.session_timeout_s)
        member = self._member
        return await exchange(
            self._cluster,
            coordinator,
            member.settings.group_id,
            order,
            timeout_s,
            is_classic=member.protocol is GroupProtocol.CLASSIC,
            on_write=on_write,
        )

    async def _heartbeat(self, order: SendHeartbeat) -> ExchangeOutcome:
        """Send one heartbeat; before a join that may convert a live classic group, check whether there is one.

        A classic group that begins between this check and the join is converted.
        """
        instance_id = order.heartbeat.instance_id
        is_static_join = instance_id is not None and order.heartbeat.member_epoch == JOIN_EPOCH
        if self._locks is not None and instance_id is not None and is_static_join:
            # Before the join: the member may die at any moment after it.
            self._locks.hold(instance_id, order.heartbeat.member_id)
        if order.is_consumer_group or not (order.refuse_conversion or is_static_join):
            return await self._exchange(order)
        return await self._exchange(order, partial(self._inspect_classic_group, order))

    async def _inspect_classic_group(
        self, order: SendHeartbeat, coordinator: BrokerAddress, turn: Turn
    ) -> HeartbeatRejected | HeartbeatFailed | None:
        """Return the outcome of a join that must not be sent, or whose member leaves meanwhile; None: send the join."""
        instance_id, group_id = order.heartbeat.instance_id, self._member.settings.group_id
        try:
            found = await self._group.describe_classic_group(coordinator, group_id, REQUEST_TIMEOUT_S)
            turn.check()
            if found.members and order.refuse_conversion:
                return _conversion_refused(order, found)
            holder = next((one for one in found.members if one.instance_id == instance_id is not None), None)
            if holder is not None and not order.may_take_over:
                return _unreleased(order, holder)
            if holder is not None and await self._is_outdated(found):
                turn.check()
                await self._remove_predecessor(coordinator, MemberIdentity(instance_id=instance_id))
                turn.check()
        except TransportError as error:
            return HeartbeatFailed(request_id=order.request_id, reason=str(error), is_sent=False)
        except BrokerRefusal as refusal:
            if refusal.retriable or refusal.rediscover:
                return HeartbeatFailed(request_id=order.request_id, reason=str(refusal.error), is_sent=False)
            # There is no classic group, or this client must not see it: the join gets the same response.
        return None

    async def _is_outdated(self, group: GroupDescription) -> bool:
        """Whether a classic group's assignment is about to change, or leaves partitions out."""
        if group.state in _IN_BETWEEN:
            return True
        topics = {topic for member in group.members for topic in member.topics}
        found = await self._cluster.topics(topics, REQUEST_TIMEOUT_S)
        there = {TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions}
        return not there <= {partition for member in group.members for partition in member.assignment}

    async def _remove_predecessor(self, coordinator: BrokerAddress, instance: MemberIdentity) -> None:
        """Remove the classic member with this member's instance id, so that this one joins as a new member.

        The join of a replacement converts the group without computing an assignment: partitions that the classic
        members were about to share, or had not seen yet, would be in no member's target from then on (KAFKA-21582).
        """
        _LOG.info(
            "Removing the classic member with group.instance.id %s before the conversion of its group",
            instance.instance_id,
        )
        await self._group.remove_members(
            coordinator, self._member.settings.group_id, [instance], _COMES_BACK, REQUEST_TIMEOUT_S
        )

    async def _rebalancing(self, order: SendJoin | SendSync) -> ExchangeOutcome:
        """Send a JoinGroup or SyncGroup; cancel the earlier one, behind which it would wait at the coordinator."""
        if self._member.coordinator is not None:
            self._give_up_rebalance(asyncio.current_task())
        return await self._exchange(order)

    async def _leave(self, order: SendClassicLeave) -> ExchangeOutcome:
        if self._member.coordinator is not None:
            self._give_up_rebalance(None)
        return await self._exchange(order)

    def _give_up_rebalance(self, following: asyncio.Task[object] | None) -> None:
        if self._rebalance is not None and not self._rebalance.done():
            self._rebalance.cancel()
        self._rebalance = following

    async def _commit(self, order: CommitOffsets) -> ExchangeOutcome:
        outcome = await self._exchange(order)
        answer = outcome.answer if isinstance(outcome, ClassicCommitAnswered) else outcome
        if isinstance(answer, CommitAnswered):
            good = {partition for partition, error in answer.errors.items() if error is None}
            self._note_committed({partition: at for partition, at in order.offsets.items() if partition in good})
        return outcome

    def _note_committed(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        now = monotonic()
        for partition, offset in committed.items():
            self.committed_offsets[partition] = KnownCommit(offset, now)

    # ---- the coordinator's lookup ------------------------------------------------------------------------------------

    async def _find_coordinator(self, _: FindCoordinator) -> Event:
        settings = self._member.settings
        self._reported = None
        attempts = AsyncRetrying(
            wait=wait_random_exponential(multiplier=settings.retry_backoff_s, max=settings.retry_backoff_max_s),
            retry=retry_if_exception_type((TransportError, BrokerRefusal, UnsupportedProtocolError)),
            before_sleep=lambda state: self._report_lookup(state.outcome.exception() if state.outcome else None),
        )
        self._is_looking_up = True
        try:
            async for attempt in attempts:
                with attempt:
                    return CoordinatorFound(
                        coordinator=await self._cluster.find_coordinator(settings.group_id, REQUEST_TIMEOUT_S)
                    )
        finally:
            self._is_looking_up = False
        raise InternalError("a coordinator lookup ended without an answer")

    def note_silence(self, message: str) -> None:
        """Report a broker that accepts a connection and does not respond, if the member looks for its coordinator.

        The lookup itself fails only after socket.connection.setup.timeout.ms (30 s).
        """
        if self._is_looking_up:
            self._report_lookup(TransportError(message))

    def _report_lookup(self, error: BaseException | None) -> None:
        """Report why the coordinator is not found, whenever the cause changes; the lookup continues."""
        match error:
            case BrokerRefusal():
                refusal, is_final = error.error, not error.retriable
            case AuthenticationError():
                code = ErrorCode.sasl_authentication_failed
                refusal, is_final = BrokerError(code=code.value, name=code.name.upper(), message=str(error)), False
            case UnsupportedProtocolError():
                message = str(error)
                refusal, is_final = (
                    BrokerError(code=UNSUPPORTED_CODE, name="_UNSUPPORTED_FEATURE", message=message),
                    True,
                )
            case _:
                refusal, is_final = unreached(error), False
        if refusal != self._reported:
            self._reported = refusal
            self._report(CoordinatorLookupFailed(error=refusal, is_final=is_final))

    async def _describe(self, effect: DescribeGroup) -> Event:
        """Return the holders of instance ids; a group that does not exist, or is a classic group, has none."""
        coordinator, group_id = self._member.coordinator, self._member.settings.group_id
        if coordinator is None:
            return GroupDescribeFailed(request_id=effect.request_id, error=unreached(NOT_KNOWN))
        try:
            found = await self._group.describe_consumer_group(coordinator, group_id, REQUEST_TIMEOUT_S)
        except BrokerRefusal as refusal:
            if refusal.error.code == ErrorCode.group_id_not_found:
                return GroupDescribed(request_id=effect.request_id, holders={})
            return GroupDescribeFailed(request_id=effect.request_id, error=refusal.error)
        except (TransportError, UnsupportedProtocolError) as failure:
            return GroupDescribeFailed(request_id=effect.request_id, error=unreached(failure))
        holders = {
            member.instance_id: Holder(
                member_id=member.member_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                host=member.host,
                partitions=member.assignment if effect.with_partitions else frozenset(),
            )
            for member in found.members
            if member.instance_id is not None
        }
        return GroupDescribed(request_id=effect.request_id, holders=holders)

    async def _check_holder(self, effect: CheckHolder) -> Event:
        """Return whether the process of the holder has ended, according to its lock file."""
        is_dead = self._locks is not None and self._locks.is_dead(effect.instance_id, effect.member_id)
        return HolderChecked(request_id=effect.request_id, is_dead=is_dead)

    async def _learn_session_timeout(self, _: LearnSessionTimeout) -> Event:
        """The group's session timeout; None if the broker does not report it."""
        if self._locks is not None:
            # Once in a session, which is more often than any cleaner of temporary files works.
            self._locks.refresh()
        try:
            found = await self._cluster.group_config(self._member.settings.group_id, REQUEST_TIMEOUT_S)
            return SessionTimeoutLearned(session_timeout_s=int(found[SESSION_TIMEOUT_KEY]) / 1000)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError, KeyError, ValueError) as error:
            _LOG.debug("The session timeout of the group could not be read: %s", error)
            return SessionTimeoutLearned(session_timeout_s=None)

    async def _resolve(self, effect: ResolveTopicIds) -> Event:
        """Return the names of these topics; without a request if the latest check of subscriptions found them all."""
        if effect.topic_ids <= self._topic_names.keys():
            return TopicIdsResolved(names={topic_id: self._topic_names[topic_id] for topic_id in effect.topic_ids})
        try:
            names = await self._cluster.topic_names(effect.topic_ids, REQUEST_TIMEOUT_S)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError) as error:
            _LOG.debug("Topic ids could not be resolved: %s", error)
            names = {}
        return TopicIdsResolved(names=names)

    async def _look_up(self, effect: LookUpTopics) -> Event:
        """Check whether the topics exist; with `allow.auto.create.topics` the broker creates those that do not."""
        try:
            found = await self._cluster.metadata(effect.topics, REQUEST_TIMEOUT_S)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError) as error:
            _LOG.debug("The request for the subscribed topics failed: %s", error)
            return TopicsNotLookedUp(request_id=effect.request_id, error=unreached(error))
        self._topic_names = {one.topic_id: one.name for one in found.topics.values() if one.topic_id and not one.error}
        return TopicsLookedUp(
            request_id=effect.request_id, names=present_of(found), refused=refused_of(found, effect.topics)
        )

    async def _fetch_committed(self, effect: FetchCommitted) -> Event:
        coordinator = self._member.coordinator
        if coordinator is None:
            return _no_start(effect, NOT_KNOWN)
        # A classic member fetches without identity, as Java's client does: the request has no field for its generation.
        is_classic = self._member.protocol is GroupProtocol.CLASSIC
        try:
            committed = await self._ahead.take(effect.partitions)
            if committed is None:
                committed = await self._fetch(
                    coordinator,
                    effect.partitions,
                    member_id=NO_MEMBER_ID if is_classic else effect.member_id,
                    member_epoch=NO_EPOCH if is_classic else effect.member_epoch,
                )
            self._note_committed(committed)
            offsets = {partition: found.offset for partition, found in committed.items() if found is not None}
            offsets |= await self._reset(effect.partitions - offsets.keys())
        except BrokerRefusal as error:
            return StartOffsetsFailed(
                attempt=effect.attempt, error=error.error, retriable=error.retriable, rediscover=error.rediscover
            )
        except UnsupportedProtocolError as error:
            fault = BrokerError(code=UNSUPPORTED_CODE, name="_UNSUPPORTED_FEATURE", message=str(error))
            return StartOffsetsFailed(attempt=effect.attempt, error=fault, retriable=False)
        except TransportError as error:
            return _no_start(effect, error)
        return StartOffsetsFetched(attempt=effect.attempt, offsets=offsets)

    async def _fetch(
        self, coordinator: BrokerAddress, partitions: frozenset[TopicPartition], *, member_id: str, member_epoch: int
    ) -> FoundOffsets:
        return await self._group.fetch_committed(
            coordinator,
            self._member.settings.group_id,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            require_stable=self._start.read_committed,
            timeout_s=REQUEST_TIMEOUT_S,
        )

    async def _read_ahead(self, partitions: frozenset[TopicPartition]) -> FoundOffsets | None:
        """Read the committed offsets without the epoch, which the join in flight will bring; None: they are unknown."""
        coordinator = self._member.coordinator
        if coordinator is None:
            return None
        try:
            return await self._fetch(coordinator, partitions, member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH)
        except (BrokerRefusal, TransportError, UnsupportedProtocolError):
            return None

    async def committed(self, partitions: frozenset[TopicPartition], timeout_s: float) -> CommittedOffsets:
        """Return the group's committed offsets of these partitions, for the application; retried while that may help.

        The core is not involved. A member of the consumer protocol sends its own id and its present epoch; if the epoch
        is outdated by then, the request is repeated.

        Raises:
            RefusedError: the coordinator refused permanently.
            UnansweredError: no response within `timeout_s`.
        """

        def request(coordinator: BrokerAddress, _: float) -> Awaitable[CommittedOffsets]:
            member_id, epoch = self._fetch_identity()
            return self._group.committed_by_partition(
                coordinator,
                group_id,
                partitions,
                member_id=member_id,
                member_epoch=epoch,
                require_stable=self._start.read_committed,
                timeout_s=REQUEST_TIMEOUT_S,
            )

        group_id = self._member.settings.group_id
        try:
            return await self._cluster.with_coordinator(
                group_id, "committed offsets", timeout_s, request, REQUEST_TIMEOUT_S
            )
        except BrokerRefusal as refusal:
            if refusal.retriable:
                raise UnansweredError(f"{_NOT_FETCHED}: Local: Timed out ({refusal})") from refusal
            raise RefusedError(f"{_NOT_FETCHED}: {refusal}", refusal.error.code) from refusal
        except TransportError as failure:
            raise UnansweredError(f"{_NOT_FETCHED}: Local: Timed out ({failure})") from failure

    async def ends(self, partitions: frozenset[TopicPartition]) -> EndOffsets:
        """The end offsets of these partitions, for the application, as far as their leaders answer in time."""
        high = stable = await self._offsets_at(partitions, _LATEST, read_committed=False)
        if self._start.read_committed:
            stable = await self._offsets_at(partitions, _LATEST, read_committed=True)
        leaders = self._cluster.leaders
        return EndOffsets(high=high, stable=stable, leaders={one: leaders[one] for one in stable if one in leaders})

    def _fetch_identity(self) -> tuple[str, int]:
        """The member id and epoch for OffsetFetch now; a classic member has none, as in `_fetch_committed`."""
        view = self._member.view()
        is_counted = view.member_epoch > JOIN_EPOCH and view.state not in SILENT
        if view.protocol is GroupProtocol.CONSUMER and is_counted:
            return view.member_id, view.member_epoch
        return NO_MEMBER_ID, NO_EPOCH

    async def _reset(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """The start offsets of partitions without committed offset (`auto.offset.reset`), as numbers.

        A logical offset would cost librdkafka half a second on a handle that does not know the topic yet.
        """
        if not partitions:
            return {}
        if self._start.reset is OffsetReset.ERROR:
            return dict.fromkeys(partitions, _NO_OFFSET)
        reset = self._start.reset
        if isinstance(reset, ByDuration):
            # Without a response the handle reports that it has no start, and then the fetcher looks it up.
            moment, otherwise = reset.moment_ms(time()), _NO_OFFSET
        else:
            moment = otherwise = _LATEST if reset is OffsetReset.LATEST else _EARLIEST
        starts = dict.fromkeys(partitions, otherwise)
        read_committed = self._start.read_committed
        ends: Mapping[TopicPartition, int] = {}
        if isinstance(reset, ByDuration):
            # The ends first: a record that arrives between the two responses is young enough and is not skipped.
            ends = await self._offsets_at(partitions, _LATEST, read_committed=read_committed)
            partitions = frozenset(ends)
        found = await self._offsets_at(partitions, moment, read_committed=read_committed)
        # For partitions without a response, librdkafka or the fetcher waits for the leader.
        return starts | {
            partition: ends.get(partition, otherwise) if offset == _NO_RECORD else offset
            for partition, offset in found.items()
        }

    async def _offsets_at(
        self, partitions: frozenset[TopicPartition], moment: int, *, read_committed: bool
    ) -> Mapping[TopicPartition, int]:
        """The offsets at this moment, as far as the leaders answer in time; no request without partitions."""
        answers = await self._cluster.list_offsets(
            dict.fromkeys(partitions, moment),
            read_committed=read_committed,
            timeout_s=LIST_OFFSETS_TIMEOUT_S,
        )
        known = {partition: answer for partition, answer in answers.items() if isinstance(answer, int)}
        unknown = answers.keys() - known.keys()
        if unknown:
            first = min(unknown)
            _LOG.info(
                "The offsets of %d partitions are unknown; the first is %s-%d: %s", len(unknown), *first, answers[first]
            )
        return known


def _conversion_refused(order: SendHeartbeat, group: GroupDescription) -> HeartbeatRejected:
    count = len(group.members)
    message = f"the group has {count} classic member{'s'[: count - 1]}; group.protocol=consumer converts it"
    conflict = BrokerError(code=CONFLICT_CODE, name="_CONFLICT", message=message)
    return HeartbeatRejected(request_id=order.request_id, verdict=Verdict.FATAL, error=conflict)


def _unreleased(order: SendHeartbeat, holder: MemberDescription) -> HeartbeatRejected:
    """Create the refusal of a join whose instance id a classic member holds."""
    message = f"the classic member {holder.member_id} holds the instance id, and this join would replace it"
    return HeartbeatRejected(
        request_id=order.request_id,
        verdict=Verdict.UNRELEASED,
        error=broker_error(ErrorCode.unreleased_instance_id, message),
        holder=holder.member_id,
    )


def _no_start(effect: FetchCommitted, reason: object) -> StartOffsetsFailed:
    return StartOffsetsFailed(attempt=effect.attempt, error=unreached(reason), retriable=True, rediscover=True)
