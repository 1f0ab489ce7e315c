"""Rewrites the common parts of processes, so that processes with equal behavior in equal states have equal keys.

Numbers that are only compared are renamed, times become "due" or "later", and values for people are dropped; the
package's docstring explains why this is sound. The member's clock is always 0 between two events. A field of the core
that is unknown here stays in the key unchanged, which adds states but keeps the search sound. The parts that depend on
the protocol are in `consumer.canonical` and `classic.canonical`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from consumer_membership.membership.effects import CommitOffsets, FetchCommitted
from consumer_membership.membership.events import StepFinished
from consumer_membership.membership.offsets import AUTOMATIC_TRIES, PendingCommits, _Pending
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.types import LeaveOption
from tests.exploration.application import renumbered
from tests.exploration.moves import COMMIT_S, LEAVE_S, RETRY_S
from tests.simulation import internals

if TYPE_CHECKING:
    from consumer_membership.membership.member import MemberCore
    from tests.exploration.process import Process

#: The number of the current attempt; older attempts count down from it.
ATTEMPT = 9
#: The number of requests whose answer no member awaits.
STALE = 0


def canonicalise(process: Process) -> None:
    """Rewrite the parts that all protocols have; the member handled its last event at `context.event.now`."""
    member = process.member
    now = member.context.event.now
    _rename_attempts(process)
    _rename_targets(member.context.ownership, member.context.reconciler)
    _rename_commits(process, now)
    _place_member(process, member, now)
    _place_reconciler(member.context.reconciler, now)
    _place_application(process)


def ranks(numbers: Iterable[int | None]) -> dict[int | None, int]:
    """Return the rank of each of these numbers; None is not a number."""
    return {number: place for place, number in enumerate(sorted({n for n in numbers if n is not None}))}


def later(moment: float | None, now: float, delay: float) -> float | None:
    """Return the delay if the time lies in the future, else 0."""
    if moment is None:
        return None
    return delay if moment > now else 0.0


# ---- numbers ----


def _rename_attempts(process: Process) -> None:
    reconciler = process.member.context.reconciler
    present = reconciler.attempt
    if present == ATTEMPT:
        return
    shift = ATTEMPT - present

    def rename(attempt: int) -> int:
        return max(0, attempt + shift)

    application = process.application
    application.mailbox = renumbered(application.mailbox, rename)
    process.inbox = [
        replace(event, attempt=ATTEMPT if event.attempt == present else 0) if isinstance(event, StepFinished) else event
        for event in process.inbox
    ]
    process.calls = [
        one._replace(order=replace(one.order, attempt=ATTEMPT if one.order.attempt == present else 0))
        if isinstance(one.order, FetchCommitted)
        else one
        for one in process.calls
    ]
    step = process.invariants.step
    process.invariants.step = (ATTEMPT, step[1]) if step is not None and step[0] == present else None
    reconciler.attempt = ATTEMPT


def _rename_targets(ownership: Ownership, reconciler: Reconciler) -> None:
    is_running = reconciler.phase not in (Phase.IDLE, Phase.LOSE, Phase.AWAIT_POLL)
    begun = reconciler._target_number if is_running else None
    place = ranks((ownership.target_number, ownership.reached, begun))
    ownership.target_number = place[ownership.target_number]
    ownership.reached = place[ownership.reached]
    reconciler._target_number = 0 if begun is None else place[begun]
    if not is_running:
        reconciler._epoch, reconciler._offsets, reconciler._commit_within_s = 0, {}, COMMIT_S
    ownership._changed()


def _rename_commits(process: Process, now: float) -> None:
    member = process.member
    commits, reconciler = member.context.commits, member.context.reconciler
    order = sorted(commits._pending.values(), key=lambda commit: commit.number)
    names = {commit.commit_id: -1 - place for place, commit in enumerate(order)}
    process.calls = [
        one._replace(order=replace(one.order, commit_id=names.get(one.order.commit_id, STALE)))
        if isinstance(one.order, CommitOffsets)
        else one
        for one in process.calls
    ]
    reconciler._commit_id = None if reconciler._commit_id is None else names.get(reconciler._commit_id, STALE)
    oldest = order[0].number if order else 0
    for place, commit in enumerate(order):
        commit.commit_id = -1 - place
        commit.deadline = later(commit.deadline, now, COMMIT_S) or 0.0
        commit.not_before = later(commit.not_before, now, RETRY_S) or 0.0
        # The lookup of the coordinator always succeeds here, so these values do not matter.
        commit.begun_at, commit.failure = 0.0, None
        commit.backoff.failures = min(commit.backoff.failures, AUTOMATIC_TRIES)
    _rename_outcomes(commits, oldest)
    commits._pending = {commit.commit_id: commit for commit in order}
    commits._last_automatic_id = -len(order)


def _rename_outcomes(commits: PendingCommits, oldest: int) -> None:
    """Rename the outcomes of commits; only those of commits younger than a pending commit are read."""
    pending = commits._pending.values()
    alive = {id(commit) for commit in pending}
    asked = {partition for commit in pending for partition in commit.offsets}
    commits._newest = {p: commit for p, commit in commits._newest.items() if id(commit) in alive or p in asked}
    for commit in commits._newest.values():
        if id(commit) not in alive:
            _empty(commit)
    outcomes = {p: one for p, one in commits._outcomes.items() if pending and one[0] > oldest}
    place = ranks([commit.number for commit in pending] + [number for number, _ in outcomes.values()])
    for commit in pending:
        commit.number = place[commit.number] + 1
    commits._outcomes = {p: (place[number] + 1, error) for p, (number, error) in outcomes.items()}
    commits._begun = len(place)


def _empty(commit: _Pending) -> None:
    """Reset the values of a commit that has ended, because they do not matter any more."""
    commit.commit_id = commit.number = 0
    commit.deadline = commit.not_before = 0.0
    commit.offsets, commit.requested, commit.errors, commit.revoked = {}, {}, {}, set()
    commit.backoff.reset()
    commit.stale_epoch, commit.stale_tries, commit.unknown_tries = None, 0, 0
    commit.begun_at, commit.failure = 0.0, None


# ---- times ----


def _place_member(process: Process, member: MemberCore, now: float) -> None:
    context, leave = member.context, member.context.leave
    context.event._effects = []
    context.history.since = None
    context.history.transitions.clear()
    context.history.last_error = None
    internals.protocol(member).last_heartbeat_at = None
    member._polled_at = leave.since = 0.0
    is_leaving = process.shown is MemberState.UNSUBSCRIBING
    leave.by = (later(leave.by, now, LEAVE_S) or 0.0) if is_leaving else 0.0
    leave.repeat_at = later(leave.repeat_at, now, RETRY_S)
    if not is_leaving:
        leave.option = LeaveOption.DEFAULT
        leave._is_first = True
    context.coordinator.searching_since = None if context.coordinator.searching_since is None else 0.0


def _place_reconciler(reconciler: Reconciler, now: float) -> None:
    reconciler.since = None
    reconciler._fetch_at = later(reconciler._fetch_at, now, RETRY_S) if reconciler.phase is Phase.FETCH else None
    reconciler._resolve_at = later(reconciler._resolve_at, now, RETRY_S)
    reconciler._fetch_backoff.failures = 0
    reconciler._resolve_backoff.failures = min(reconciler._resolve_backoff.failures, 1)


def _place_application(process: Process) -> None:
    application, invariants = process.application, process.invariants
    application.drop_overtaken()
    is_idle = not application.mailbox and not application.held and not process.inbox
    if is_idle and process.shown in SILENT:
        # No partition is fetchable before the next join, which ends the excuse.
        invariants.is_excused, invariants.paused, invariants.step = False, None, None
