"""Check whether the simulated coordinator could have given the heartbeat responses of a recording.

The simulation is only useful if its coordinator behaves like a broker. `check_recording` replays the heartbeats of one
recorded member against the simulated broker's own code for members
(`consumer_membership.testing.coordinators.consumer.group_member`). The recording has neither the target assignment of
the group nor the partitions of other members, so several states of the member are possible after a response. A response
that fits none of these states is a finding: the simulation forbids what the broker did, or the recording is damaged.

After a request without a response, an error response, or a recording that does not begin with a join, the state is
unknown until the next join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from consumer_membership.membership.effects import Heartbeat, SendHeartbeat
from consumer_membership.membership.events import HeartbeatAnswered, HeartbeatFailed, HeartbeatRejected
from consumer_membership.recorder.recording import Recording
from consumer_membership.recorder.ring import Entry
from consumer_membership.testing.coordinators.consumer.group_member import ConsumerMember, Reconciliation, Standing
from consumer_membership.types import JOIN_EPOCH, Assignment, Instant, TopicIdPartition

_FENCED_MEMBER_EPOCH = 110
#: A partition of the target assignment that another member still owns; because of it, the member is UNRELEASED.
_UNRELEASED = TopicIdPartition(UUID(int=0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A response that the simulated coordinator could not give. `number` is its entry in the recording, from 1."""

    number: int
    at: Instant
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result for a recording: the number of compared responses, and the responses that do not fit."""

    responses: int
    findings: tuple[Finding, ...]


def check_recording(recording: Recording) -> Checked:
    """Check all heartbeat responses of this recording."""
    return check_entries(recording.entries)


def check_entries(entries: Iterable[Entry]) -> Checked:
    """Check all heartbeat responses of these entries."""
    checker = _Checker()
    for number, entry in enumerate(entries, 1):
        checker.check(number, entry)
    return Checked(responses=checker.responses, findings=tuple(checker.findings))


class _Checker:
    def __init__(self) -> None:
        self.responses = 0
        self.findings: list[Finding] = []
        self._sent: dict[int, Heartbeat] = {}
        #: The possible states of the member at the broker; None: unknown.
        self._states: list[ConsumerMember] | None = None

    def check(self, number: int, entry: Entry) -> None:
        """Check the next entry."""
        event = entry.event
        match event:
            case HeartbeatAnswered():
                heartbeat = self._sent.pop(event.request_id, None)
                if heartbeat is not None and not heartbeat.is_leave:
                    self._answered(number, entry.at, heartbeat, event)
            case HeartbeatRejected():
                heartbeat = self._sent.pop(event.request_id, None)
                if heartbeat is not None and event.error.code == _FENCED_MEMBER_EPOCH:
                    self._fenced(number, entry.at, heartbeat)
                self._states = None
            case HeartbeatFailed():
                self._sent.pop(event.request_id, None)
                self._states = None
            case _:
                pass
        for effect in entry.effects:
            if isinstance(effect, SendHeartbeat):
                if self._sent:
                    # An earlier request has no response yet: it is unknown whether the broker has processed it.
                    self._states = None
                self._sent[effect.request_id] = effect.heartbeat

    def _find(self, number: int, at: Instant, text: str) -> None:
        self.findings.append(Finding(number=number, at=at, text=text))

    def _answered(self, number: int, at: Instant, heartbeat: Heartbeat, answer: HeartbeatAnswered) -> None:
        if heartbeat.member_epoch == JOIN_EPOCH:
            self.responses += 1
            self._joined(number, at, answer)
            return
        if self._states is None:
            return
        self.responses += 1
        following = [after for state in self._states for after in _following(state, heartbeat, answer)]
        if not following:
            known = ", ".join(_described(state) for state in self._states)
            self._find(
                number,
                at,
                f"the response to {_described_heartbeat(heartbeat)} has epoch {answer.member_epoch} and "
                f"{_described_assignment(answer.assignment)}; possible before: {known}",
            )
            self._states = None
            return
        self._states = _distinct(following)

    def _joined(self, number: int, at: Instant, answer: HeartbeatAnswered) -> None:
        """Check the response to a join: it has the epoch of the target assignment and a complete assignment."""
        if answer.member_epoch <= JOIN_EPOCH or answer.assignment is None:
            self._find(
                number,
                at,
                f"the response to a join has epoch {answer.member_epoch} and "
                f"{_described_assignment(answer.assignment)}",
            )
            self._states = None
            return
        member = ConsumerMember(
            member_id="member",
            epoch=answer.member_epoch,
            previous_epoch=JOIN_EPOCH,
            assigned=dict.fromkeys(answer.assignment, answer.member_epoch),
        )
        self._states = [member, replace(member.copy(), standing=Standing.UNRELEASED)]

    def _fenced(self, number: int, at: Instant, heartbeat: Heartbeat) -> None:
        if heartbeat.instance_id is not None:
            return  # another process may have left for this static member, which sets its epoch to -2
        if self._states and all(state.epoch == heartbeat.member_epoch for state in self._states):
            self._find(
                number,
                at,
                f"{_described_heartbeat(heartbeat)} was fenced, but the broker's epoch can only be "
                f"{heartbeat.member_epoch}",
            )


def _following(state: ConsumerMember, heartbeat: Heartbeat, answer: HeartbeatAnswered) -> Iterator[ConsumerMember]:
    """Yield the states after a heartbeat in this state that are consistent with the response."""
    assignment = frozenset(state.assigned) if answer.assignment is None else answer.assignment
    for reconciliation in _reconciliations(state, heartbeat, answer, assignment):
        after = state.copy()
        if reconciliation is not None:
            reconciliation.apply(after)
        has_assignment = heartbeat.is_full or after.assigned.keys() != state.assigned.keys()
        expected = frozenset(after.assigned) if has_assignment else None
        if after.epoch == answer.member_epoch and expected == answer.assignment:
            yield after


def _reconciliations(
    state: ConsumerMember, heartbeat: Heartbeat, answer: HeartbeatAnswered, assignment: Assignment
) -> Iterator[Reconciliation | None]:
    """Yield all reconciliations that other members may have caused in this heartbeat; None: no reconciliation."""
    yield None
    targets = {assignment, assignment | {_UNRELEASED}}
    epochs = {state.epoch, state.epoch + 1, answer.member_epoch, answer.member_epoch + 1}
    # The epoch of the target assignment never decreases, and no member has a newer epoch.
    epochs = {epoch for epoch in epochs if epoch >= state.epoch}
    for target in targets:
        for epoch in epochs:
            for changed in (False, True):
                for keeps_epoch in (True, False):
                    yield Reconciliation(
                        target=target,
                        target_epoch=epoch,
                        owned=heartbeat.owned,
                        subscribed=lambda partition: partition in assignment,
                        subscription_changed=changed,
                        is_free=lambda partition: partition != _UNRELEASED,
                        keeps_epoch=keeps_epoch,
                    )


def _distinct(states: Iterable[ConsumerMember]) -> list[ConsumerMember]:
    """Return each different state once, in the order of first occurrence."""
    found = {(s.epoch, s.previous_epoch, s.standing, frozenset(s.assigned), frozenset(s.revoking)): s for s in states}
    return list(found.values())


def _described(state: ConsumerMember) -> str:
    parts = f"epoch {state.epoch} with {len(state.assigned)} partitions, {state.standing.value}"
    return f"{parts}, {len(state.revoking)} to revoke" if state.revoking else parts


def _described_heartbeat(heartbeat: Heartbeat) -> str:
    owned = "" if heartbeat.owned is None else f", owning {len(heartbeat.owned)} partitions"
    return f"a heartbeat of epoch {heartbeat.member_epoch}{owned}"


def _described_assignment(assignment: Assignment | None) -> str:
    return "an unchanged assignment" if assignment is None else f"an assignment of {len(assignment)} partitions"
