"""Leave requests as a member makes them, and the responses of brokers to them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from kio.schema.errors import ErrorCode

from consumer_membership.config import ConnectionSettings, SaslSettings, TlsSettings
from consumer_membership.membership.events import TimePassed
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.guarded_member import GuardedMember
from consumer_membership.runtime.guardian.leave_requests import HostPort, LeaveRequest
from consumer_membership.runtime.guardian.leaving import LeaveOutcome, leave
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.types import BrokerAddress, GroupProtocol
from tests.support.protocols import CONSUMER_ONLY
from tests.support.scripted_broker import Answer, Received, ScriptedBroker


class RecordingGuardian(Guardian):
    """A guardian without a process that records its updates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[tuple[int, LeaveRequest | None]] = []
        self.restarts_requested = 0

    def update(self, key: int, leave_request: LeaveRequest | None) -> None:
        """Record the update."""
        self.updates.append((key, leave_request))

    def restart_and_send(self) -> None:
        """Count the call."""
        self.restarts_requested += 1


def view(
    state: MemberState = MemberState.STABLE,
    coordinator: HostPort | None = ("127.0.0.1", 9092),
    *,
    member_id: str = "m",
    instance_id: str | None = None,
    epoch: int = 5,
    protocol: GroupProtocol = GroupProtocol.CONSUMER,
    group_id: str = "orders",
) -> MembershipView:
    """Return a member's view."""
    settings = MemberSettings(group_id=group_id, instance_id=instance_id)
    fresh = MemberCore(settings, CONSUMER_ONLY, new_member_id=lambda: member_id, jitter=lambda: 0.5).view()
    place = None if coordinator is None else BrokerAddress(node_id=1, host=coordinator[0], port=coordinator[1])
    return replace(fresh, state=state, coordinator=place, member_epoch=epoch, member_id=member_id, protocol=protocol)


def leave_request(
    coordinator: HostPort,
    bootstrap: Iterable[HostPort] = (),
    *,
    member_id: str = "m",
    instance_id: str | None = None,
    protocol: GroupProtocol = GroupProtocol.CONSUMER,
    group_id: str = "orders",
    tls: TlsSettings | None = None,
    sasl: SaslSettings | None = None,
) -> LeaveRequest:
    """Return the leave request for a member of this group with this coordinator."""
    guardian = RecordingGuardian()
    settings = ConnectionSettings(bootstrap_servers=tuple(bootstrap), client_id="tests", tls=tls, sasl=sasl)
    member_view = view(
        coordinator=coordinator, member_id=member_id, instance_id=instance_id, protocol=protocol, group_id=group_id
    )
    security = ConnectionSecurity(replace(settings, tls=None))
    GuardedMember(guardian, settings, security).observed(TimePassed(), (), member_view)
    ((_, made),) = guardian.updates
    assert made is not None
    return made


HEARTBEAT, FIND, LEAVE_GROUP = 68, 10, 13


ZERO = timedelta(0)


class Clock:
    """A clock that advances only during a sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds
        self.slept.append(seconds)


class OneAttempt(Clock):
    """A clock whose time is over after the first sleep."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.now = math.inf


def left(request: LeaveRequest, clock: Clock | None = None) -> LeaveOutcome:
    """Return the outcome of this leave, in virtual time."""
    clock = clock or Clock()
    return leave(request, clock=clock, sleep=clock.sleep)


def heartbeat_response(request: Received, code: ErrorCode = ErrorCode.none, message: str | None = None) -> Answer:
    """Return a heartbeat response."""
    return request.response(
        throttle_time=ZERO,
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=-1,
        heartbeat_interval=ZERO,
        assignment=None,
    )


def script(*codes: ErrorCode) -> Callable[[Received], Answer]:
    """Answer heartbeats with these codes in turn, and repeat the last one."""
    left_over = list(codes)

    def answer(request: Received) -> Answer:
        if request.api_key != HEARTBEAT:
            return None
        return heartbeat_response(
            request, left_over.pop(0) if len(left_over) > 1 else left_over[0], "the broker's message"
        )

    return answer


def classic_leave_request(broker: ScriptedBroker, *bootstrap: tuple[str, int]) -> LeaveRequest:
    """Return the leave request for a classic member whose coordinator is the first node."""
    return leave_request(broker.servers[0], bootstrap, protocol=GroupProtocol.CLASSIC)


def classic_script(*codes: tuple[ErrorCode, ErrorCode | None]) -> Callable[[Received], Answer]:
    """Answer LeaveGroup requests with these codes in turn: the request's code and the member's (None: no member)."""
    left_over = list(codes)

    def answer(request: Received) -> Answer:
        if request.api_key != LEAVE_GROUP:
            return None
        return leave_group_response(request, *left_over.pop(0))

    return answer


def leave_group_response(request: Received, code: ErrorCode, of_member: ErrorCode | None) -> Answer:
    """Return a LeaveGroup response."""
    kind = importlib.import_module(request.response.__module__)
    members = request.entity.members if of_member is not None else ()
    return kind.LeaveGroupResponse(
        throttle_time=ZERO,
        error_code=code,
        members=tuple(
            kind.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=of_member
            )
            for member in members
        ),
    )
