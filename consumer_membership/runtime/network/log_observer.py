"""What a member does, for people: log lines in the Java client's words where it has some.

The observer runs on the membership thread after each event; it must be quick and must not raise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.exchanges import AssignmentComputed, TopicsNotDescribed
from consumer_membership.membership.effects import (
    AssignPartitions,
    FindCoordinator,
    InstanceReleased,
    LosePartitions,
    Problem,
    ProtocolChosen,
    RaiseToApplication,
    RevokePartitions,
    SendHeartbeat,
    StateChanged,
    TopicsAppeared,
    Warned,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    GroupDescribeFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.failures import is_power_of_ten
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.types import CONFLICT_CODE, TopicPartition

#: The states whose entry an operator wants to see without asking for details.
_NOTABLE = frozenset({MemberState.JOINING, MemberState.FENCED, MemberState.STALE, MemberState.UNSUBSCRIBED})
#: Where a member is when its leave is answered, and the answers by which the coordinator does not know it (any more).
_LEFT = frozenset({MemberState.UNSUBSCRIBING, MemberState.UNSUBSCRIBED})
_UNKNOWN = frozenset({Verdict.REJOIN, Verdict.GROUP_GONE})


#: librdkafka's words for what a line is about, by which its users search.
_OTHER = "CGRP"
_FACILITIES: Mapping[type[GroupEvent | GroupEffect], str] = MappingProxyType(
    {
        CoordinatorFound: "CGRPCOORD",
        FindCoordinator: "CGRPQUERY",
        SendHeartbeat: "HEARTBEAT",
        HeartbeatAnswered: "HEARTBEAT",
        HeartbeatRejected: "HEARTBEAT",
        HeartbeatFailed: "HEARTBEAT",
        ex.SendClassicHeartbeat: "HEARTBEAT",
        ex.ClassicHeartbeatAnswered: "HEARTBEAT",
        ex.ClassicHeartbeatRejected: "HEARTBEAT",
        ex.SendJoin: "JOIN",
        ex.JoinAnswered: "JOINGROUP",
        ex.JoinRejected: "JOINGROUP",
        ex.SyncAnswered: "SYNCGROUP",
        ex.SyncRejected: "SYNCGROUP",
        ex.SendClassicLeave: "LEAVE",
        AssignmentComputed: "ASSIGNOR",
        StateChanged: "CGRPJOINSTATE",
        AssignPartitions: "ASSIGN",
        RevokePartitions: "REVOKE",
        LosePartitions: "ASSIGNMENTLOST",
    }
)


class Observer(Protocol):
    """Sees each event with what it led to, and the member's view afterwards."""

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Take note of it."""


class LogObserver:
    """Writes joins, assignments, leaves and fences at INFO, refusals at WARNING and ERROR, the rest at DEBUG."""

    def __init__(self) -> None:
        self._log = PackageLog("consumer_membership.membership", _OTHER)
        self._repeated: tuple[str, int] = ("", 0)
        self._chosen = ""

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Write what this event and its effects are worth."""
        if not effects and not self._log.is_on(logging.INFO):
            return
        self._log.facility = _FACILITIES.get(type(event), _OTHER)
        self._note_event(event, view)
        for effect in effects:
            self._log.facility = _FACILITIES.get(type(effect), _OTHER)
            self._note_effect(effect, view)

    def _note_event(self, event: GroupEvent, view: MembershipView) -> None:
        match event:
            case CoordinatorFound():
                self._log.info("[%s] Discovered group coordinator %s", _who(view), event.coordinator)
            case HeartbeatAnswered() | ex.ClassicHeartbeatAnswered():
                self._log.debug("[%s] Received successful Heartbeat response", _who(view))
            case HeartbeatRejected():
                self._note_rejected_heartbeat(event, view)
            case GroupDescribeFailed():
                self._log.info("[%s] The group's members cannot be described: %s", _who(view), event.error)
            case HeartbeatFailed(is_sent=False) if view.state in _LEFT:
                text = "[%s] Member %s did not send its join: %s"
                self._log.info(text, _who(view), view.member_id, event.reason)
            case HeartbeatFailed():
                self._once_then_counted(f"[{_who(view)}] GroupHeartbeatRequest failed: {event.reason}")
            case TopicsNotDescribed():
                self._once_then_counted(f"[{_who(view)}] The topics cannot be looked up: {event.error}")
            case _:
                self._note_classic_answer(event, view)

    def _note_rejected_heartbeat(self, event: HeartbeatRejected, view: MembershipView) -> None:
        match event.verdict:
            case Verdict.UNRELEASED:
                # What follows says whether it was taken over, is waited for, or is the end.
                self._log.info("[%s] %s", _who(view), event.error)
            case _ if event.error.code == CONFLICT_CODE:
                pass  # a join that was not sent; the choice of the other protocol is logged
            case _ if view.state is MemberState.UNSUBSCRIBING and event.verdict in _UNKNOWN:
                text = "[%s] Member %s is not known to the coordinator, and its join has no answer: repeating the leave"
                self._log.info(text, _who(view), view.member_id)
            case _ if view.state in _LEFT and event.verdict in _UNKNOWN:
                # The leave of a member that never got in: the coordinator has nothing to forget.
                self._log.debug("[%s] The coordinator did not know the member that left: %s", _who(view), event.error)
            case _:
                self._once_then_counted(f"[{_who(view)}] GroupHeartbeatRequest failed: {event.error}")

    def _note_classic_answer(self, event: GroupEvent, view: MembershipView) -> None:
        who = _who(view)
        match event:
            case ex.JoinAnswered():
                text = "[%s] Successfully joined group with generation %d as %s, with protocol %s"
                part = "the leader" if event.is_leader else "a follower"
                self._log.info(text, who, event.generation, part, event.protocol_name)
                for member_id, fault in event.unreadable.items():
                    text = "[%s] The subscription of member %s cannot be read, it gets no partitions: %s"
                    self._log.warning(text, who, member_id, fault)
            case AssignmentComputed():
                shares = {member_id: _names(share) for member_id, share in event.assignments.items()}
                self._log.info("[%s] Finished assignment for group at generation %d: %s", who, event.generation, shares)
            case ex.SyncAnswered():
                self._log.info("[%s] Successfully synced group in generation %d", who, view.member_epoch)
                if event.note:
                    self._log.warning("[%s] %s", who, event.note)
            case ex.ClassicHeartbeatRejected() | ex.SyncRejected() if event.verdict is ex.ClassicVerdict.REJOIN_NOW:
                request = "sync" if isinstance(event, ex.SyncRejected) else "heartbeat"
                self._log.info("[%s] Attempt to %s failed since group is rebalancing", who, request)
            case ex.JoinRejected(verdict=ex.ClassicVerdict.MEMBER_ID_REQUIRED):
                self._log.debug("[%s] Joining again with the given member id %s", who, event.member_id)
            # An answer that came too late to count leaves no error behind.
            case ex.JoinRejected() | ex.SyncRejected() | ex.ClassicHeartbeatRejected() if (
                event.error == view.last_error
            ):
                request = type(event).__name__.removeprefix("Classic").removesuffix("Rejected")
                self._once_then_counted(f"[{who}] {request} failed: {event.error}")
            case ex.ExchangeFailed():
                self._once_then_counted(f"[{who}] No answer from the coordinator: {event.reason}")
            case _:
                pass

    def _note_effect(self, effect: GroupEffect, view: MembershipView) -> None:
        who = _who(view)
        match effect:
            case StateChanged():
                level = logging.INFO if effect.new in _NOTABLE else logging.DEBUG
                text = "[%s] Member %s with epoch %d transitioned from %s to %s: %s"
                self._log.log(
                    level,
                    text,
                    who,
                    view.member_id or "without an id",
                    view.member_epoch,
                    effect.old,
                    effect.new,
                    effect.reason,
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
            case ProtocolChosen():
                self._note_choice(effect, who)
            case _:
                self._note_order(effect, view)

    def _note_choice(self, chosen: ProtocolChosen, who: str) -> None:
        """Write it once: it is told when it is tried, and when the group has taken it."""
        text = f"[{who}] Group protocol: {chosen.protocol.value} ({chosen.reason})"
        if text != self._chosen:
            self._log.info("%s", text)
        self._chosen = text
        for note in chosen.notes:
            self._log.warning("[%s] %s", who, note)

    def _note_order(self, effect: GroupEffect, view: MembershipView) -> None:
        who = _who(view)
        match effect:
            case TopicsAppeared():
                self._log.info("[%s] Subscribed topics are available now: %s", who, ", ".join(effect.topics))
            case FindCoordinator():
                self._log.debug("[%s] Looking up the group coordinator: %s", who, effect.reason)
            case SendHeartbeat():
                self._log.debug("[%s] Sending %s", who, effect.heartbeat)
            case ex.SendClassicHeartbeat():
                text = "[%s] Sending Heartbeat request with generation %d and member id %s to coordinator %s"
                self._log.debug(text, who, view.member_epoch, view.member_id, view.coordinator)
            case ex.SendJoin():
                self._log.info("[%s] (Re-)joining group: %s", who, effect.reason)
            case ex.SendClassicLeave():
                text = "[%s] Member %s sending LeaveGroup request to coordinator %s due to %s"
                self._log.info(text, who, effect.member_id, view.coordinator, effect.reason)
            case _:
                pass

    def _once_then_counted(self, text: str) -> None:
        """Write a failure once; its repetitions only at their 10th, 100th, ... time."""
        last, count = self._repeated
        count = count + 1 if text == last else 1
        self._repeated = (text, count)
        if count == 1:
            self._log.warning("%s", text)
        elif is_power_of_ten(count):
            self._log.warning("%s (%d times in a row)", text, count)


def _who(view: MembershipView) -> str:
    instance = f", instanceId={view.instance_id}" if view.instance_id is not None else ""
    return f"Consumer groupId={view.group_id}{instance}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"
