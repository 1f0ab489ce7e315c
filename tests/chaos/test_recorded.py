"""Recorded responses of the simulated coordinator have no finding, and changed responses have findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.membership.events import HeartbeatAnswered
from consumer_membership.recorder.ring import Entry
from tests.chaos.recorded import Checked, check_entries
from tests.recorder.members import simulated
from tests.simulation.profiles import PROFILES

#: Without profiles of processors, whose heartbeats are those of consumers.
_CONSUMER = [name for name in PROFILES if "classic" not in name and "processing" not in name]


def entries_of(name: str, seed: int) -> list[tuple[Entry, ...]]:
    """Return the recorded entries of each member of a simulated run."""
    recorders = simulated(name, seed, segment_weight=1 << 40)
    return [tuple(recorder.contents().entries) for recorder in recorders]


@pytest.mark.parametrize("name", _CONSUMER)
def test_responses_of_the_simulated_coordinator_have_no_finding(name: str) -> None:
    """No member of a simulated run has a finding, with any faults, and responses are compared."""
    results = [check_entries(entries) for entries in entries_of(name, 1)]
    assert [result.findings for result in results if result.findings] == []
    assert sum(result.responses for result in results) > 0


def _change(entries: tuple[Entry, ...], number: int, **values: object) -> Checked:
    changed = list(entries)
    event = changed[number].event
    assert isinstance(event, HeartbeatAnswered)
    changed[number] = changed[number]._replace(event=replace(event, **values))  # type: ignore[arg-type]  # its fields
    return check_entries(changed)


def test_changed_responses_have_findings() -> None:
    """An older epoch, a join without an assignment, and a join without an epoch have findings."""
    entries = max(entries_of("no faults", 1), key=lambda one: check_entries(one).responses)
    assert check_entries(entries).responses > 10
    answers = [
        (number, entry.event) for number, entry in enumerate(entries) if isinstance(entry.event, HeartbeatAnswered)
    ]
    unchanged = [(number, event) for number, event in answers if event.assignment is None and event.member_epoch > 0]
    number, event = unchanged[len(unchanged) // 2]
    assert _change(entries, number, member_epoch=event.member_epoch - 1).findings
    number, event = answers[0]
    assert _change(entries, number, assignment=None).findings
    assert _change(entries, number, member_epoch=0).findings
