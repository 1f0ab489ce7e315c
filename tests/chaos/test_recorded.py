"""Recorded responses of the simulated coordinator have no finding, and changed responses have findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.membership.effects import SendHeartbeat
from consumer_membership.membership.events import HeartbeatAnswered, HeartbeatRejected, Verdict
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.recorder.ring import Entry
from consumer_membership.types import BrokerError
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


@pytest.mark.parametrize(("instance_id", "count"), [(None, 1), ("a", 0)])
def test_fenced_member_at_the_epoch_of_the_broker_is_a_finding_if_it_is_dynamic(
    instance_id: str | None, count: int
) -> None:
    """Another process may leave for a static member and so set its epoch to -2, but no process for a dynamic member."""
    entries = max(entries_of("no faults", 1), key=lambda one: check_entries(one).responses)
    number, answer = next(
        (number, entry.event)
        for number, entry in enumerate(entries)
        if isinstance(entry.event, HeartbeatAnswered) and entry.event.assignment is None
    )
    fenced = HeartbeatRejected(
        request_id=answer.request_id,
        verdict=Verdict.REJOIN,
        error=BrokerError(code=110, name="FENCED_MEMBER_EPOCH"),
    )
    sent = [entry._replace(effects=tuple(_of_instance(one, instance_id) for one in entry.effects)) for entry in entries]
    assert len(check_entries([*sent[:number], sent[number]._replace(event=fenced)]).findings) == count


def _of_instance(effect: GroupEffect, instance_id: str | None) -> GroupEffect:
    if isinstance(effect, SendHeartbeat):
        return replace(effect, heartbeat=replace(effect.heartbeat, instance_id=instance_id))
    return effect
