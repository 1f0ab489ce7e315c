"""Which protocol a member speaks, what makes it speak the other one, and what of the application moves over."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.effects import ProtocolChosen
from consumer_membership.membership.member import GroupMember
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
    """One member of either protocol, its clock, and what it ordered."""

    def __init__(self, protocols: ProtocolSettings = AUTO, **settings: object) -> None:
        ids = iter(f"member-{number}" for number in range(100))
        self.member = GroupMember(
            MemberSettings(group_id="g", **settings),  # type: ignore[arg-type]  # a test's own words
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
        """The application subscribed and polls, and the coordinator is known: a join goes out."""
        return self.feed(ev.Subscribed(subscription=ORDERS), ev.Polled(), ev.CoordinatorFound(coordinator=COORDINATOR))

    def refuse(self, error: BrokerError, verdict: ev.Verdict = ev.Verdict.FATAL) -> Stage:
        """The consumer protocol's join is refused."""
        request = self.all(ef.SendHeartbeat)[-1].request_id
        return self.feed(ev.HeartbeatRejected(request_id=request, verdict=verdict, error=error))

    def refuse_classic(self, error: BrokerError) -> Stage:
        """The classic protocol's join is refused."""
        request = self.all(ex.SendJoin)[-1].request_id
        return self.feed(ex.JoinRejected(request_id=request, verdict=ex.ClassicVerdict.FATAL, error=error))

    def let_in(self) -> Stage:
        """The consumer protocol's join is answered."""
        request = self.all(ef.SendHeartbeat)[-1].request_id
        return self.feed(
            ev.HeartbeatAnswered(request_id=request, member_epoch=3, heartbeat_interval_s=5.0, assignment=frozenset())
        )

    def let_in_classic(self) -> Stage:
        """The classic protocol's join is answered, and the leader is another one."""
        request = self.all(ex.SendJoin)[-1].request_id
        return self.feed(
            ex.JoinAnswered(request_id=request, generation=5, member_id="c-1", leader_id="c-0", protocol_name="range")
        )


def test_auto_member_that_is_let_in_speaks_the_consumer_protocol() -> None:
    """B02: nothing else is asked first; the choice is told once, when the coordinator has taken it."""
    stage = Stage().joining()
    assert stage.member.protocol is CONSUMER
    assert stage.all(ProtocolChosen) == []
    stage.let_in()
    assert stage.all(ProtocolChosen) == [ProtocolChosen(protocol=CONSUMER, reason="group.protocol=auto")]
    view = stage.member.view()
    assert (view.protocol, view.protocol_reason, view.group_protocol) == (CONSUMER, "group.protocol=auto", CONSUMER)


@pytest.mark.parametrize(("error", "verdict"), [(TOO_OLD, ev.Verdict.FATAL), (NOT_CONVERTED, ev.Verdict.GROUP_GONE)])
def test_refused_auto_member_joins_by_the_classic_protocol(error: BrokerError, verdict: ev.Verdict) -> None:
    """B01, B22: an old broker, or a group that cannot be converted; the broker's words are the reason."""
    stage = Stage().joining().refuse(error, verdict)
    assert stage.new(ex.SendJoin)
    assert not stage.all(ef.RaiseToApplication)
    reason = f"group.protocol=auto; consumer was refused: {error}"
    assert stage.new(ProtocolChosen) == [ProtocolChosen(protocol=CLASSIC, reason=reason)]
    view = stage.member.view()
    assert (view.protocol, view.protocol_reason, view.state) == (CLASSIC, reason, MemberState.JOINING)
    assert stage.member.coordinator == COORDINATOR
    assert stage.let_in_classic().member.view().member_epoch == 5


def test_living_classic_group_is_spared() -> None:
    """Its members live in it, and nobody asked to convert it: the join says so, and is not sent where they do.

    Each join does, since such a group may begin while this member is out of it.
    """
    stage = Stage(replace(AUTO, refuse_conversion=True)).joining()
    assert [order.refuse_conversion for order in stage.all(ef.SendHeartbeat)] == [True]
    stage.refuse(CONFLICT)
    reason = "group.protocol=auto; the group has 2 classic members"
    assert stage.new(ProtocolChosen) == [ProtocolChosen(protocol=CLASSIC, reason=reason)]
    assert stage.let_in_classic().member.view().protocol_reason == reason
    assert not stage.all(ef.RaiseToApplication)


def test_member_of_a_consumer_group_asks_no_more() -> None:
    """Heartbeats of a member convert nothing; who asked for the consumer protocol asks for the conversion."""
    stage = Stage(replace(AUTO, refuse_conversion=True)).joining().let_in()
    stage.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"others"}))))
    assert [order.refuse_conversion for order in stage.all(ef.SendHeartbeat)] == [True, False]
    assert [order.refuse_conversion for order in Stage(CONSUMER_ONLY).joining().all(ef.SendHeartbeat)] == [False]


def test_member_without_another_protocol_ends_at_a_living_classic_group() -> None:
    """As a pool's with `auto`: both ways to go on are told."""
    stage = Stage(replace(CONSUMER_ONLY, refuse_conversion=True, alternative="leave the pool out")).joining()
    stage.refuse(CONFLICT)
    (raised,) = stage.all(ef.RaiseToApplication)
    assert raised.error.words == "the group has 2 classic members; leave the pool out"


@pytest.mark.parametrize("remedy", ["", "upgrade"])
def test_refusal_of_the_only_protocol_says_how_the_other_one_would_be_tried(remedy: str) -> None:
    """A pool or a policy needs the consumer protocol; the end of its member names them."""
    stage = Stage(replace(CONSUMER_ONLY, alternative="leave the pool out")).joining()
    stage.refuse(replace(TOO_OLD, remedy=remedy))
    (raised,) = stage.all(ef.RaiseToApplication)
    assert raised.error.words == f"the broker does not offer it; {'upgrade; or ' if remedy else ''}leave the pool out"
    strangers = Stage(replace(CLASSIC_ONLY, alternative="ask for auto")).joining().refuse_classic(INCONSISTENT)
    assert strangers.all(ef.RaiseToApplication)[0].error.words == "no common assignor; ask for auto"


@pytest.mark.parametrize("error", [TOO_OLD, NOT_CONVERTED])
def test_named_protocol_is_never_left(error: BrokerError) -> None:
    """H32: who asks for consumer gets it or the broker's refusal."""
    stage = Stage(CONSUMER_ONLY).joining().refuse(error)
    assert stage.member.view().state is MemberState.FATAL
    assert [raised.error for raised in stage.all(ef.RaiseToApplication)] == [error]


def test_other_refusals_do_not_change_the_protocol() -> None:
    """A full group is full for both."""
    stage = Stage().joining().refuse(FULL)
    assert stage.member.protocol is CONSUMER
    assert stage.member.view().state is MemberState.FATAL


def test_refusal_of_both_protocols_is_the_end() -> None:
    """B23: after the consumer protocol the classic one is refused, too: the last words are the error."""
    stage = Stage().joining().refuse(NOT_CONVERTED, ev.Verdict.GROUP_GONE).refuse_classic(INCONSISTENT)
    assert stage.member.view().state is MemberState.FATAL
    assert [raised.error for raised in stage.all(ef.RaiseToApplication)] == [INCONSISTENT]


def test_classic_member_of_a_group_that_became_a_consumer_group_changes_back() -> None:
    """B23: once in, every protocol may be tried anew; the group was converted meanwhile and takes no classic member."""
    stage = Stage().joining().refuse(NOT_CONVERTED, ev.Verdict.GROUP_GONE).let_in_classic()
    rebalance = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
    sync = stage.all(ex.SendSync)[-1].request_id
    stage.feed(ex.SyncRejected(request_id=sync, verdict=ex.ClassicVerdict.REJOIN, error=rebalance))
    stage.now += 10.0
    stage.feed(ev.TimePassed())
    stage.refuse_classic(INCONSISTENT)
    assert stage.member.protocol is CONSUMER
    assert stage.new(ef.SendHeartbeat)
    assert stage.let_in().member.view().member_epoch == 3


def test_named_classic_protocol_ends_with_the_brokers_words() -> None:
    """Who asks for classic is not converted behind their back."""
    stage = Stage(CLASSIC_ONLY).joining().refuse_classic(INCONSISTENT)
    assert stage.member.view().state is MemberState.FATAL


def test_what_the_application_asked_for_moves_over() -> None:
    """Open commits with the rest of their time, partitions assigned by hand, and the subscription."""
    stage = Stage().feed(ev.AssignedByHand(holds=True)).joining()
    stage.feed(ev.CommitRequested(commit_id=1, offsets=OFFSETS, timeout_s=30.0))
    stage.now += 10.0
    stage.refuse(TOO_OLD)
    assert [protocol for protocol, _ in stage.all(ex.SendJoin)[-1].protocols] == ["range"]
    assert stage.all(ex.SendJoin)[-1].protocols[0][1].topics == ORDERS.topics
    stage.now += 21.0
    stage.feed(ev.TimePassed())
    assert [(over.commit_id, set(over.errors)) for over in stage.new(ef.CommitCompleted)] == [(1, set(OFFSETS))]


def test_commit_that_is_over_is_not_asked_for_again() -> None:
    """What has ended before the change stays ended."""
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
    """What was asked before the change may be answered after it, by either side."""
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


def test_attempts_go_on_counting_after_the_change() -> None:
    """The application's thread drops the steps of attempts that are older than the newest it saw."""
    stage = Stage().joining().let_in()
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


def test_join_that_the_application_gave_up_is_not_refused() -> None:
    """Unsubscribed while the join was out: its refusal is no reason to end FATAL."""
    stage = Stage().joining().feed(ev.LeaveRequested()).refuse(TOO_OLD)
    assert stage.member.view().state is not MemberState.FATAL
    assert not stage.all(ef.RaiseToApplication)


def test_notes_come_with_the_protocol_under_which_they_are_true() -> None:
    """What is in vain under one protocol is said once that one is taken, and not when it was only tried."""
    noted = ProtocolSettings(classic=RANGE, notes={CONSUMER: ("a",), CLASSIC: ("b",)})
    assert [chosen.notes for chosen in Stage(noted).joining().let_in().all(ProtocolChosen)] == [("a",)]
    fallen = Stage(noted).joining().refuse(TOO_OLD).let_in_classic()
    assert [chosen.notes for chosen in fallen.all(ProtocolChosen)] == [(), ("b",)]
