"""Each event has its place: a taker for every kind, and no taker for another kind than it says."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from consumer_membership.membership import events as ev
from consumer_membership.membership.classic.exchanges import ClassicEvent, LeaderEvent
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.member import GroupMember

TABLES = (GroupMember._TAKERS, ConsumerProtocol._TAKERS, ClassicProtocol._TAKERS)
#: The passing of time is what every event brings; nothing else is to be done about it.
NOBODYS = {ev.TimePassed}
#: What protocols hear of besides the member.
HEARD = {ev.Subscribed, ev.Polled, ev.LeaveRequested, ev.TopicsLookedUp}


def test_every_event_is_taken() -> None:
    """A new kind of event without a taker would be dropped in silence."""
    kinds = {*get_args(ev.Event), *get_args(ClassicEvent), *get_args(LeaderEvent)}
    assert set().union(*TABLES) == kinds - NOBODYS


def test_each_event_has_one_taker() -> None:
    """What means the same under both protocols is the member's; the protocols share nothing but what they hear of."""
    shared, consumer, classic = map(set, TABLES)
    assert (shared & consumer) | (shared & classic) | (consumer & classic) <= HEARD


@pytest.mark.parametrize("table", TABLES, ids=["member", "consumer", "classic"])
def test_taker_is_for_the_kind_that_it_is_given(table: dict[type, object]) -> None:
    """The table's types are not checked otherwise."""
    for kind, taker in table.items():
        hints = get_type_hints(taker)
        hints.pop("return")
        assert list(hints.values()) == [kind], taker
