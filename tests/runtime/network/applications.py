"""Applications of members on real threads, without a session: each performs the orders of its member."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    RevokePartitions,
)
from consumer_membership.membership.events import Polled, Step, StepFinished, Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.network.thread import NetworkThread
from consumer_membership.types import Subscription
from tests.support.waiting import SOONER_THAN_A_SESSION_S, wait_until

TOPIC = "orders"


@dataclass(slots=True)
class Application:
    """An application that performs and records its member's orders; the test's thread is the application's thread."""

    line: Line
    thread: NetworkThread
    arrival: threading.Event = field(default_factory=threading.Event)
    orders: list[str] = field(default_factory=list)
    problems: list[RaiseToApplication] = field(default_factory=list)
    commits: list[CommitCompleted] = field(default_factory=list)
    polls: int = 0
    is_gone: bool = False
    #: Whether on_assign raises.
    raises_in_on_assign: bool = False

    def subscribe(self) -> None:
        """Subscribe and poll, which starts the thread."""
        self.line.send(Subscribed(subscription=Subscription(topics=frozenset({TOPIC}))), Polled())

    def poll(self) -> None:
        """Perform the waiting orders."""
        self.polls += 1
        self.arrival.wait(0.005)
        self.arrival.clear()
        orders: deque[ApplicationEffect] = deque()
        self.line.move_orders(orders)
        for effect in orders:
            self._perform(effect)
        self.line.wake_up.review()

    def _perform(self, effect: ApplicationEffect) -> None:
        match effect:
            case PausePartitions():
                self._finish("pause", effect.attempt, Step.PAUSE)
            case RevokePartitions():
                self._finish("revoke", effect.attempt, Step.REVOKE)
            case LosePartitions():
                self._finish("lose", effect.attempt, Step.LOSE)
            case AssignPartitions():
                self._finish(f"assign {len(effect.offsets)}", effect.attempt, Step.ASSIGN)
            case RaiseToApplication():
                self.problems.append(effect)
            case CommitCompleted():
                self.commits.append(effect)
            case LeaveCompleted():
                self.is_gone = True
            case _:
                pass

    def _finish(self, order: str, attempt: int, step: Step) -> None:
        self.orders.append(order)
        failed = self.raises_in_on_assign and step is Step.ASSIGN
        self.line.post(StepFinished(attempt=attempt, step=step, failed=failed))

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self.line.view.state

    def owns(self, count: int) -> bool:
        """Return whether the member is STABLE with this many partitions."""
        return self.state is MemberState.STABLE and len(self.line.view.owned) == count


def poll_until(condition: Callable[[], bool], what: str, *applications: Application) -> None:
    """Let these applications poll until the condition holds; the wait is shorter than a session."""

    def poll() -> None:
        for application in applications:
            application.poll()

    wait_until(
        condition,
        what,
        SOONER_THAN_A_SESSION_S,
        between=poll,
        seen=lambda: [application.line.view for application in applications],
    )
