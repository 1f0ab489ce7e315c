"""Which group protocol a member speaks: the consumer protocol (KIP-848), the classic one, or the first that is taken.

`GroupMember` is a member of a group whatever its protocol. It holds the core of one protocol and passes events to it;
where the coordinator does not take that protocol's join, and the settings allow another one, it begins anew with the
other core. That happens before the member holds anything, so nothing is given up: only the application's wishes move
over (subscription, commits that are not over, partitions assigned by hand).

| said to a join | of | because |
|---|---|---|
| UNSUPPORTED_VERSION, or the API is not offered | consumer | the broker is too old, or has it switched off |
| GROUP_ID_NOT_FOUND | consumer | a classic group cannot be converted (group.consumer.migration.policy) |
| INCONSISTENT_GROUP_PROTOCOL | classic | a consumer group takes no classic members, or no assignor is common |

Each protocol is tried once until a join succeeds; the refusal of the last one is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from consumer_membership.membership import events as ev
from consumer_membership.membership import portrait
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic import portrait as classic_portrait
from consumer_membership.membership.classic.lifecycle import AnyEffect
from consumer_membership.membership.classic.member import AnyEvent, ClassicMember
from consumer_membership.membership.classic.settings import ClassicSettings
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.member import Member
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import (
    GROUP_NOT_FOUND_CODE,
    INCONSISTENT_PROTOCOL_CODE,
    JOIN_EPOCH,
    UNSUPPORTED_VERSION_CODE,
    BrokerAddress,
    BrokerError,
    GroupProtocol,
    Instant,
)

_CONSUMER, _CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC

#: What a coordinator answers to a join whose protocol it does not take.
_REFUSALS: Mapping[GroupProtocol, frozenset[int]] = MappingProxyType(
    {
        _CONSUMER: frozenset({UNSUPPORTED_VERSION_CODE, GROUP_NOT_FOUND_CODE}),
        _CLASSIC: frozenset({INCONSISTENT_PROTOCOL_CODE}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSettings:
    """Which protocols a member may speak, the preferred one first, and what it needs to know for the classic one.

    `reason` says why these, for people. `notes` holds, for each protocol, what the configuration asks for in vain
    under it. `alternative` is what to change so that the other protocol would be tried, too; "" where it is.
    """

    classic: ClassicSettings
    protocols: tuple[GroupProtocol, ...] = (_CONSUMER, _CLASSIC)
    reason: str = "group.protocol=auto"
    notes: Mapping[GroupProtocol, tuple[str, ...]] = field(default_factory=dict)
    alternative: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolChosen:
    """The member speaks this protocol from now on, or the coordinator has just let it in by it; for the observer."""

    protocol: GroupProtocol
    reason: str
    notes: tuple[str, ...] = ()


#: What a member orders, of whichever protocol.
GroupEffect: TypeAlias = AnyEffect | ProtocolChosen


class GroupMember:
    """One member of one group. `new_member_id` makes a fresh member id (KIP-1082), `jitter` a number in [0, 1)."""

    def __init__(
        self,
        settings: MemberSettings,
        protocols: ProtocolSettings,
        *,
        new_member_id: Callable[[], str],
        jitter: Jitter,
    ) -> None:
        self.settings = settings
        self._protocols = protocols
        self._new_member_id = new_member_id
        self._jitter = jitter
        self.core: Member | ClassicMember = self._core_of(protocols.protocols[0])
        self._reason = protocols.reason
        #: The protocols that were refused since the last join that succeeded.
        self._refused: set[GroupProtocol] = set()
        self._is_settled = False
        #: The application's commits that are not over, and when each began; what a new core has to be told.
        self._commits: dict[int, tuple[ev.CommitRequested, Instant]] = {}
        self._by_hand: ev.AssignedByHand | None = None

    def _core_of(self, protocol: GroupProtocol) -> Member | ClassicMember:
        if protocol is _CONSUMER:
            return Member(self.settings, new_member_id=self._new_member_id, jitter=self._jitter)
        return ClassicMember(self.settings, self._protocols.classic, jitter=self._jitter)

    # ---- questions ----

    @property
    def protocol(self) -> GroupProtocol:
        """The protocol that the member speaks now."""
        return _CONSUMER if isinstance(self.core, Member) else _CLASSIC

    @property
    def classic(self) -> ClassicSettings:
        """The settings of the classic protocol, its assignors among them."""
        return self._protocols.classic

    @property
    def coordinator(self) -> BrokerAddress | None:
        """The group's coordinator, where it is known."""
        return self.core.coordinator.address

    @property
    def last_error(self) -> BrokerError | None:
        """What went wrong last."""
        return self.core.last_error

    def longest_pause_s(self, now: Instant) -> float | None:
        """How long attempts to reach a broker may be apart at most; None: the member has no place that is at stake."""
        return self.core.longest_pause_s(now)

    def view(self) -> MembershipView:
        """The member as it is now; later it gives another view."""
        picture = portrait.view_of(self.core) if isinstance(self.core, Member) else classic_portrait.view_of(self.core)
        return replace(picture, protocol_reason=self._reason)

    def next_deadline(self) -> Instant | None:
        """When time alone makes something due; None: never. Call `handle(TimePassed(), now)` then."""
        return self.core.next_deadline()

    # ---- the funnel ----

    def handle(self, event: AnyEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Take one event in at this moment; what to do about it, in order (`effects` has the contract)."""
        self._note(event, now)
        refusal = self._refusal(event)
        if refusal is not None:
            return self._after(refusal, event, now)
        effects = self._told(event, now)
        return (*self._settle(event), *effects)

    def _told(self, event: AnyEvent, now: Instant) -> tuple[AnyEffect, ...]:
        """Pass the event on. What was asked in the other protocol's name may still be answered: that is dropped."""
        effects: tuple[AnyEffect, ...] = ()
        if isinstance(self.core, ClassicMember):  # noqa: SIM114 - each core takes its own events
            effects = self.core.handle(event, now)
        elif isinstance(event, ev.Event) and not self._is_pointless(event):
            effects = self.core.handle(event, now)
        self._forget(effects)
        return effects

    def _note(self, event: AnyEvent, now: Instant) -> None:
        match event:
            case ev.CommitRequested():
                self._commits[event.commit_id] = (event, now)
            case ev.AssignedByHand():
                self._by_hand = event
            case _:
                pass

    def _forget(self, effects: Iterable[AnyEffect]) -> None:
        for effect in effects:
            if isinstance(effect, CommitCompleted):
                self._commits.pop(effect.commit_id, None)

    # ---- the choice ----

    def _refusal(self, event: AnyEvent) -> BrokerError | None:
        """Why the coordinator does not take this protocol's join; None where this is no such answer."""
        core = self.core
        match event:
            case ev.HeartbeatRejected() if isinstance(core, Member):
                is_join = core.state is MemberState.JOINING and core.member_epoch == JOIN_EPOCH
                is_answer = is_join and event.request_id == core.heartbeats.in_flight
            case ex.JoinRejected() if isinstance(core, ClassicMember):
                is_answer = core.state is ClassicState.JOINING and core.awaits(event.request_id)
            case _:
                return None
        return event.error if is_answer and event.error.code in _REFUSALS[self.protocol] else None

    def _is_pointless(self, event: AnyEvent) -> bool:
        """Whether this refuses a join that the application has given up meanwhile: no reason to end FATAL."""
        core = self.core
        if not isinstance(event, ev.HeartbeatRejected) or not isinstance(core, Member):
            return False
        is_join = event.request_id == core.heartbeats.in_flight and core.member_epoch == JOIN_EPOCH
        return is_join and core.state is MemberState.UNSUBSCRIBING and event.error.code in _REFUSALS[_CONSUMER]

    def _after(self, refusal: BrokerError, event: AnyEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Begin anew with the next protocol; without one the core takes the refusal for what it is."""
        self._refused.add(self.protocol)
        following = next((one for one in self._protocols.protocols if one not in self._refused), None)
        if following is not None:
            return self._change_to(following, f"{self.protocol.value} was refused: {refusal}", now)
        return self._told(self._with_alternative(event), now)

    def _with_alternative(self, event: AnyEvent) -> AnyEvent:
        """The refusal of the only protocol that may be tried, with what to change to have the other one."""
        alternative = self._protocols.alternative
        if not alternative or not isinstance(event, ev.HeartbeatRejected | ex.JoinRejected):
            return event
        remedies = "; or ".join(remedy for remedy in (event.error.remedy, alternative) if remedy)
        return replace(event, error=replace(event.error, remedy=remedies))

    def _change_to(self, protocol: GroupProtocol, why: str, now: Instant) -> tuple[GroupEffect, ...]:
        """Tell a new core what the application asked of the old one; it joins as the old one was about to."""
        old, self.core = self.core, self._core_of(protocol)
        self._reason, self._is_settled = f"{self._protocols.reason}; {why}", False
        self.core.transitions.extend(old.transitions)
        # It knows what the application was told.
        self.core.watch.inherit(old.watch)
        # The application's thread drops the steps of attempts that are older than the newest it saw.
        self.core.reconciler.attempt = old.reconciler.attempt
        wishes: list[ev.Event] = [ev.Subscribed(subscription=old.subscription)]
        if old.coordinator.address is not None:
            wishes.append(ev.CoordinatorFound(coordinator=old.coordinator.address))
        if self._by_hand is not None:
            wishes.append(self._by_hand)
        for request, since in self._commits.values():
            wishes.append(replace(request, timeout_s=max(0.0, request.timeout_s - (now - since))))
        effects: list[GroupEffect] = [self._chosen()]
        for wish in (*wishes, ev.Polled()):
            effects += self._told(wish, now)
        return tuple(effects)

    def _settle(self, event: AnyEvent) -> tuple[GroupEffect, ...]:
        """The coordinator let the member in: the choice stands, and every protocol may be tried again afterwards."""
        match event:
            case ev.HeartbeatAnswered():
                is_in = event.member_epoch > JOIN_EPOCH
            case ex.JoinAnswered():
                is_in = True
            case _:
                is_in = False
        if not is_in or self._is_settled:
            return ()
        self._is_settled = True
        self._refused.clear()
        return (self._chosen(),)

    def _chosen(self) -> ProtocolChosen:
        protocol = self.protocol
        notes = self._protocols.notes.get(protocol, ()) if self._is_settled else ()
        return ProtocolChosen(protocol=protocol, reason=self._reason, notes=notes)
