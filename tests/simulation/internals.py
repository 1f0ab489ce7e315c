"""Reads the private state of a member, for the simulation and the exploration.

Invariants, traces, mutants and scenarios use only these functions, so that a change of a member's parts changes this
module only. They read what `MemberCore.view()` shows from the view where time does not matter.
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
    """Whether it speaks KIP-848's protocol now."""
    return member.protocol is GroupProtocol.CONSUMER


def consumer(member: MemberCore) -> ConsumerProtocol:
    """The protocol of a KIP-848 member."""
    protocol = member._protocol
    assert isinstance(protocol, ConsumerProtocol)
    return protocol


def classic(member: MemberCore) -> ClassicProtocol:
    """The protocol of a classic member."""
    protocol = member._protocol
    assert isinstance(protocol, ClassicProtocol)
    return protocol


def may_beat_beside_join(member: MemberCore) -> bool:
    """Whether a classic member has a JoinGroup out and keeps partitions meanwhile."""
    return classic(member).requests.is_waiting and bool(member.context.ownership.owned)


def protocol(member: MemberCore) -> ConsumerProtocol | ClassicProtocol:
    """The protocol of a member of either."""
    return consumer(member) if speaks_consumer(member) else classic(member)


def state(member: MemberCore) -> MemberState | ClassicState:
    """The state by its protocol's own name."""
    return protocol(member).state


def shown(member: MemberCore) -> MemberState:
    """The state as it is shown where both protocols are."""
    return member._protocol.public_state


def member_id(member: MemberCore) -> str:
    """Its id now; "" where a classic member has none yet."""
    return protocol(member).member_id


def instance_id(member: MemberCore) -> str | None:
    """The instance id that it has now: its own, or one of the pool."""
    return member._protocol.identity.instance_id


def epoch(member: MemberCore) -> int:
    """The member epoch, or the generation, that it shows when it commits."""
    return member._protocol.identity.member_epoch


def fatal_error(member: MemberCore) -> BrokerError | None:
    """Return why it ended permanently."""
    return member._fatal


def is_eager(member: MemberCore) -> bool:
    """Whether its assignors want everything given up before a join."""
    return not speaks_consumer(member) and member.classic.is_eager


# ---- parts ----


def reconciler(member: MemberCore) -> Reconciler:
    """The part that leads from what is owned to the target."""
    return member.context.reconciler


def phase(member: MemberCore) -> Phase:
    """Where its reconciliation stands."""
    return member.context.reconciler.phase


def ownership(member: MemberCore) -> Ownership:
    """The part that knows what is owned and what is the target."""
    return member.context.ownership


def named(member: MemberCore, partitions: frozenset[TopicIdPartition]) -> set[TopicPartition]:
    """These partitions by their topics' names."""
    names = member.context.ownership.names
    return {TopicPartition(names[p.topic_id], p.partition) for p in partitions}


def commits(member: MemberCore) -> PendingCommits:
    """The part that knows which commits are not over."""
    return member.context.commits


def knows_coordinator(member: MemberCore) -> bool:
    """Whether it knows who coordinates its group."""
    return member.context.coordinator.is_known


def leaves_by(member: MemberCore) -> Instant:
    """Until when its leave is tried."""
    return member.context.leave.by


def repeats_leave(member: MemberCore) -> bool:
    """Whether its leave, which found no member, waits to be repeated: a join without an answer may arrive behind it."""
    return member.context.leave.repeat_at is not None


# ---- requests ----


def heartbeat_in_flight(member: MemberCore) -> int | None:
    """The number of the heartbeat that it awaits."""
    return protocol(member).heartbeats.in_flight


def exchange(member: MemberCore) -> int | None:
    """The number of the JoinGroup or SyncGroup that a classic member awaits."""
    return None if speaks_consumer(member) else classic(member).requests.in_flight


def may_heartbeat(member: MemberCore) -> bool:
    """Whether a heartbeat may go out as soon as it is due."""
    return protocol(member)._may_heartbeat


def stale_holder(member: MemberCore) -> Holder | None:
    """Whose instance id a KIP-848 member is releasing."""
    return consumer(member).claim.stale_holder


def predecessor(member: MemberCore) -> Predecessor:
    """The part of a KIP-848 member that may hand its place over."""
    return consumer(member).claim.predecessor


def successor(member: MemberCore) -> Successor:
    """The part of a KIP-848 member that requests a place."""
    return consumer(member).claim.successor


def is_waiting_for_instance(member: MemberCore) -> bool:
    """Whether a KIP-848 member waits until the holder of its instance id has gone."""
    return speaks_consumer(member) and consumer(member).claim.is_waiting


def waits_for_instance_since(member: MemberCore) -> Instant | None:
    """Since when a KIP-848 member waits for its instance id."""
    return consumer(member).claim.waits_since


def repairs_at(member: MemberCore) -> Instant | None:
    """When a classic leader looks after partitions that were held back."""
    return classic(member).leader._repair_at


# ---- an exploration has no clock ----


def make_heartbeat_due(member: MemberCore, ago_s: float) -> None:
    """Let the last heartbeat have been sent so long ago, and nothing delay the next one."""
    heartbeats = protocol(member).heartbeats
    heartbeats._sent_at, heartbeats._not_before = -ago_s, 0.0


def forget_confirmation(member: MemberCore) -> None:
    """Let the coordinator's last answer be long ago."""
    protocol(member).heartbeats.confirmed_at = None


def wait_for_instance_since(member: MemberCore, moment: Instant) -> None:
    """Let a KIP-848 member have waited for its instance id, and for a requested release, since then."""
    claim = consumer(member).claim
    claim._attempt.waits_since = moment
    if claim.successor._announced_at is not None:
        claim.successor._announced_at = moment


def subscribed_at(member: MemberCore) -> Instant | None:
    """When the application subscribed, for a KIP-848 member that was not admitted since; None: it was."""
    claim = consumer(member).claim
    return None if claim.age is Age.OLDER else claim._subscribed_at


def subscribe_at(member: MemberCore, moment: Instant) -> None:
    """Let the application of a KIP-848 member have subscribed then."""
    consumer(member).claim._subscribed_at = moment


def reserves_since(member: MemberCore) -> list[Instant]:
    """Since when a KIP-848 member leaves ids to successors: the one that it released itself, and others of its pool."""
    claim = consumer(member).claim
    own = [claim.predecessor._released_at] if claim.predecessor.has_released else []
    return own + list(claim._reservations._left_at.values())


def reserve_since(member: MemberCore, moment: Instant) -> None:
    """Let these ids have been free since then."""
    claim = consumer(member).claim
    if claim.predecessor.has_released:
        claim.predecessor._released_at = moment
    claim._reservations._left_at = dict.fromkeys(claim._reservations._left_at, moment)


def replace_part(member: MemberCore, name: str, broken: type) -> None:
    """Put a broken part in the place of a sound one, with its state; the protocol is also a part."""
    protocol = member._protocol
    owners = (member.context, protocol, getattr(protocol, "claim", None))
    owner = next(one for one in owners if name == "protocol" or hasattr(one, name))
    part = protocol if name == "protocol" else getattr(owner, name)
    if isinstance(part, ClassicSettings):
        # Other holders of the settings keep theirs.
        setattr(owner, name, broken(**{one.name: getattr(part, one.name) for one in fields(part)}))
    else:
        part.__class__ = broken
