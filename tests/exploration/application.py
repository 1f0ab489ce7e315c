"""The application's thread of one explored process: it performs what its member orders, and holds partitions.

It keeps the order contract of `membership.effects`: one step at a time, in order, those of an overtaken attempt dropped
unless their callback has begun. There are no records: "held and not frozen" is what the user may get records of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    StepEffect,
    WarmPartitions,
)
from consumer_membership.membership.events import StepFinished, Warmed
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.simulation.process_invariants import STEP_OF, STEPS, check

#: What every commit commits: offsets have no values here.
CONSUMED = OffsetAndMetadata(offset=1)
Partitions = frozenset[TopicPartition]


@dataclass(slots=True)
class Application:
    """What an application holds, and what waits for it. `commits`: whether consumed positions are reported.

    `is_eager`: its callbacks are called as under the eager protocol.
    """

    name: str
    commits: bool
    is_eager: bool = False
    held: set[TopicPartition] = field(default_factory=set)
    frozen: set[TopicPartition] = field(default_factory=set)
    mailbox: list[ApplicationEffect] = field(default_factory=list)
    is_leaving: bool = False
    is_subscribed: bool = False
    #: The partitions that its latest on_warm has prepared for.
    warmed: Partitions = frozenset()

    @property
    def fetchable(self) -> Partitions:
        """What the user may get records of."""
        return frozenset(self.held - self.frozen)

    @property
    def begun(self) -> StepEffect | None:
        """The overtaken step at the head of the mailbox whose callback may have begun before it was overtaken."""
        head = self.mailbox[0] if self.mailbox else None
        if isinstance(head, STEPS) and not isinstance(head, PausePartitions) and self._is_overtaken(head):
            return head
        return None

    def _is_overtaken(self, step: StepEffect) -> bool:
        return any(isinstance(other, STEPS) and other.attempt > step.attempt for other in self.mailbox)

    def mail(self, effects: list[ApplicationEffect]) -> None:
        """Put what one event ordered into the mailbox; what was overtaken within it was never there."""
        newest = max((effect.attempt for effect in effects if isinstance(effect, STEPS)), default=0)
        if any(isinstance(one, WarmPartitions) for one in effects):
            self.mailbox = [one for one in self.mailbox if not isinstance(one, WarmPartitions)]
        self.mailbox += [one for one in effects if not isinstance(one, STEPS) or one.attempt == newest]

    def finish_overtaken(self) -> ApplicationEffect:
        """Take the step that had begun before it was overtaken; no other overtaken one can have begun."""
        step = self.mailbox.pop(0)
        newest = max((one.attempt for one in self.mailbox if isinstance(one, STEPS)), default=0)
        self.mailbox = [one for one in self.mailbox if not isinstance(one, STEPS) or one.attempt == newest]
        return step

    def next_step(self) -> ApplicationEffect | None:
        """Take what is to be performed next; overtaken steps are dropped."""
        while self.mailbox:
            effect = self.mailbox.pop(0)
            if not isinstance(effect, STEPS) or not self._is_overtaken(effect):
                return effect
        return None

    def drop_overtaken(self) -> None:
        """Drop the overtaken steps that cannot have begun: all but the first thing that waits."""
        begun = self.begun
        self.mailbox = [
            one for one in self.mailbox if one is begun or not isinstance(one, STEPS) or not self._is_overtaken(one)
        ]

    def perform(self, step: StepEffect, *, raises: bool) -> StepFinished:
        """Perform a step to its end; return the event for the member."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        match step:
            case PausePartitions():
                self.frozen = self._of(step.partitions)
                offsets = dict.fromkeys(sorted(self.frozen), CONSUMED) if self.commits else {}
            case RevokePartitions():
                if not raises or step.partitions is None:
                    strange = (step.partitions or frozenset()) - self.held
                    check(not strange, f"{self.name}: on_revoke for {sorted(strange)}, which it does not hold")
                    self._drop(self._of(step.partitions))
            case LosePartitions():
                self._drop(set(self.held))
            case AssignPartitions():
                if not raises:
                    doubled = self.held & step.offsets.keys()
                    check(not doubled, f"{self.name}: on_assign for {sorted(doubled)}, which it holds already")
                    self.held |= step.offsets.keys()
                    self.frozen.clear()
        return StepFinished(attempt=step.attempt, step=STEP_OF[type(step)], offsets=offsets, failed=raises)

    def warm(self, order: WarmPartitions, *, raises: bool) -> Warmed:
        """Prepare for partitions; return the event for the member."""
        self.warmed = frozenset() if raises else order.partitions
        return Warmed(attempt=order.attempt, failed=raises)

    def has_left(self) -> None:
        """The member has left: everything was given up before."""
        if self.is_leaving:
            check(not self.held, f"{self.name} has left without on_revoke or on_lost for {sorted(self.held)}")
        self.is_leaving = False

    def _of(self, partitions: Partitions | None) -> set[TopicPartition]:
        return set(self.held) if partitions is None else self.held & partitions

    def _drop(self, partitions: set[TopicPartition]) -> None:
        self.held -= partitions
        self.frozen -= partitions


def renumbered(mailbox: list[ApplicationEffect], rename: Callable[[int], int]) -> list[ApplicationEffect]:
    """The mailbox with other attempt numbers."""
    return [replace(one, attempt=rename(one.attempt)) if isinstance(one, STEPS) else one for one in mailbox]
