"""What a member does, for people: log lines in the Java client's words where it has some.

The observer runs on the membership thread after each event; it must be quick and must not raise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from consumer_membership.membership.effects import (
    AssignPartitions,
    Effect,
    FindCoordinator,
    InstanceReleased,
    LosePartitions,
    Problem,
    RaiseToApplication,
    RevokePartitions,
    SendHeartbeat,
    StateChanged,
    Warned,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    Event,
    GroupDescribeFailed,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import TopicPartition

_LOG = logging.getLogger("consumer_membership.membership")

#: The states whose entry an operator wants to see without asking for details.
_NOTABLE = frozenset({MemberState.JOINING, MemberState.FENCED, MemberState.STALE, MemberState.UNSUBSCRIBED})


class Observer(Protocol):
    """Sees each event with what it led to, and the member's picture afterwards."""

    def observed(self, event: Event, effects: tuple[Effect, ...], view: MembershipView) -> None:
        """Take note of it."""


class LogObserver:
    """Writes joins, assignments, leaves and fences at INFO, refusals at WARNING and ERROR, the rest at DEBUG."""

    def __init__(self, log: logging.Logger = _LOG) -> None:
        self._log = log
        self._repeated: tuple[str, int] = ("", 0)

    def observed(self, event: Event, effects: tuple[Effect, ...], view: MembershipView) -> None:
        """Write what this event and its effects are worth."""
        if not self._log.isEnabledFor(logging.INFO) and not effects:
            return
        self._note_event(event, view)
        for effect in effects:
            self._note_effect(effect, view)

    def _note_event(self, event: Event, view: MembershipView) -> None:
        match event:
            case CoordinatorFound():
                self._log.info("[%s] Discovered group coordinator %s", _who(view), event.coordinator)
            case HeartbeatRejected(verdict=Verdict.UNRELEASED):
                # What follows says whether it was taken over, is waited for, or is the end.
                self._log.info("[%s] %s", _who(view), event.error)
            case HeartbeatRejected():
                self._once_then_counted(f"[{_who(view)}] GroupHeartbeatRequest failed: {event.error}")
            case GroupDescribeFailed():
                self._log.info("[%s] The group's members cannot be described: %s", _who(view), event.error)
            case HeartbeatFailed():
                self._once_then_counted(f"[{_who(view)}] GroupHeartbeatRequest failed: {event.reason}")
            case _:
                pass

    def _note_effect(self, effect: Effect, view: MembershipView) -> None:
        who = _who(view)
        match effect:
            case StateChanged():
                level = logging.INFO if effect.new in _NOTABLE else logging.DEBUG
                text = "[%s] Member %s with epoch %d transitioned from %s to %s: %s"
                self._log.log(
                    level, text, who, view.member_id, view.member_epoch, effect.old, effect.new, effect.reason
                )
            case AssignPartitions():
                self._log.info("[%s] Adding newly assigned partitions: %s", who, _names(effect.offsets))
            case RevokePartitions():
                names = "all" if effect.partitions is None else _names(effect.partitions)
                self._log.info("[%s] Revoking previously assigned partitions: %s", who, names)
            case LosePartitions():
                self._log.warning("[%s] Lost all assigned partitions", who)
            case RaiseToApplication():
                level = logging.ERROR if effect.problem is Problem.FATAL else logging.WARNING
                self._log.log(level, "[%s] %s", who, effect.error)
            case InstanceReleased():
                text = "[%s] Took over instance id %s: released member %s on its behalf; if it lives, it will be fenced"
                self._log.info(text, who, effect.instance_id, effect.holder)
            case Warned():
                self._log.warning("[%s] %s", who, effect.words)
            case FindCoordinator():
                self._log.debug("[%s] Looking up the group coordinator: %s", who, effect.reason)
            case SendHeartbeat():
                self._log.debug("[%s] Sending %s", who, effect.heartbeat)
            case _:
                pass

    def _once_then_counted(self, text: str) -> None:
        """Write a failure once; its repetitions only at their 10th, 100th, ... time."""
        last, count = self._repeated
        count = count + 1 if text == last else 1
        self._repeated = (text, count)
        if count == 1:
            self._log.warning("%s", text)
        elif str(count).strip("0") == "1":
            self._log.warning("%s (%d times in a row)", text, count)


def _who(view: MembershipView) -> str:
    instance = f", instanceId={view.instance_id}" if view.instance_id is not None else ""
    return f"Consumer groupId={view.group_id}{instance}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"
