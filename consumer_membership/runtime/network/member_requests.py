"""What a member orders of the network: each order is tried once, or until it succeeds, and answered with an event.

Beside that, what the application asks on the member's connections and the core has no part in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TypeAlias, assert_never

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from consumer_membership.config import OffsetReset, StartSettings
from consumer_membership.errors import AuthenticationError, InternalError, TransportError, UnsupportedProtocolError
from consumer_membership.membership.choice import GroupMember
from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicEffect,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
)
from consumer_membership.membership.classic.leadership import (
    ComputeAssignment,
    DescribeTopics,
    LeaderEffect,
    NotifyAssignor,
)
from consumer_membership.membership.classic.member import AnyEvent
from consumer_membership.membership.effects import (
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    FindCoordinator,
    LearnSessionTimeout,
    LookUpTopics,
    NetworkEffect,
    ResolveTopicIds,
    SendHeartbeat,
)
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    CoordinatorFound,
    CoordinatorLookupFailed,
    Event,
    GroupDescribed,
    GroupDescribeFailed,
    HeartbeatFailed,
    SessionTimeoutLearned,
    StartOffsetsFailed,
    StartOffsetsFetched,
    TopicIdsResolved,
    TopicsLookedUp,
    TopicsNotLookedUp,
)
from consumer_membership.membership.states import SILENT
from consumer_membership.runtime.log_lines import RoomLog
from consumer_membership.runtime.network.broker_client import BrokerRefusal
from consumer_membership.runtime.network.classic_client import ClassicClient
from consumer_membership.runtime.network.classic_requests import REQUEST_TIMEOUT_S, ClassicRequests
from consumer_membership.runtime.ports import Heard
from consumer_membership.runtime.refusals import RefusedError, UnansweredError
from consumer_membership.types import (
    JOIN_EPOCH,
    NO_EPOCH,
    NO_MEMBER_ID,
    TRANSPORT_CODE,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    GroupProtocol,
    Holder,
    OffsetAndMetadata,
    TopicPartition,
)
from consumer_membership.wire.cluster import present_of, refused_of
from consumer_membership.wire.codec import ErrorCode
from consumer_membership.wire.requests import SESSION_TIMEOUT_KEY

_LOG = RoomLog("consumer_membership.network", "BROKER")

#: What a member of either protocol orders of the network, and of its assignor.
NetworkOrder: TypeAlias = NetworkEffect | ClassicEffect | LeaderEffect

#: How long the start of partitions without committed offset is asked for before librdkafka is left to find it.
LIST_OFFSETS_TIMEOUT_S = 3.0
#: Where a partition without committed offset starts, as ListOffsets wants it.
_LATEST, _EARLIEST = -1, -2
#: librdkafka's OFFSET_INVALID: with auto.offset.reset=error it reports the partition to the application itself.
_NO_OFFSET = -1001
#: librdkafka's number for a broker that lacks a feature.
UNSUPPORTED_CODE = -165
#: confluent-kafka's words.
_NOT_FETCHED = "Failed to get committed offsets"


class MemberRequests:
    """Performs the network's orders of one member, on the loop of its thread.

    `tell` takes what is worth knowing before an order is answered: why the coordinator is not found yet.
    """

    def __init__(
        self, client: ClassicClient, member: GroupMember, start: StartSettings, tell: Callable[[Event], None]
    ) -> None:
        self._client = client
        self._classic = ClassicRequests(client, member)
        self._member = member
        self._start = start
        self._tell = tell
        #: What the member was told of the lookup under way.
        self._told: BrokerError | None = None
        self._is_looking_up = False
        #: What is committed, as far as this member has heard; only ever changed key by key, so that another thread may
        #: copy it.
        self.committed_offsets: dict[TopicPartition, Heard] = {}

    async def answer_to(self, effect: NetworkOrder) -> AnyEvent:
        """Perform this order; what came of it. Never raises for what a broker or the network does."""
        match effect:
            case (
                SendJoin()
                | SendSync()
                | SendClassicHeartbeat()
                | SendClassicLeave()
                | DescribeTopics()
                | ComputeAssignment()
                | NotifyAssignor()
            ):
                return await self._classic.answer_to(effect)
            case SendHeartbeat():
                return await self._heartbeat(effect)
            case FindCoordinator():
                return await self._find_coordinator()
            case DescribeGroup():
                return await self._describe(effect)
            case LearnSessionTimeout():
                return await self._learn_session_timeout()
            case ResolveTopicIds() | LookUpTopics():
                return await (self._resolve(effect) if isinstance(effect, ResolveTopicIds) else self._look_up(effect))
            case FetchCommitted():
                return await self._fetch_committed(effect)
            case CommitOffsets():
                return await self._commit(effect)
            case _:
                assert_never(effect)

    async def _heartbeat(self, effect: SendHeartbeat) -> Event:
        coordinator = self._member.coordinator
        if coordinator is None:
            return HeartbeatFailed(request_id=effect.request_id, reason="the coordinator is not known")
        group_id = self._member.settings.group_id
        return await self._client.heartbeat(coordinator, group_id, effect, REQUEST_TIMEOUT_S)

    async def _find_coordinator(self) -> Event:
        settings = self._member.settings
        self._told = None
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
                        coordinator=await self._client.find_coordinator(settings.group_id, REQUEST_TIMEOUT_S)
                    )
        finally:
            self._is_looking_up = False
        raise InternalError("a coordinator lookup ended without an answer")

    def note_silence(self, words: str) -> None:
        """A broker takes a connection and says nothing: the member that looks for its coordinator hears of it now.

        The lookup itself fails only when the broker's time is over (socket.connection.setup.timeout.ms, 30 s).
        """
        if self._is_looking_up:
            self._report_lookup(TransportError(words))

    def _report_lookup(self, error: BaseException | None) -> None:
        """Tell the member why its coordinator is not found, when that changes; the lookup goes on all the same."""
        match error:
            case BrokerRefusal():
                refusal, is_final = error.error, not error.retriable
            case AuthenticationError():
                code = ErrorCode.sasl_authentication_failed
                refusal, is_final = BrokerError(code=code.value, name=code.name.upper(), message=str(error)), False
            case UnsupportedProtocolError():
                words = str(error)
                refusal, is_final = BrokerError(code=UNSUPPORTED_CODE, name="_UNSUPPORTED_FEATURE", message=words), True
            case _:
                refusal, is_final = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(error)), False
        if refusal != self._told:
            self._told = refusal
            self._tell(CoordinatorLookupFailed(error=refusal, is_final=is_final))

    async def _describe(self, effect: DescribeGroup) -> Event:
        """Who holds which instance id; a group that does not exist, or is a classic one, holds none."""
        coordinator, group_id = self._member.coordinator, self._member.settings.group_id
        if coordinator is None:
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message="the coordinator is not known")
            return GroupDescribeFailed(request_id=effect.request_id, error=error)
        try:
            found = await self._client.describe_consumer_group(coordinator, group_id, REQUEST_TIMEOUT_S)
        except BrokerRefusal as refusal:
            if refusal.error.code == ErrorCode.group_id_not_found:
                return GroupDescribed(request_id=effect.request_id, holders={})
            return GroupDescribeFailed(request_id=effect.request_id, error=refusal.error)
        except (TransportError, UnsupportedProtocolError) as failure:
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(failure))
            return GroupDescribeFailed(request_id=effect.request_id, error=error)
        holders = {
            member.instance_id: Holder(
                member_id=member.member_id, member_epoch=member.epoch, client_id=member.client_id, host=member.host
            )
            for member in found.members
            if member.instance_id is not None
        }
        return GroupDescribed(request_id=effect.request_id, holders=holders)

    async def _learn_session_timeout(self) -> Event:
        """The group's session timeout; a broker that does not tell it is no reason to worry."""
        try:
            found = await self._client.group_config(self._member.settings.group_id, REQUEST_TIMEOUT_S)
            return SessionTimeoutLearned(session_timeout_s=int(found[SESSION_TIMEOUT_KEY]) / 1000)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError, KeyError, ValueError) as error:
            _LOG.debug("The group's session timeout could not be read: %s", error)
            return SessionTimeoutLearned(session_timeout_s=None)

    async def _resolve(self, effect: ResolveTopicIds) -> Event:
        try:
            names = await self._client.topic_names(effect.topic_ids, REQUEST_TIMEOUT_S)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError) as error:
            _LOG.debug("Topic ids could not be resolved: %s", error)
            names = {}
        return TopicIdsResolved(names=names)

    async def _look_up(self, effect: LookUpTopics) -> Event:
        """Whether the topics are there; `allow.auto.create.topics` has the broker make those that are not."""
        try:
            found = await self._client.cluster(effect.topics, REQUEST_TIMEOUT_S)
        except (TransportError, BrokerRefusal, UnsupportedProtocolError) as error:
            _LOG.debug("The subscribed topics cannot be looked up: %s", error)
            fault = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(error))
            return TopicsNotLookedUp(request_id=effect.request_id, error=fault)
        return TopicsLookedUp(
            request_id=effect.request_id, names=present_of(found), refused=refused_of(found, effect.topics)
        )

    async def _fetch_committed(self, effect: FetchCommitted) -> Event:
        coordinator = self._member.coordinator
        if coordinator is None:
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message="the coordinator is not known")
            return StartOffsetsFailed(attempt=effect.attempt, error=error, retriable=True, rediscover=True)
        # A classic member fetches as nobody, as Java's client does: the request has no place for its generation.
        is_classic = self._member.protocol is GroupProtocol.CLASSIC
        try:
            committed = await self._client.fetch_committed(
                coordinator,
                self._member.settings.group_id,
                effect.partitions,
                NO_MEMBER_ID if is_classic else effect.member_id,
                NO_EPOCH if is_classic else effect.member_epoch,
                self._start.read_committed,
                REQUEST_TIMEOUT_S,
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
            fault = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(error))
            return StartOffsetsFailed(attempt=effect.attempt, error=fault, retriable=True, rediscover=True)
        return StartOffsetsFetched(attempt=effect.attempt, offsets=offsets)

    async def committed(self, partitions: frozenset[TopicPartition], timeout_s: float) -> CommittedOffsets:
        """What the group has committed of these partitions, for the application; asked again while that may help.

        No order of the core, which neither asks nor hears of it. A member of the consumer protocol asks as itself, with
        the epoch of that moment: an answer that finds another one outdated is followed by another attempt.

        Raises:
            RefusedError: the coordinator refused for good.
            UnansweredError: no answer within `timeout_s`.
        """

        def ask(coordinator: BrokerAddress, _: float) -> Awaitable[CommittedOffsets]:
            member_id, epoch = self._asker()
            return self._client.committed_by_partition(
                coordinator, group_id, partitions, member_id, epoch, self._start.read_committed, REQUEST_TIMEOUT_S
            )

        group_id = self._member.settings.group_id
        try:
            return await self._client.with_coordinator(group_id, "committed offsets", timeout_s, ask, REQUEST_TIMEOUT_S)
        except BrokerRefusal as refusal:
            if refusal.retriable:
                raise UnansweredError(f"{_NOT_FETCHED}: Local: Timed out ({refusal})") from refusal
            raise RefusedError(f"{_NOT_FETCHED}: {refusal}", refusal.error.code) from refusal
        except TransportError as failure:
            raise UnansweredError(f"{_NOT_FETCHED}: Local: Timed out ({failure})") from failure

    def _asker(self) -> tuple[str, int]:
        """Member id and epoch of whoever asks now; a classic member asks as nobody, as in `_fetch_committed`."""
        view = self._member.view()
        is_counted = view.member_epoch > JOIN_EPOCH and view.state not in SILENT
        if view.protocol is GroupProtocol.CONSUMER and is_counted:
            return view.member_id, view.member_epoch
        return NO_MEMBER_ID, NO_EPOCH

    async def _reset(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions without committed offset start (`auto.offset.reset`), as numbers.

        A logical offset would cost librdkafka half a second on a handle that has not met the topic yet.
        """
        if not partitions:
            return {}
        if self._start.reset is OffsetReset.ERROR:
            return dict.fromkeys(partitions, _NO_OFFSET)
        moment = _LATEST if self._start.reset is OffsetReset.LATEST else _EARLIEST
        wanted = dict.fromkeys(partitions, moment)
        try:
            found = await self._client.list_offsets(wanted, self._start.read_committed, LIST_OFFSETS_TIMEOUT_S)
        except (TransportError, BrokerRefusal) as error:
            # One partition without a leader must not hold up the others: librdkafka waits for it by itself.
            _LOG.info("ListOffsets failed, the partitions start at logical offsets: %s", error)
            return wanted
        return dict(found)

    async def _commit(self, effect: CommitOffsets) -> CommitAnswered | ClassicCommitAnswered | CommitFailed:
        coordinator, group_id = self._member.coordinator, self._member.settings.group_id
        if coordinator is None:
            return CommitFailed(commit_id=effect.commit_id, reason="the coordinator is not known")
        if self._member.protocol is GroupProtocol.CLASSIC:
            outcome = await self._client.classic_commit(coordinator, group_id, effect, REQUEST_TIMEOUT_S)
            self._note_commit(effect, outcome.answer if isinstance(outcome, ClassicCommitAnswered) else outcome)
            return outcome
        answer = await self._client.commit(coordinator, group_id, effect, REQUEST_TIMEOUT_S)
        self._note_commit(effect, answer)
        return answer

    def _note_commit(self, effect: CommitOffsets, answer: CommitAnswered | CommitFailed) -> None:
        if isinstance(answer, CommitAnswered):
            good = {partition for partition, error in answer.errors.items() if error is None}
            self._note_committed({partition: at for partition, at in effect.offsets.items() if partition in good})

    def _note_committed(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        now = monotonic()
        for partition, offset in committed.items():
            self.committed_offsets[partition] = Heard(offset, now)
