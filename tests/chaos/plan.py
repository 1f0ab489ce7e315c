"""The plan of a round, drawn from its seed before the round begins: members, faults, and the start of each fault.

This module does no I/O. A fault begins after a number of records that the group has received, not at a time: if you
repeat a round, its faults begin at the same records on a machine of any speed. Durations are in seconds, because
session timeouts are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import Self, TypeVar, assert_never

#: The number of partitions of a round's topic, and of records that are produced per second.
PARTITIONS, RECORDS_PER_S = 6, 120
#: The session timeout of all members, and their max.poll.interval.ms, in seconds.
SESSION_S, POLL_INTERVAL_S = 6.0, 9.0
#: The user of all members and its password. The harness has another user, so that faults may revoke this user's rights.
USER, PASSWORD = "member", "chaos"
#: The number of tasks of a Spark job.
TASKS = 2
#: A fault begins when this many records were received since the start of the round or of the previous fault.
_FEWEST_BEFORE, _MOST_BEFORE = 60, 300
#: The seeds of rounds have this many bits: short enough to type.
_SEED_BITS = 32
#: `covering` chooses the best of this many seeds.
_CANDIDATES = 64


def output_of(topic: str) -> str:
    """Return the output topic of transactions that read this topic."""
    return f"{topic}.out"


FeatureT = TypeVar("FeatureT", bound=StrEnum)


class Loop(StrEnum):
    """How a member receives records.

    Attributes:
        POLL: Calls of `poll`.
        CONSUME: Calls of `consume`.
        ASYNC: `AIOConsumer`.
        PROCESSOR: `Processor`.
        TRANSACTIONS: A transactional `Processor`, which writes a result for each record. If a group has such a member,
            all of its members are of this kind, so that each record must have one result.
        MANUAL: A consumer that assigns all partitions with `assign`, and commits in a group of its own.
        SPARK: A local Spark job, whose tasks are static members; a round has at most one.
        RAW: The consumer of confluent-kafka, in groups of the classic protocol.
        JAVA: The Java consumer, in groups of the classic protocol.
    """

    POLL = "poll"
    CONSUME = "consume"
    ASYNC = "async"
    PROCESSOR = "processor"
    TRANSACTIONS = "transactions"
    MANUAL = "manual"
    SPARK = "spark"
    RAW = "raw"
    JAVA = "java"

    @property
    def is_foreign(self) -> bool:
        """Whether the member uses another client library than this package."""
        return self in {Loop.RAW, Loop.JAVA}

    @property
    def has_handlers(self) -> bool:
        """Whether the member is a `Processor`."""
        return self in {Loop.PROCESSOR, Loop.TRANSACTIONS}


class Identity(StrEnum):
    """How the group identifies a member."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    POOL = "pool"


class Protocol(StrEnum):
    """The protocol of all members of a group."""

    CONSUMER = "consumer"
    CLASSIC = "classic"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A member: its name in the round, and the behavior of its program.

    `given_instance_id` is the group.instance.id of a static member; if it is empty, the id is the member's name. A
    member with `has_certificate` uses a TLS listener, and connects to the nodes without a proxy.
    """

    name: str
    loop: Loop
    identity: Identity
    protocol: Protocol
    has_leases: bool = False
    commits_automatically: bool = False
    strategy: str = "cooperative-sticky"
    hands_over: bool = False
    has_certificate: bool = False
    given_instance_id: str = ""

    @property
    def instance_id(self) -> str | None:
        """The member's group.instance.id, if it is fixed."""
        is_static = self.identity is Identity.STATIC and self.is_in_group
        return (self.given_instance_id or self.name) if is_static else None

    @property
    def is_in_group(self) -> bool:
        """Whether it joins the group of the round; a member with `assign` commits in a group of its own."""
        return self.loop is not Loop.MANUAL

    def group_of(self, group: str) -> str:
        """Return the group in which the member commits; `group` is the group of the round."""
        return group if self.is_in_group else f"{group}.{self.name}"

    def to_json(self) -> str:
        """Return the plan as JSON for the command line of the member's program."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        """Return a short description."""
        features = [self.name, self.identity, self.loop]
        features += ["leases"] * self.has_leases + ["auto-commit"] * self.commits_automatically
        return " ".join([*features, *["hand-over"] * self.hands_over, *["certificate"] * self.has_certificate])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the plan from JSON."""
        values = json.loads(text)
        for name, kind in (("loop", Loop), ("identity", Identity), ("protocol", Protocol)):
            values[name] = kind(values[name])
        return cls(**values)


class Family(StrEnum):
    """The family of a fault's targets: two faults at the same time affect different families."""

    BROKERS = "brokers"
    MEMBERS = "members"
    NETWORK = "network"
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault: its targets, its shortest and longest duration, and the group protocols in which it may occur.

    For faults that affect a member, `is_for` returns whether this member can be the target.
    """

    name: str
    family: Family
    shortest_s: float
    longest_s: float
    protocols: frozenset[Protocol] = frozenset(Protocol)
    is_for: Callable[[MemberPlan], bool] = lambda _: True

    def targets(self, members: Iterable[MemberPlan], nodes: Iterable[int]) -> list[str]:
        """Return the names of possible targets. If there are none, the round cannot have this fault."""
        match self.family:
            case Family.BROKERS:
                return [str(node) for node in nodes]
            case Family.MEMBERS | Family.NETWORK:
                return [member.name for member in members if self.is_for(member)]
            case Family.TOPIC | Family.GROUP:
                return [""]
            case _:
                assert_never(self.family)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """A fault of a round.

    It begins when the group has received `after` records since the members began. `target` is a node, a member or
    empty. `choice` is a random number, for the choices that the fault itself makes.
    """

    kind: str
    target: str
    after: int
    duration_s: float
    choice: int

    def __str__(self) -> str:
        """Return a short description."""
        target = f" {self.target}" if self.target else ""
        return f"{self.kind}{target} after {self.after} for {self.duration_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """A round."""

    seed: int
    members: tuple[MemberPlan, ...]
    faults: tuple[FaultPlan, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether the group has static and dynamic members; a member with `assign` has a group of its own."""
        return len({member.identity is Identity.DYNAMIC for member in self.members if member.is_in_group}) == 2

    @property
    def features(self) -> set[str]:
        """The names of its faults and of the loops of its members, and `MIXED` for a mixed group."""
        features = {*(fault.kind for fault in self.faults), *(member.loop for member in self.members)}
        return features | {MIXED} if self.is_mixed else features

    def __str__(self) -> str:
        """Return one readable line."""
        members = ", ".join(map(str, self.members))
        faults = "; ".join(map(str, self.faults))
        return f"seed {self.seed}: {self.members[0].protocol}: {members} | {faults}"


_OF_MIXED = (Identity.STATIC, Identity.DYNAMIC)
_OWN_LOOPS = (Loop.POLL, Loop.CONSUME, Loop.ASYNC, Loop.PROCESSOR, Loop.MANUAL, Loop.TRANSACTIONS, Loop.SPARK)
_LOOPS = {
    Protocol.CONSUMER: _OWN_LOOPS,
    Protocol.CLASSIC: (*_OWN_LOOPS, Loop.RAW, Loop.JAVA),
    Protocol.AUTO: _OWN_LOOPS,
}
#: A group of static and dynamic members, as while its members are changed from dynamic to static ones.
MIXED = "mixed"
MEMBER_FEATURES = frozenset([*Loop, *Identity, *Protocol, MIXED])


def draw(
    seed: int, kinds: Mapping[str, FaultKind], nodes: Iterable[int], features: frozenset[str] = frozenset()
) -> RoundPlan:
    """Draw a round.

    If `features` has loops, identities or protocols, only these are drawn; a kind of which it has no value is not
    limited. With `MIXED`, the first member is static and the second one dynamic.
    """
    random = Random(seed)  # noqa: S311 - repeatable
    nodes = list(nodes)
    protocol = random.choice(_allowed(Protocol, features))
    loops = _allowed(_LOOPS[protocol], features)
    if Loop.TRANSACTIONS in loops:
        others: list[Loop] = [loop for loop in loops if loop is not Loop.TRANSACTIONS]
        loops = others if others and random.random() < 7 / 8 else [Loop.TRANSACTIONS]
    has_spark = False
    if Loop.SPARK in loops:
        # A JVM needs as much memory and time as several other members.
        loops = [loop for loop in loops if loop is not Loop.SPARK]
        has_spark = not loops or random.random() < 1 / 6
        loops = loops or [Loop.POLL]
    if MIXED in features:
        loops = [loop for loop in loops if loop is not Loop.MANUAL] or [Loop.POLL]
    strategy = random.choice(("cooperative-sticky", "range"))
    members = []
    for number in range(1, random.choice((3, 3, 4)) + 1):
        loop = Loop.SPARK if has_spark and number == 1 else random.choice(loops)
        identity = Identity.STATIC if loop is Loop.SPARK else random.choice(_allowed(Identity, features))
        if identity is Identity.POOL and (loop.is_foreign or protocol is Protocol.CLASSIC):
            # A member of this package can see which ids of a pool are free only in groups of the consumer protocol.
            identity = Identity.STATIC
        if MIXED in features and number <= len(_OF_MIXED):
            identity = _OF_MIXED[number - 1]
        has_instance_id = identity is not Identity.DYNAMIC and loop not in {Loop.MANUAL, Loop.SPARK}
        members.append(
            MemberPlan(
                name=f"m{number}",
                loop=loop,
                identity=identity,
                protocol=protocol,
                has_leases=not loop.is_foreign and loop is not Loop.MANUAL and random.random() < 2 / 3,
                commits_automatically=loop in {Loop.POLL, Loop.CONSUME} and random.random() < 1 / 4,
                strategy=strategy,
                hands_over=has_instance_id and protocol is Protocol.CONSUMER and random.random() < 1 / 4,
                has_certificate=not loop.is_foreign and loop is not Loop.SPARK and random.random() < 1 / 4,
            )
        )
    faults: list[FaultPlan] = []
    after = 0
    used: set[Family] = set()
    for _ in range(random.choice((1, 2))):
        left = {
            name: targets
            for name, one in kinds.items()
            if one.family not in used and protocol in one.protocols and (targets := one.targets(members, nodes))
        }
        if not left:
            break
        kind = kinds[random.choice(list(left))]
        used.add(kind.family)
        after += random.randint(_FEWEST_BEFORE, _MOST_BEFORE)
        target = random.choice(left[kind.name])
        duration_s = round(random.uniform(kind.shortest_s, kind.longest_s), 1)
        faults.append(
            FaultPlan(
                kind=kind.name, target=target, after=after, duration_s=duration_s, choice=random.randrange(1 << 16)
            )
        )
    return RoundPlan(seed=seed, members=tuple(members), faults=tuple(faults))


def covering(
    random: Random, kinds: Mapping[str, FaultKind], nodes: Iterable[int], features: frozenset[str] = frozenset()
) -> Iterator[RoundPlan]:
    """Yield an endless sequence of rounds, in which few rounds cover every fault, every loop and a mixed group.

    For each round, several seeds are tried, and the seed whose round covers the most missing features is chosen. When
    all features are covered, the search begins again. A round depends only on its seed.
    """
    nodes = list(nodes)
    loops = {loop for protocol in _allowed(Protocol, features) for loop in _allowed(_LOOPS[protocol], features)}
    everything = {*kinds, *loops}
    if loops != {Loop.MANUAL} and {Identity.DYNAMIC} < set(_allowed(Identity, features)):
        everything.add(MIXED)
    left: set[str] = set()
    while True:
        left = left or set(everything)
        plans = [draw(random.getrandbits(_SEED_BITS), kinds, nodes, features) for _ in range(_CANDIDATES)]
        best = max(plans, key=lambda plan: len(plan.features & left))
        if best.features & left:
            left -= best.features
            yield best


def _allowed(given: Iterable[FeatureT], features: frozenset[str]) -> list[FeatureT]:
    """Return the values that the command line names; if it names none of them, return all."""
    values = list(given)
    return [value for value in values if value in features] or values
