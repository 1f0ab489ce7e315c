"""The possible next steps of one process without the coordinator: its methods and their costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from consumer_membership.membership.effects import AssignPartitions, LosePartitions, RevokePartitions, WarmPartitions
from consumer_membership.membership.states import IN_GROUP, MemberState
from tests.simulation import internals

if TYPE_CHECKING:
    from tests.exploration.process import Process

#: The effects with callbacks of the application.
_CALLBACKS = (AssignPartitions, RevokePartitions, LosePartitions, WarmPartitions)

#: The times of the member's timers in seconds from now: a retry, and the ends of the leave, of a commit, of the session
#: and of max.poll.interval.ms.
RETRY_S = 0.1
LEAVE_S = 10.0
COMMIT_S = 30.0
SESSION_S = 45.0
POLL_S = 300.0


class Move(NamedTuple):
    """A possible next step: its method, the argument, and its budget (None: no cost)."""

    name: str
    number: int = 0
    budget: str | None = None


def moves_of(process: Process) -> Iterator[Move]:
    """Yield the possible next steps."""
    yield from _network_moves(process)
    yield from _application_moves(process)
    yield from _clock_moves(process)
    yield from process.transport.moves(process)


def _network_moves(process: Process) -> Iterator[Move]:
    if process.invariants.is_searching:
        yield Move("find_coordinator")
    if process.calls:
        yield Move("lose_call", budget="loss")
        if process.calls[0].answer is not None:
            yield Move("take_reply")
    if process.announcements:
        yield Move("lose_announcement", budget="loss")
        if process.announcements[0].answer is not None:
            yield Move("take_announcement")
    for number in range(len(process.late)):
        if process.late[number] not in process.late[:number]:
            yield Move("take_late", number)
    if internals.knows_coordinator(process.member):
        yield Move("break_connections", budget="break")


def _application_moves(process: Process) -> Iterator[Move]:
    application, state = process.application, process.shown
    if process.inbox:
        yield Move("post")
    if application.mailbox:
        yield Move("perform")
        if isinstance(application.mailbox[-1], _CALLBACKS):
            yield Move("raise_in_callback", budget="raise")
    if application.begun is not None:
        yield Move("finish_overtaken")
    if not process.inbox and not application.is_leaving and application.is_subscribed:
        yield Move("poll")
        for number in range(len(process.leave_options)):
            yield Move("leave", number, budget="leave")
    if not application.is_subscribed and not application.is_leaving and state is MemberState.UNSUBSCRIBED:
        yield Move("subscribe", budget="subscribe")


def _clock_moves(process: Process) -> Iterator[Move]:
    member = process.member
    if internals.may_heartbeat(member):
        yield Move("heartbeat")
    deadline = member.next_deadline()
    if deadline is not None and deadline <= RETRY_S:
        yield Move("retry")
    if process.shown in IN_GROUP:
        yield Move("miss_poll", budget="poll")
    if internals.repeats_leave(member):
        yield Move("repetitions_end")
    if process.shown is MemberState.UNSUBSCRIBING and internals.leaves_by(member) > 0.0:
        yield Move("leave_too_long", budget="timeout")
    if len(internals.commits(member)):
        yield Move("commit_too_long", budget="timeout")
