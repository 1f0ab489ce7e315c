"""The log lines of a member, in the exact wording of the Java client where it has a line for the event.

The observer runs on the membership thread after each event; it must be quick and must not raise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, assert_never

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
from consumer_membership.runtime.log_lines import PackageLog, consumer_prefix
from consumer_membership.types import CONFLICT_CODE, TopicPartition

#: The states whose entry is logged at INFO.
_NOTABLE = frozenset({MemberState.JOINING, MemberState.FENCED, MemberState.STALE, MemberState.UNSUBSCRIBED})
#: The states in which a leave is answered, and the verdicts of a coordinator that does not know the member.
_LEFT = frozenset({MemberState.UNSUBSCRIBING, MemberState.UNSUBSCRIBED})
_UNKNOWN = frozenset({Verdict.REJOIN, Verdict.GROUP_GONE})


#: librdkafka's names for the subjects of log lines, by which its users search.
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
    """Receives each event with its effects, and the member's view afterwards."""

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Process one event."""


class LogObserver:
    """Writes joins, assignments, leaves and fences at INFO, refusals at WARNING and ERROR, the rest at DEBUG."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._log = PackageLog("consumer_membership.membership", _OTHER)
        #: The partitions that the member had before the event.
        self._held: frozenset[TopicPartition] = frozenset()
        self._repeated: tuple[str, int] = ("", 0)
        self._chosen = ""

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Write the lines of this event and its effects."""
        if effects or self._log.is_on(logging.INFO):
            self._log.prefix = consumer_prefix(self._client_id, view.group_id, view.instance_id)
            self._write(event, effects, view)
        self._held = frozenset(view.owned) or view.target

    def _write(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        self._log.facility = _FACILITIES.get(type(event), _OTHER)
        self._note_event(event, view)
        for effect in effects:
            self._log.facility = _FACILITIES.get(type(effect), _OTHER)
            self._note_effect(effect, view)

    def _note_event(self, event: GroupEvent, view: MembershipView) -> None:
        match event:
            case CoordinatorFound():
                self._log.info("Discovered group coordinator %s", event.coordinator)
            case HeartbeatAnswered() | ex.ClassicHeartbeatAnswered():
                self._log.debug("Received successful Heartbeat response")
            case HeartbeatRejected():
                self._note_rejected_heartbeat(event, view)
            case GroupDescribeFailed():
                self._log.info("The members of the group cannot be described: %s", event.error)
            case HeartbeatFailed(is_sent=False) if view.state in _LEFT:
                self._log.info("Member %s did not send its request to join: %s", view.member_id, event.reason)
            case HeartbeatFailed():
                self._once_then_counted(f"ConsumerGroupHeartbeatRequest failed due to {event.reason}")
            case TopicsNotDescribed():
                self._once_then_counted(f"The subscribed topics cannot be looked up: {event.error}")
            case _:
                self._note_classic_answer(event, view)

    def _note_rejected_heartbeat(self, event: HeartbeatRejected, view: MembershipView) -> None:
        match event.verdict:
            case Verdict.UNRELEASED:
                # The next lines report whether the member takes the instance id over, waits for it, or ends.
                self._log.info("%s", event.error)
            case _ if event.error.code == CONFLICT_CODE:
                pass  # a join that was not sent; the choice of the other protocol is logged
            case _ if view.state is MemberState.UNSUBSCRIBING and event.verdict in _UNKNOWN:
                text = "Member %s is unknown to the coordinator, and its request to join is unanswered; leaving again"
                self._log.info(text, view.member_id)
            case _ if view.state in _LEFT and event.verdict in _UNKNOWN:
                # The leave of a member that never joined: the coordinator has nothing to forget.
                self._log.debug("The coordinator does not know the member that left: %s", event.error)
            case _:
                self._once_then_counted(f"ConsumerGroupHeartbeatRequest failed due to {event.error}")

    def _note_classic_answer(self, event: GroupEvent, view: MembershipView) -> None:
        match event:
            case ex.JoinAnswered():
                self._note_join(event)
            case AssignmentComputed():
                shares = {member_id: _names(share) for member_id, share in event.assignments.items()}
                self._log.info("Finished assignment for group at generation %d: %s", event.generation, shares)
            case ex.SyncAnswered():
                self._log.info("Successfully synced group in generation %d", view.member_epoch)
                if event.note:
                    self._log.warning("%s", event.note)
            case ex.SyncRejected(verdict=ex.ClassicVerdict.REJOIN_NOW):
                self._log.info("SyncGroup failed: The group began another rebalance. Need to re-join the group.")
            case ex.ClassicHeartbeatRejected(verdict=ex.ClassicVerdict.REJOIN_NOW):
                self._log.info("Attempt to heartbeat failed since group is rebalancing")
            case ex.JoinRejected(verdict=ex.ClassicVerdict.MEMBER_ID_REQUIRED):
                self._log.debug(
                    "Request joining group due to: need to re-join with the given member-id: %s", event.member_id
                )
            case ex.JoinRejected() | ex.SyncRejected() | ex.ClassicHeartbeatRejected():
                self._note_classic_refusal(event, view)
            case ex.ExchangeFailed():
                coordinator = view.coordinator or "unknown"
                text = f"Group coordinator {coordinator} did not respond ({event.reason}); looking it up again"
                self._once_then_counted(text)
            case _:
                pass

    def _note_classic_refusal(
        self, event: ex.JoinRejected | ex.SyncRejected | ex.ClassicHeartbeatRejected, view: MembershipView
    ) -> None:
        # A response that came too late to count leaves no error in the view.
        if event.error != view.last_error:
            return
        match event:
            case ex.JoinRejected():
                self._once_then_counted(f"JoinGroup failed: {event.error}")
            case ex.SyncRejected():
                self._once_then_counted(f"SyncGroup failed: {event.error}")
            case ex.ClassicHeartbeatRejected():
                self._once_then_counted(f"Heartbeat failed: {event.error}")
            case _:
                assert_never(event)

    def _note_join(self, event: ex.JoinAnswered) -> None:
        text = "Successfully joined group with generation %d as %s, with protocol %s"
        part = "the leader" if event.is_leader else "a follower"
        self._log.info(text, event.generation, part, event.protocol_name)
        for member_id, fault in event.unreadable.items():
            text = "The subscription of member %s cannot be parsed, so it is assigned no partitions: %s"
            self._log.warning(text, member_id, fault)

    def _note_effect(self, effect: GroupEffect, view: MembershipView) -> None:
        match effect:
            case StateChanged():
                level = logging.INFO if effect.new in _NOTABLE else logging.DEBUG
                text = "Member %s with epoch %d transitioned from %s to %s: %s"
                self._log.log(
                    level,
                    text,
                    view.member_id or "without an id",
                    view.member_epoch,
                    effect.old,
                    effect.new,
                    effect.reason,
                )
            case AssignPartitions():
                self._log.info("Adding newly assigned partitions: %s", _names(effect.offsets))
            case RevokePartitions():
                revoked = self._held if effect.partitions is None else effect.partitions
                self._log.info("Revoking previously assigned partitions %s", _names(revoked))
            case LosePartitions():
                self._log.warning("Lost previously assigned partitions %s", _names(self._held))
            case RaiseToApplication():
                level = logging.ERROR if effect.problem is Problem.FATAL else logging.WARNING
                self._log.log(level, "%s", effect.error)
            case InstanceReleased():
                text = "Took over group.instance.id %s: released its former member %s, which is fenced if it is alive"
                self._log.info(text, effect.instance_id, effect.holder)
            case Warned():
                self._log.warning("%s", effect.message)
            case ProtocolChosen():
                self._note_choice(effect)
            case _:
                self._note_order(effect, view)

    def _note_choice(self, chosen: ProtocolChosen) -> None:
        """Write the choice once; the effect comes with the attempt to join, and again when the group accepts it."""
        choice = f"{chosen.protocol.value} ({chosen.reason})"
        if choice != self._chosen:
            self._log.info("Group protocol: %s", choice)
        self._chosen = choice
        for note in chosen.notes:
            self._log.warning("%s", note)

    def _note_order(self, effect: GroupEffect, view: MembershipView) -> None:
        match effect:
            case TopicsAppeared():
                self._log.info("Subscribed topics are available now: %s", ", ".join(effect.topics))
            case FindCoordinator():
                self._log.debug("Looking up the group coordinator: %s", effect.reason)
            case SendHeartbeat():
                self._log.debug("Sending %s", effect.heartbeat)
            case ex.SendClassicHeartbeat():
                text = "Sending Heartbeat request with generation %d and member id %s to coordinator %s"
                self._log.debug(text, view.member_epoch, view.member_id, view.coordinator)
            case ex.SendJoin():
                self._log.info("(Re-)joining group: %s", effect.reason)
            case ex.SendClassicLeave():
                text = "Member %s sending LeaveGroup request to coordinator %s due to %s"
                self._log.info(text, effect.member_id, view.coordinator, effect.reason)
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


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"
