"""The application's thread of one explored process: it performs the effects of its member, and holds partitions.

It follows the order contract of `membership.effects`: one step at a time, in order, without the steps of an overtaken
attempt unless their callback has begun. There are no records: the application may receive records of partitions that
are held and not frozen.
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

#: The positions of every commit; offsets have no values here.
CONSUMED = OffsetAndMetadata(offset=1)
Partitions = frozenset[TopicPartition]


@dataclass(slots=True)
class Application:
    """The partitions of an application, and its pending effects.

    `commits`: whether it reports consumed positions. `is_eager`: whether its callbacks are those of the eager protocol.
    """

    name: str
    commits: bool
    is_eager: bool = False
    held: set[TopicPartition] = field(default_factory=set)
    frozen: set[TopicPartition] = field(default_factory=set)
    mailbox: list[ApplicationEffect] = field(default_factory=list)
    is_leaving: bool = False
    is_subscribed: bool = False
    #: The partitions of its latest on_warm.
    warmed: Partitions = frozenset()

    @property
    def fetchable(self) -> Partitions:
        """The partitions whose records the application may receive."""
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
        """Add the effects of one event to the mailbox, without those that are overtaken by the same event."""
        newest = max((effect.attempt for effect in effects if isinstance(effect, STEPS)), default=0)
        if any(isinstance(one, WarmPartitions) for one in effects):
            self.mailbox = [one for one in self.mailbox if not isinstance(one, WarmPartitions)]
        self.mailbox += [one for one in effects if not isinstance(one, STEPS) or one.attempt == newest]

    def finish_overtaken(self) -> ApplicationEffect:
        """Return the overtaken step whose callback had begun; drop the other overtaken steps, which had not begun."""
        step = self.mailbox.pop(0)
        newest = max((one.attempt for one in self.mailbox if isinstance(one, STEPS)), default=0)
        self.mailbox = [one for one in self.mailbox if not isinstance(one, STEPS) or one.attempt == newest]
        return step

    def next_step(self) -> ApplicationEffect | None:
        """Return the next effect; drop overtaken steps."""
        while self.mailbox:
            effect = self.mailbox.pop(0)
            if not isinstance(effect, STEPS) or not self._is_overtaken(effect):
                return effect
        return None

    def drop_overtaken(self) -> None:
        """Drop the overtaken steps that cannot have begun: all except a step at the head of the mailbox."""
        begun = self.begun
        self.mailbox = [
            one for one in self.mailbox if one is begun or not isinstance(one, STEPS) or not self._is_overtaken(one)
        ]

    def perform(self, step: StepEffect, *, raises: bool) -> StepFinished:
        """Perform a step; return the event for the member."""
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
        """Check after a leave that all partitions were revoked or lost."""
        if self.is_leaving:
            check(not self.held, f"{self.name} has left without on_revoke or on_lost for {sorted(self.held)}")
        self.is_leaving = False

    def _of(self, partitions: Partitions | None) -> set[TopicPartition]:
        return set(self.held) if partitions is None else self.held & partitions

    def _drop(self, partitions: set[TopicPartition]) -> None:
        self.held -= partitions
        self.frozen -= partitions


def renumbered(mailbox: list[ApplicationEffect], rename: Callable[[int], int]) -> list[ApplicationEffect]:
    """Return the mailbox with renamed attempt numbers."""
    return [replace(one, attempt=rename(one.attempt)) if isinstance(one, STEPS) else one for one in mailbox]
