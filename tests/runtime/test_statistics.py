"""The group's part of librdkafka's statistics."""

from __future__ import annotations

from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.statistics import JOIN_STATES


def test_every_state_has_one_of_librdkafkas_words() -> None:
    """Dashboards know librdkafka's join states; a state without one would break the callback."""
    known = {
        "init",
        "wait-join",
        "wait-metadata",
        "wait-sync",
        "wait-assign-call",
        "wait-unassign-call",
        "wait-unassign-to-complete",
        "wait-incr-unassign-to-complete",
        "steady",
    }
    assert set(JOIN_STATES) == set(MemberState)
    assert set(JOIN_STATES.values()) <= known
