"""Reads the private state of a member, for the simulation and the exploration.

Invariants, traces, mutants and scenarios use only these functions, so that a change of a member's parts changes only
this module. They read values that `MemberCore.view()` contains from the view, unless time matters.
"""

from __future__ import annotations

from dataclasses import fields

from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.consumer.claim import Age
from consumer_membership.membership.consumer.predecessor import Predecessor
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.consumer.successor import Successor
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.offsets import PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import (
    BrokerError,
    GroupProtocol,
    Holder,
    Instant,
    TopicIdPartition,
    TopicPartition,
)


def speaks_consumer(member: MemberCore) -> bool:
    """Return whether the member currently uses the consumer protocol (KIP-848)."""
    return member.protocol is GroupProtocol.CONSUMER


def consumer(member: MemberCore) -> ConsumerProtocol:
    """Return the protocol object of a KIP-848 member."""
    protocol = member._protocol
    assert isinstance(protocol, ConsumerProtocol)
    return protocol


def classic(member: MemberCore) -> ClassicProtocol:
    """Return the protocol object of a classic member."""
    protocol = member._protocol
    assert isinstance(protocol, ClassicProtocol)
    return protocol


def may_heartbeat_during_join(member: MemberCore) -> bool:
    """Return whether a classic member has a JoinGroup in flight and keeps its partitions meanwhile."""
    return classic(member).requests.is_waiting and bool(member.context.ownership.owned)


def protocol(member: MemberCore) -> ConsumerProtocol | ClassicProtocol:
    """Return the protocol object of a member of either protocol."""
    return consumer(member) if speaks_consumer(member) else classic(member)


def state(member: MemberCore) -> MemberState | ClassicState:
    """Return the state of the member in the terms of its protocol."""
    return protocol(member).state


def shown(member: MemberCore) -> MemberState:
    """Return the public state, which both protocols share."""
    return member._protocol.public_state


def member_id(member: MemberCore) -> str:
    """Return the current member id; "" if a classic member has no id yet."""
    return protocol(member).member_id


def instance_id(member: MemberCore) -> str | None:
    """Return the current instance id: the fixed id, or an id of the pool."""
    return member._protocol.identity.instance_id


def epoch(member: MemberCore) -> int:
    """Return the member epoch, or the generation, that its commits contain."""
    return member._protocol.identity.member_epoch


def fatal_error(member: MemberCore) -> BrokerError | None:
    """Return the error with which the membership ended permanently; None: it has not."""
    return member._fatal


def is_eager(member: MemberCore) -> bool:
    """Return whether its assignors require that it revokes all partitions before a join."""
    return not speaks_consumer(member) and member.classic.is_eager


# ---- parts ----


def reconciler(member: MemberCore) -> Reconciler:
    """Return the part that reconciles the owned partitions with the target."""
    return member.context.reconciler


def phase(member: MemberCore) -> Phase:
    """Return the phase of its reconciliation."""
    return member.context.reconciler.phase


def ownership(member: MemberCore) -> Ownership:
    """Return the part with the owned partitions and the target."""
    return member.context.ownership


def named(member: MemberCore, partitions: frozenset[TopicIdPartition]) -> set[TopicPartition]:
    """Return these partitions with the names of their topics."""
    names = member.context.ownership.names
    return {TopicPartition(names[p.topic_id], p.partition) for p in partitions}


def withheld(member: MemberCore) -> set[TopicPartition]:
    """Return the owned partitions that the application released, and that the next on_assign gives back to it."""
    return named(member, member.context.ownership.withheld)


def commits(member: MemberCore) -> PendingCommits:
    """Return the part with the pending commits."""
    return member.context.commits


def knows_coordinator(member: MemberCore) -> bool:
    """Return whether the member knows the coordinator of its group."""
    return member.context.coordinator.is_known


def leaves_by(member: MemberCore) -> Instant:
    """Return the time until which the member tries to leave."""
    return member.context.leave.by


def repeats_leave(member: MemberCore) -> bool:
    """Return whether the member repeats a leave that found no member: an unanswered join may arrive after it."""
    return member.context.leave.repeat_at is not None


# ---- requests ----


def heartbeat_in_flight(member: MemberCore) -> int | None:
    """Return the number of the heartbeat whose answer the member awaits."""
    return protocol(member).heartbeats.in_flight


def exchange(member: MemberCore) -> int | None:
    """Return the number of the JoinGroup or SyncGroup whose answer a classic member awaits."""
    return None if speaks_consumer(member) else classic(member).requests.in_flight


def may_heartbeat(member: MemberCore) -> bool:
    """Return whether the member may send a heartbeat as soon as it is due."""
    return protocol(member)._may_heartbeat


def stale_holder(member: MemberCore) -> Holder | None:
    """Return the holder whose instance id a KIP-848 member is releasing."""
    return consumer(member).claim.stale_holder


def predecessor(member: MemberCore) -> Predecessor:
    """Return the part of a KIP-848 member that may hand over its instance id."""
    return consumer(member).claim.predecessor


def successor(member: MemberCore) -> Successor:
    """Return the part of a KIP-848 member that requests a hand-over."""
    return consumer(member).claim.successor


def is_waiting_for_instance(member: MemberCore) -> bool:
    """Return whether a KIP-848 member waits until its instance id has no holder."""
    return speaks_consumer(member) and consumer(member).claim.is_waiting


def waits_for_instance_since(member: MemberCore) -> Instant | None:
    """Return the time since which a KIP-848 member waits for its instance id."""
    return consumer(member).claim.waits_since


def repairs_at(member: MemberCore) -> Instant | None:
    """Return when a classic leader checks partitions that were held back."""
    return classic(member).leader._repair_at


# ---- times, for explorations, which have no clock ----


def make_heartbeat_due(member: MemberCore, ago_s: float) -> None:
    """Set the last heartbeat this many seconds back, and remove any delay of the next heartbeat."""
    heartbeats = protocol(member).heartbeats
    heartbeats._sent_at, heartbeats._not_before = -ago_s, 0.0


def forget_confirmation(member: MemberCore) -> None:
    """Make the coordinator's last answer older than any limit."""
    protocol(member).heartbeats.confirmed_at = None


def wait_for_instance_since(member: MemberCore, moment: Instant) -> None:
    """Set the beginning of a KIP-848 member's wait for its instance id, and for a requested release."""
    claim = consumer(member).claim
    claim._attempt.waits_since = moment
    if claim.successor._announced_at is not None:
        claim.successor._announced_at = moment


def subscribed_at(member: MemberCore) -> Instant | None:
    """Return when the application of a KIP-848 member subscribed; None: the member was admitted since then."""
    claim = consumer(member).claim
    return None if claim.age is Age.OLDER else claim._subscribed_at


def subscribe_at(member: MemberCore, moment: Instant) -> None:
    """Set the time at which the application of a KIP-848 member subscribed."""
    consumer(member).claim._subscribed_at = moment


def reserves_since(member: MemberCore) -> list[Instant]:
    """Return when ids became reserved for successors: the id that the member released, and other ids of its pool."""
    claim = consumer(member).claim
    own = [claim.predecessor._released_at] if claim.predecessor.has_released else []
    return own + list(claim._reservations._left_at.values())


def reserve_since(member: MemberCore, moment: Instant) -> None:
    """Set the time at which the ids that are reserved for successors became free."""
    claim = consumer(member).claim
    if claim.predecessor.has_released:
        claim.predecessor._released_at = moment
    claim._reservations._left_at = dict.fromkeys(claim._reservations._left_at, moment)


def replace_part(member: MemberCore, name: str, broken: type) -> None:
    """Replace a sound part by a broken part with the same state; the protocol is also a part."""
    protocol = member._protocol
    owners = (member.context, protocol, getattr(protocol, "claim", None))
    owner = next(one for one in owners if name == "protocol" or hasattr(one, name))
    part = protocol if name == "protocol" else getattr(owner, name)
    if isinstance(part, ClassicSettings):
        # Other objects that use the settings keep the sound settings.
        setattr(owner, name, broken(**{one.name: getattr(part, one.name) for one in fields(part)}))
    else:
        part.__class__ = broken
