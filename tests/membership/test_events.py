"""Each event is handled in one place: by the member, or by the one protocol to which it belongs."""

from __future__ import annotations

from typing import get_args

from consumer_membership.membership.classic.exchanges import ClassicAnswer, LeaderEvent
from consumer_membership.membership.events import ConsumerEvent, SharedEvent
from consumer_membership.membership.protocol import GroupEvent


def test_every_event_belongs_to_the_member_or_to_one_protocol() -> None:
    """Every event is in exactly one of the unions. Mypy checks that the dispatches match these unions."""
    unions = [get_args(SharedEvent), get_args(ConsumerEvent), (*get_args(ClassicAnswer), *get_args(LeaderEvent))]
    handled = [kind for union in unions for kind in union]
    assert (set(handled), len(handled)) == (set(get_args(GroupEvent)), len(set(handled)))
