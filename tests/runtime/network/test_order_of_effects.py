"""The membership thread keeps the order contract of `membership.effects`, for every pair of effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import get_args

import pytest

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.membership.effects import ApplicationEffect, ObserverEffect, ProtocolChosen
from consumer_membership.membership.events import CommitRequested, LeaveRequested, TimePassed
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.runtime.network.member_requests import MemberRequests, NetworkOrder
from consumer_membership.runtime.network.thread import NetworkThread
from tests.support.protocols import CONSUMER_ONLY
from tests.support.waiting import PATIENCE_S, wait_until

#: The performer of each effect, according to the unions in the contract's table.
APPLICATION: frozenset[type[GroupEffect]] = frozenset(get_args(ApplicationEffect))
OBSERVER: frozenset[type[GroupEffect]] = frozenset({*get_args(ObserverEffect), ProtocolChosen})
NETWORK: frozenset[type[GroupEffect]] = frozenset(get_args(GroupEffect)) - APPLICATION - OBSERVER
KINDS = sorted(get_args(GroupEffect), key=lambda kind: kind.__name__)

#: The scripted member answers this event with the test's effects.
EVENT, NEXT_EVENT = LeaveRequested(), CommitRequested(commit_id=1, offsets={}, timeout_s=1.0)


def effect_of(kind: type[GroupEffect]) -> GroupEffect:
    """Return an effect of this kind; the thread passes it on without reading its fields."""
    required = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return kind(**dict.fromkeys(required))  # type: ignore[arg-type]


@dataclass(slots=True)
class Receivers:
    """All performers of effects. The journal records the receiver, the effect, and the current version of the view."""

    line: Line
    effects: tuple[GroupEffect, ...] = ()
    journal: list[tuple[str, object, int]] = field(default_factory=list)

    def handle(self, event: GroupEvent, now: float) -> tuple[GroupEffect, ...]:
        """Return the member's effects for this event."""
        assert now > 0
        if event in (EVENT, NEXT_EVENT):
            self._note("member", event)
        return self.effects if event == EVENT else ()

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Record the effects that the observer receives."""
        assert view is not None
        if event == EVENT:
            for effect in effects:
                self._note("observer", effect)

    def notified(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Record the effects that the watcher receives; they are the same as the observer's."""
        assert view is not None
        for effect in effects:
            self._note("watcher", effect)

    def receive(self) -> None:
        """Record all orders that the application finds on the line now."""
        found: deque[ApplicationEffect] = deque()
        self.line.move_orders(found)
        for effect in found:
            self._note("application", effect)

    async def answer_to(self, order: NetworkOrder) -> GroupEvent:
        """Record the order that the network receives."""
        self._note("network", order)
        return TimePassed()

    def received(self, receiver: str) -> list[object]:
        """Return the effects of this receiver in their order."""
        return [what for who, what, _ in self.journal if who == receiver]

    def _note(self, receiver: str, what: object) -> None:
        self.journal.append((receiver, what, self.line.snapshot.version))


@pytest.fixture
def receivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receivers]:
    """A thread between a scripted member and all receivers."""
    line = Line()
    receivers = Receivers(line)
    settings = ThreadSettings(
        member=MemberSettings(group_id="group"),
        protocols=CONSUMER_ONLY,
        connection=ConnectionSettings(bootstrap_servers=(("127.0.0.1", 9),)),
        start=StartSettings(),
        progress=lambda: (0, 0),
    )
    thread = NetworkThread(line, settings, observer=receivers)
    monkeypatch.setattr(thread._dumps.recorder.member, "handle", receivers.handle)
    monkeypatch.setattr(MemberRequests, "answer_to", lambda _, order: receivers.answer_to(order))
    line.listen(receivers.receive)
    thread.watch(receivers.notified)
    thread.start()
    yield receivers
    thread.stop(PATIENCE_S)


def journal_of(receivers: Receivers, *effects: GroupEffect) -> list[tuple[str, object, int]]:
    """Return the entries of every receiver for one event with these effects, and for a later event."""
    receivers.journal.clear()
    receivers.effects = effects
    before = receivers.line.snapshot.version
    is_over: Callable[[], bool] = lambda: (  # noqa: E731
        # One view follows each of the two events.
        receivers.line.snapshot.version >= before + 2
        and len(receivers.received("network")) == sum(type(effect) in NETWORK for effect in effects)
        and NEXT_EVENT in receivers.received("member")
    )
    receivers.line.post(EVENT, NEXT_EVENT)
    wait_until(is_over, "the end of both events", seen=lambda: receivers.journal)
    return receivers.journal.copy()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_feed_delivers_each_pair_of_effects_in_the_order_of_the_contract(
    receivers: Receivers, kind: type[GroupEffect]
) -> None:
    """Observers receive effects first, then the application with the event's view, then the network, each in order."""
    for other in KINDS:
        effects = effect_of(kind), effect_of(other)
        before = receivers.line.snapshot.version
        expected: list[tuple[str, object, int]] = [("member", EVENT, before)]
        expected += [(receiver, effect, before) for receiver in ("observer", "watcher") for effect in effects]
        expected += [("application", effect, before + 1) for effect in effects if type(effect) in APPLICATION]
        journal = journal_of(receivers, *effects)
        of_event = [entry for entry in journal if entry[0] != "network" and entry[1] is not NEXT_EVENT]
        assert of_event == expected
        # The requests begin after all other entries, in their order.
        requests = [(effect, place) for place, (who, effect, _) in enumerate(journal) if who == "network"]
        assert [effect for effect, _ in requests] == [effect for effect in effects if type(effect) in NETWORK]
        assert all(place > journal.index(entry) for _, place in requests for entry in of_event)


def test_feed_delivers_all_effects_before_the_next_event(receivers: Receivers) -> None:
    """The member receives the next event after observers and application have received all effects."""
    journal = journal_of(receivers, *map(effect_of, sorted(APPLICATION | OBSERVER, key=lambda kind: kind.__name__)))
    assert journal[-1][:2] == ("member", NEXT_EVENT)


def test_every_kind_of_effect_has_one_performer() -> None:
    """The unions of `membership.effects` cover what a member may order, without overlap."""
    assert set(KINDS) == APPLICATION | OBSERVER | NETWORK
    assert not APPLICATION & OBSERVER
    assert frozenset(get_args(NetworkOrder)) == NETWORK
