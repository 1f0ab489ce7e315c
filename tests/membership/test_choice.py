"""The protocol that a member uses, the reasons to change it, and the application's state that is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.effects import ProtocolChosen
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, GroupProtocol, OffsetAndMetadata, Subscription, TopicPartition
from tests.membership.builders import COORDINATOR
from tests.support.protocols import AUTO, CLASSIC_ONLY, CONSUMER_ONLY, RANGE

EffectT = TypeVar("EffectT", bound=GroupEffect)

CONSUMER, CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC
TOO_OLD = BrokerError(code=35, name="UNSUPPORTED_VERSION", message="the broker does not offer it")
NOT_CONVERTED = BrokerError(code=69, name="GROUP_ID_NOT_FOUND", message="Group g is not a consumer group.")
FULL = BrokerError(code=81, name="GROUP_MAX_SIZE_REACHED")
CONFLICT = BrokerError(code=-173, name="_CONFLICT", message="the group has 2 classic members")
INCONSISTENT = BrokerError(code=23, name="INCONSISTENT_GROUP_PROTOCOL", message="no common assignor")
ORDERS = Subscription(topics=frozenset({"orders"}))
OFFSETS = {TopicPartition("orders", 0): OffsetAndMetadata(offset=7)}


class Stage:
    """One member of either protocol, its clock, and all effects that it has returned so far."""

    def __init__(self, protocols: ProtocolSettings = AUTO, **settings: object) -> None:
        ids = iter(f"member-{number}" for number in range(100))
        self.member = MemberCore(
            MemberSettings(group_id="g", **settings),  # type: ignore[arg-type]  # the test chooses the values
            protocols,
            new_member_id=lambda: next(ids),
            jitter=lambda: 0.5,
        )
        self.now = 100.0
        self.effects: list[GroupEffect] = []
        self.last: tuple[GroupEffect, ...] = ()

    def feed(self, *events: GroupEvent) -> Stage:
        for event in events:
            self.last = self.member.handle(event, self.now)
            self.effects += self.last
        return self

    def all(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def new(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.last if isinstance(effect, kind)]

    def joining(self) -> Stage:
        """The application subscribes and polls, and the coordinator is found, so the member sends a join."""
        return self.feed(ev.Subscribed(subscription=ORDERS), ev.Polled(), ev.CoordinatorFound(coordinator=COORDINATOR))

    def refuse(self, error: BrokerError, verdict: ev.Verdict = ev.Verdict.FATAL) -> Stage:
        """The coordinator refuses the consumer protocol's join."""
        request = self.all(ef.SendHeartbeat)[-1].request_id
        return self.feed(ev.HeartbeatRejected(request_id=request, verdict=verdict, error=error))

    def refuse_classic(self, error: BrokerError) -> Stage:
        """The coordinator refuses the classic protocol's join."""
        request = self.all(ex.SendJoin)[-1].request_id
        return self.feed(ex.JoinRejected(request_id=request, verdict=ex.ClassicVerdict.FATAL, error=error))

    def accept(self) -> Stage:
        """The coordinator accepts the consumer protocol's join."""
        request = self.all(ef.SendHeartbeat)[-1].request_id
        return self.feed(
            ev.HeartbeatAnswered(request_id=request, member_epoch=3, heartbeat_interval_s=5.0, assignment=frozenset())
        )

    def accept_classic(self) -> Stage:
        """The coordinator accepts the classic protocol's join; another member is the leader."""
        request = self.all(ex.SendJoin)[-1].request_id
        return self.feed(
            ex.JoinAnswered(request_id=request, generation=5, member_id="c-1", leader_id="c-0", protocol_name="range")
        )


def test_auto_member_that_is_accepted_uses_the_consumer_protocol() -> None:
    """B02: group.protocol=auto tries the consumer protocol first, and reports it once it is accepted."""
    stage = Stage().joining()
    assert stage.member.protocol is CONSUMER
    assert stage.all(ProtocolChosen) == []
    stage.accept()
    assert stage.all(ProtocolChosen) == [ProtocolChosen(protocol=CONSUMER, reason="group.protocol=auto")]
    view = stage.member.view()
    assert (view.protocol, view.protocol_reason, view.group_protocol) == (CONSUMER, "group.protocol=auto", CONSUMER)


@pytest.mark.parametrize(("error", "verdict"), [(TOO_OLD, ev.Verdict.FATAL), (NOT_CONVERTED, ev.Verdict.GROUP_GONE)])
def test_auto_member_that_is_refused_joins_with_the_classic_protocol(error: BrokerError, verdict: ev.Verdict) -> None:
    """B01, B22: A broker that refuses the consumer protocol or the conversion makes the member classic.

    The reason quotes its error.
    """
    stage = Stage().joining().refuse(error, verdict)
    assert stage.new(ex.SendJoin)
    assert not stage.all(ef.RaiseToApplication)
    reason = f"group.protocol=auto; consumer was refused: {error}"
    assert stage.new(ProtocolChosen) == [ProtocolChosen(protocol=CLASSIC, reason=reason)]
    view = stage.member.view()
    assert (view.protocol, view.protocol_reason, view.state) == (CLASSIC, reason, MemberState.JOINING)
    assert stage.member.coordinator == COORDINATOR
    assert stage.accept_classic().member.view().member_epoch == 5


def test_auto_member_does_not_convert_a_classic_group_with_members() -> None:
    """The join requests that the coordinator does not convert a classic group that has members.

    Every join does so, because such a group may form while this member is outside it.
    """
    stage = Stage(replace(AUTO, refuse_conversion=True)).joining()
    assert [order.refuse_conversion for order in stage.all(ef.SendHeartbeat)] == [True]
    stage.refuse(CONFLICT)
    reason = "group.protocol=auto; the group has 2 classic members"
    assert stage.new(ProtocolChosen) == [ProtocolChosen(protocol=CLASSIC, reason=reason)]
    assert stage.accept_classic().member.view().protocol_reason == reason
    assert not stage.all(ef.RaiseToApplication)


def test_only_the_join_refuses_the_conversion() -> None:
    """A member's later heartbeats convert nothing. With group.protocol=consumer the join allows the conversion."""
    stage = Stage(replace(AUTO, refuse_conversion=True)).joining().accept()
    stage.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"others"}))))
    assert [order.refuse_conversion for order in stage.all(ef.SendHeartbeat)] == [True, False]
    assert [order.refuse_conversion for order in Stage(CONSUMER_ONLY).joining().all(ef.SendHeartbeat)] == [False]


def test_consumer_only_member_fails_at_a_classic_group_with_members() -> None:
    """A member that cannot fall back, such as a pool member with `auto`, fails with an error that names both fixes."""
    stage = Stage(replace(CONSUMER_ONLY, refuse_conversion=True, alternative="leave the pool out")).joining()
    stage.refuse(CONFLICT)
    (raised,) = stage.all(ef.RaiseToApplication)
    assert raised.error.description == "the group has 2 classic members; leave the pool out"


@pytest.mark.parametrize("remedy", ["", "upgrade"])
def test_refusal_of_the_only_protocol_names_how_to_allow_the_other(remedy: str) -> None:
    """If an option requires the protocol that was refused, the error names the option."""
    stage = Stage(replace(CONSUMER_ONLY, alternative="leave the pool out")).joining()
    stage.refuse(replace(TOO_OLD, remedy=remedy))
    (raised,) = stage.all(ef.RaiseToApplication)
    assert (
        raised.error.description
        == f"the broker does not offer it; {'upgrade; or ' if remedy else ''}leave the pool out"
    )
    strangers = Stage(replace(CLASSIC_ONLY, alternative="ask for auto")).joining().refuse_classic(INCONSISTENT)
    assert strangers.all(ef.RaiseToApplication)[0].error.description == "no common assignor; ask for auto"


@pytest.mark.parametrize("error", [TOO_OLD, NOT_CONVERTED])
def test_configured_protocol_is_never_changed(error: BrokerError) -> None:
    """H32: group.protocol=consumer gives the consumer protocol or the broker's error."""
    stage = Stage(CONSUMER_ONLY).joining().refuse(error)
    assert stage.member.view().state is MemberState.FATAL
    assert [raised.error for raised in stage.all(ef.RaiseToApplication)] == [error]


def test_other_refusals_do_not_change_the_protocol() -> None:
    """A full group refuses the member under both protocols, so it keeps its protocol."""
    stage = Stage().joining().refuse(FULL)
    assert stage.member.protocol is CONSUMER
    assert stage.member.view().state is MemberState.FATAL


def test_refusal_of_both_protocols_is_fatal() -> None:
    """B23: If the classic protocol is refused after the consumer protocol, the last error is fatal."""
    stage = Stage().joining().refuse(NOT_CONVERTED, ev.Verdict.GROUP_GONE).refuse_classic(INCONSISTENT)
    assert stage.member.view().state is MemberState.FATAL
    assert [raised.error for raised in stage.all(ef.RaiseToApplication)] == [INCONSISTENT]


def test_classic_member_of_a_converted_group_changes_back_to_consumer() -> None:
    """B23: After a successful join the member may try every protocol again. The group may have been converted since."""
    stage = Stage().joining().refuse(NOT_CONVERTED, ev.Verdict.GROUP_GONE).accept_classic()
    rebalance = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
    sync = stage.all(ex.SendSync)[-1].request_id
    stage.feed(ex.SyncRejected(request_id=sync, verdict=ex.ClassicVerdict.REJOIN, error=rebalance))
    stage.now += 10.0
    stage.feed(ev.TimePassed())
    stage.refuse_classic(INCONSISTENT)
    assert stage.member.protocol is CONSUMER
    assert stage.new(ef.SendHeartbeat)
    assert stage.accept().member.view().member_epoch == 3


def test_configured_classic_protocol_fails_with_the_brokers_error() -> None:
    """A member with group.protocol=classic does not change to the consumer protocol."""
    stage = Stage(CLASSIC_ONLY).joining().refuse_classic(INCONSISTENT)
    assert stage.member.view().state is MemberState.FATAL


def test_change_of_the_protocol_keeps_commits_and_subscription() -> None:
    """The new protocol keeps pending commits with their remaining time, manual assignments and the subscription."""
    stage = Stage().feed(ev.AssignedByHand(holds=True)).joining()
    stage.feed(ev.CommitRequested(commit_id=1, offsets=OFFSETS, timeout_s=30.0))
    stage.now += 10.0
    stage.refuse(TOO_OLD)
    assert [protocol for protocol, _ in stage.all(ex.SendJoin)[-1].protocols] == ["range"]
    assert stage.all(ex.SendJoin)[-1].protocols[0][1].topics == ORDERS.topics
    stage.now += 21.0
    stage.feed(ev.TimePassed())
    assert [(over.commit_id, set(over.errors)) for over in stage.new(ef.CommitCompleted)] == [(1, set(OFFSETS))]


def test_change_of_the_protocol_does_not_repeat_completed_commits() -> None:
    """A commit that ended before the change is not repeated."""
    stage = Stage().feed(
        ev.CoordinatorFound(coordinator=COORDINATOR),
        ev.CommitRequested(commit_id=1, offsets=OFFSETS, timeout_s=30.0),
    )
    stage.feed(ev.CoordinatorFound(coordinator=COORDINATOR))
    commit = stage.all(ef.CommitOffsets)[-1]
    stage.feed(
        ev.CommitAnswered(
            commit_id=commit.commit_id, verdict=ev.CommitVerdict.FINAL, errors=dict.fromkeys(OFFSETS, None)
        )
    )
    before = len(stage.all(ef.CommitOffsets))
    stage.joining().refuse(TOO_OLD)
    assert len(stage.all(ef.CommitOffsets)) == before


def test_answers_to_the_other_protocols_requests_are_dropped() -> None:
    """Responses to the former protocol's requests may arrive after the change; they are dropped."""
    stage = Stage().joining().refuse(TOO_OLD)
    late = ev.HeartbeatAnswered(request_id=1, member_epoch=9, heartbeat_interval_s=5.0, assignment=frozenset())
    stage.feed(late)
    assert stage.member.view().member_epoch == 0
    stage.refuse_classic(TOO_OLD)
    other = Stage(CONSUMER_ONLY).joining()
    other.feed(
        ex.TopicsNotDescribed(request_id=1, error=TOO_OLD),
        ex.ExchangeFailed(request_id=1, reason="late"),
        ex.ClassicHeartbeatAnswered(request_id=1),
    )
    assert other.member.view().state is MemberState.JOINING


def test_attempt_numbers_keep_growing_after_the_change() -> None:
    """The application's thread drops steps of older attempts, so the numbers must not restart."""
    stage = Stage().joining().accept()
    attempt = stage.member.newest_attempt
    gone = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
    stage.now += 10.0
    stage.feed(ev.TimePassed()).refuse(gone, ev.Verdict.REJOIN)
    for lose in stage.all(ef.LosePartitions):
        stage.feed(ev.StepFinished(attempt=lose.attempt, step=ev.Step.LOSE))
    stage.now += 10.0
    stage.feed(ev.TimePassed()).refuse(NOT_CONVERTED, ev.Verdict.GROUP_GONE)
    assert stage.member.protocol is CLASSIC
    assert stage.member.newest_attempt >= attempt


def test_refusal_of_a_cancelled_join_is_ignored() -> None:
    """If the application unsubscribes while the join is in flight, a refusal does not end FATAL."""
    stage = Stage().joining().feed(ev.LeaveRequested()).refuse(TOO_OLD)
    assert stage.member.view().state is not MemberState.FATAL
    assert not stage.all(ef.RaiseToApplication)


def test_notes_are_reported_with_the_protocol_to_which_they_apply() -> None:
    """A note about options without effect is reported once its protocol is accepted, not when it is tried."""
    noted = ProtocolSettings(classic=RANGE, notes={CONSUMER: ("a",), CLASSIC: ("b",)})
    assert [chosen.notes for chosen in Stage(noted).joining().accept().all(ProtocolChosen)] == [("a",)]
    fallen = Stage(noted).joining().refuse(TOO_OLD).accept_classic()
    assert [chosen.notes for chosen in fallen.all(ProtocolChosen)] == [(), ("b",)]
