"""The rules for a member's effects after any event: the order contract of `effects`, and the protocol's rules.

The checker also plays the application: it derives the application's partitions from the completed steps.
"""

from __future__ import annotations

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.states import SILENT, TRANSITIONS, MemberState, followers
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import JOIN_EPOCH, Offsets, TopicPartition
from tests.membership.builders import STEP_OF, STEPS, Scene

S = MemberState

#: Within an attempt, a step comes after the steps of lower rank; on_lost has its own attempt.
_RANK = {ef.PausePartitions: 0, ef.RevokePartitions: 1, ef.AssignPartitions: 2, ef.LosePartitions: 3}


def check_view_outside_group(view: MembershipView) -> None:
    """Check that a member outside its group shows no epoch or assignment: a replacement may have the epoch."""
    if view.state in SILENT:
        assert (view.member_epoch, view.group_protocol) == (0, None), view
        assert (view.owned, view.target, view.unresolved, view.pending_revocation) == ({}, set(), 0, set()), view


class OrderContract:
    """Feeds a scene and checks every effect against the rules. Effects before the first event count as correct."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.state = scene.state
        self.in_flight = scene.protocol.heartbeats.in_flight
        #: The partitions that the application holds after the steps that it has completed.
        self.held: set[TopicPartition] = set(scene.owned)
        self.paused: frozenset[TopicPartition] | None = frozenset()
        #: Steps that the application has not performed yet, in order.
        self.steps: list[ef.StepEffect] = []
        self.newest = 0
        self._rank = -1
        self._is_searching = scene.context.coordinator.searching_since is not None
        self._commits: set[int] = set()
        self._was_overdue = False
        #: The offsets that must be committed before the running revocation calls on_revoke.
        self.uncommitted: Offsets = {}
        for effect in scene.effects:
            if isinstance(effect, STEPS):
                self.newest, self._rank = effect.attempt, _RANK[type(effect)]
                self.steps = [effect]
                if isinstance(effect, ef.PausePartitions):
                    self.paused = effect.partitions

    # ---- feeding ----

    def feed(self, event: ev.Event) -> None:
        """Pass an event to the member, and check its effects."""
        before = self.scene.protocol.member_epoch
        self._take(event)
        self.scene.feed(event)
        assert self.scene.protocol.member_epoch >= JOIN_EPOCH, (event, before)
        for number, effect in enumerate(self.scene.last):
            self._check_effect(effect, self.scene.last[number + 1 :])  # type: ignore[arg-type]  # the member uses the consumer protocol
        assert self.state is self.scene.state
        check_view_outside_group(self.scene.view)
        self._check_deadline()

    def perform(self, offsets: Offsets, *, failed: bool) -> None:
        """The application completes its outstanding step."""
        step = self.steps[0]
        kind = STEP_OF[type(step)]
        self.feed(ev.StepFinished(attempt=step.attempt, step=kind, offsets=offsets, failed=failed))

    def _performed(self, event: ev.StepFinished) -> None:
        """Update the application's partitions after a step, if the step was outstanding."""
        step = next((s for s in self.steps if (s.attempt, STEP_OF[type(s)]) == (event.attempt, event.step)), None)
        if step is None:
            return
        self.steps.remove(step)
        match step:
            case ef.PausePartitions() if not event.failed and self.scene.member.settings.auto_commit:
                self.uncommitted = event.offsets
            case ef.RevokePartitions() if not event.failed or step.partitions is None:
                self.held -= self.held if step.partitions is None else step.partitions
            case ef.LosePartitions():
                self.held.clear()
            case ef.AssignPartitions() if not event.failed:
                self.held |= step.offsets.keys()
            case _:
                pass

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.HeartbeatAnswered() | ev.HeartbeatRejected() | ev.HeartbeatFailed():
                if event.request_id == self.in_flight:
                    self.in_flight = None
            case ev.CoordinatorFound():
                self._is_searching = False
            case ev.StepFinished():
                self._performed(event)
            case ev.CommitRequested() if event.commit_id > 0:
                self._commits.add(event.commit_id)
            case _:
                pass

    # ---- the rules ----

    def _check_effect(self, effect: ef.Effect, rest: tuple[ef.Effect, ...]) -> None:
        match effect:
            case ef.StateChanged():
                assert effect.old is self.state
                assert effect.new in followers(TRANSITIONS)[effect.old], effect
                self.state = effect.new
                if effect.new in SILENT or effect.new is S.JOINING:
                    self.in_flight = None
                if effect.new is S.JOINING:
                    assert self.held == set(), "the member joins again while the application holds partitions"
            case ef.SendHeartbeat():
                self._check_heartbeat(effect, rest)
            case ef.FindCoordinator():
                assert not self._is_searching, "two coordinator lookups at once"
                self._is_searching = True
            case ef.PausePartitions() | ef.RevokePartitions() | ef.LosePartitions() | ef.AssignPartitions():
                self._check_step(effect)
            case ef.CommitOffsets():
                assert effect.offsets, "a commit without offsets"
                assert effect.member_epoch != JOIN_EPOCH, "a commit without an epoch"
            case ef.CommitCompleted():
                if effect.commit_id > 0:
                    assert effect.commit_id in self._commits, "a commit completes twice, or was never requested"
                    self._commits.remove(effect.commit_id)
                if self.uncommitted and effect.offsets == self.uncommitted:
                    self.uncommitted = {}
            case ef.RaiseToApplication(problem=ef.Problem.FATAL):
                assert any(isinstance(e, ef.StateChanged) and e.new is S.FATAL for e in rest), (
                    "a fatal error without a change to FATAL"
                )
            case _:
                pass

    def _check_heartbeat(self, order: ef.SendHeartbeat, rest: tuple[ef.Effect, ...]) -> None:
        heartbeat = order.heartbeat
        if heartbeat.is_leave and heartbeat.owned is not None:
            goes_stale = any(isinstance(effect, ef.StateChanged) and effect.new is S.STALE for effect in rest)
            # After repeated fences, a dynamic member ends its old id and joins with a new one.
            takes_new_id = self.state is S.FENCED and heartbeat.member_id != self.scene.protocol.member_id
            assert self.state is S.UNSUBSCRIBING or goes_stale or takes_new_id, f"a leave in {self.state}"
            if not goes_stale:
                assert self.held == set(), "a leave before all partitions were released"
            return
        assert self.state not in SILENT, f"a heartbeat in {self.state}"
        assert self.in_flight is None, "two ordinary heartbeats in flight"
        self.in_flight = order.request_id
        if heartbeat.member_epoch == JOIN_EPOCH:
            assert heartbeat.is_full, heartbeat
            assert heartbeat.owned == frozenset(), heartbeat
        if heartbeat.owned is not None:
            stated = self.scene.context.ownership.named(heartbeat.owned)
            message = f"the member reports {sorted(stated)}, the application holds {sorted(self.held)}"
            assert self.held <= stated, message
            if any(isinstance(effect, ef.StateChanged) and effect.old is S.ACK for effect in rest):
                assert stated == self.held, message

    def _check_step(self, step: ef.StepEffect) -> None:
        assert step.attempt >= self.newest, "attempts grow"
        rank = _RANK[type(step)]
        if step.attempt > self.newest:
            self._rank, self.uncommitted, self.steps = -1, {}, []
        assert rank > self._rank, f"{step} after a step of rank {self._rank}"
        assert not self.steps, "two outstanding steps of one attempt"
        self.newest, self._rank = step.attempt, rank
        self.steps = [step]
        match step:
            case ef.PausePartitions():
                self.paused = step.partitions
            case ef.RevokePartitions():
                assert step.partitions == self.paused, "the revoked partitions differ from the paused ones"
                assert not self.uncommitted, "on_revoke before the commit completed"
            case ef.AssignPartitions():
                assert not (step.offsets.keys() & self.held), "assigned partitions that the application already holds"
            case _:
                pass

    def _check_deadline(self) -> None:
        """Check that a due action is taken by the next `TimePassed`, so that the runtime does not spin."""
        deadline, now = self.scene.member.next_deadline(), self.scene.now
        if deadline is None or deadline > now:
            self._was_overdue = False
            return
        message = f"an action has been due for {now - deadline} s, but no effect followed"
        assert self.scene.last or not self._was_overdue, message
        self._was_overdue = True
        self.feed(ev.TimePassed())
