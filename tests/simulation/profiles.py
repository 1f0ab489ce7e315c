"""The profiles of runs: the actions and faults of a run, and how often they occur."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer_membership.processing.scheduler import ProcessingOrder
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, ClassicRules, Rules
from tests.simulation.network import Faults
from tests.simulation.processor import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The actions and faults of a run.

    `actions` maps each action to its weight. A run draws an action about every `action_interval_s` seconds.
    """

    name: str
    rules: tuple[Rules | ClassicRules, ...] = (RULES_4_0, RULES_4_2, RULES_4_4)
    faults: Faults = field(default_factory=Faults)
    actions: Mapping[str, int] = field(default_factory=dict)
    action_interval_s: float = 2.0
    is_static: bool = False
    #: Whether every second process has no instance id, while the other processes have one.
    is_mixed: bool = False
    #: Whether members claim their instance ids from a pool.
    is_pooled: bool = False
    #: Whether members hand over their instance ids. Some of these runs have a pool, with as many ids as processes at
    #: the beginning.
    hands_over: bool = False
    #: The faults that may happen during a hand-over.
    hand_over_faults: tuple[str, ...] = ()
    inbox_delay_s: float = 0.0
    #: The options of the processors. Without them the applications poll their records.
    processing: Processing | None = None

    @property
    def is_clean(self) -> bool:
        """Whether partitions only move with on_revoke and a commit, so that no record is delivered twice."""
        is_orderly = not self.actions.keys() - {"scale", "resubscribe", "change subscription", "create topic", "surge"}
        return is_orderly and not self.hand_over_faults and self.faults == Faults(latency_s=self.faults.latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """The options of a profile's processors: each run draws one value per option."""

    orders: tuple[ProcessingOrder, ...] = tuple(ProcessingOrder)
    kinds: tuple[Kind, ...] = tuple(Kind)
    #: The number of metadata characters that the processor may write, and the number that the broker accepts.
    metadata_limits: tuple[int, ...] = (4096, 4096, 20)
    broker_limits: tuple[int, ...] = (4096,)
    has_dead_letters: tuple[bool, ...] = (True, True, False)
    #: The probabilities that an attempt fails temporarily, fails permanently, or does not end.
    temporary: float = 0.1
    permanent: float = 0.05
    stuck: float = 0.01


_LOSSY = Faults(
    latency_s=0.01,
    slow=0.03,
    request_lost=0.03,
    answer_lost=0.03,
    answer_doubled=0.05,
    connection_broken=0.03,
    answer_overdue=0.02,
    metadata_behind=0.2,
)
_MOVES = {"scale": 2, "resubscribe": 2, "change subscription": 2, "create topic": 1}
_MISUSE = {"stop polling": 3, "raise": 3, "slow callback": 3, "pause between polls": 2}
#: A broker that notices the new subscription of a returning static member of a classic group (KAFKA-12759, open).
_CLASSIC = ClassicRules(initial_rebalance_delay_s=0.2, sees_returning_subscriptions=True)
_REVOCATIONS = {"scale": 4}
#: Actions that end an ownership without on_revoke, or with a late on_revoke.
_ENDS = {"crash": 3, "stop polling": 1, "pause between polls": 2, "remove": 1, "move coordinator": 1}
#: The faults of a process before, during or after a hand-over.
_HAND_OVER_FAULTS = (
    "kill",
    "stop",
    "cut off",
    "break connection",
    "close",
    "move coordinator",
    "slow callback",
    "raise",
)
_TAKEOVERS = {"crash": 3, "duplicate instance id": 6, "stop polling": 2, "move coordinator": 1, "break connection": 2}

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name="no faults", actions=_MOVES),
        Profile(name="lossy network", faults=_LOSSY, actions=_MOVES | {"break connection": 2}, inbox_delay_s=0.02),
        Profile(name="misuse", actions=_MOVES | _MISUSE, inbox_delay_s=0.05),
        Profile(name="crashes", actions=_MOVES | {"crash": 6}),
        Profile(name="static crashes", actions=_MOVES | {"crash": 4, "bounce": 4}, is_static=True),
        Profile(
            name="static and dynamic",
            faults=_LOSSY,
            actions=_MOVES | {"crash": 2, "bounce": 3, "stop polling": 2, "remove": 1, "move coordinator": 1},
            is_static=True,
            is_mixed=True,
            inbox_delay_s=0.02,
        ),
        Profile(
            name="takeovers",
            faults=_LOSSY,
            actions=_MOVES | _TAKEOVERS,
            is_static=True,
            inbox_delay_s=0.02,
        ),
        Profile(
            name="pool",
            faults=_LOSSY,
            actions=_MOVES | {"crash": 3, "bounce": 4, "stop polling": 2, "remove": 1},
            is_static=True,
            is_pooled=True,
        ),
        Profile(name="hand-over, no faults", actions={"surge": 1}, is_static=True, hands_over=True),
        Profile(
            name="hand-over",
            faults=_LOSSY,
            actions=_MOVES | {"surge": 12, "crash": 1},
            is_static=True,
            hands_over=True,
            hand_over_faults=_HAND_OVER_FAULTS,
            inbox_delay_s=0.02,
        ),
        Profile(name="coordinator moves", actions=_MOVES | {"move coordinator": 6, "node down": 3}),
        Profile(
            name="everything",
            faults=_LOSSY,
            actions=_MOVES
            | _MISUSE
            | {"crash": 2, "bounce": 2, "move coordinator": 2, "node down": 1, "delete topic": 1, "remove": 1}
            | {"break connection": 1},
            action_interval_s=1.0,
            inbox_delay_s=0.05,
        ),
        Profile(
            name="everything, static",
            faults=_LOSSY,
            actions=_MOVES | _MISUSE | {"crash": 2, "bounce": 3, "move coordinator": 2, "remove": 1},
            action_interval_s=1.0,
            is_static=True,
            inbox_delay_s=0.05,
        ),
        # This profile deletes no topic: a member that looks up start offsets in a deleted topic waits for a rebalance.
        Profile(
            name="classic",
            rules=(_CLASSIC,),
            faults=_LOSSY,
            actions=_MOVES
            | _MISUSE
            | {"crash": 2, "bounce": 2, "move coordinator": 2, "node down": 1, "remove": 1, "break connection": 1}
            | {"cut off": 3},
            action_interval_s=1.0,
            inbox_delay_s=0.05,
        ),
        Profile(
            name="processing, no faults",
            actions=_REVOCATIONS,
            processing=Processing(metadata_limits=(4096,), has_dead_letters=(True,), stuck=0.0),
        ),
        Profile(
            name="processing",
            faults=_LOSSY,
            actions=_REVOCATIONS | _ENDS,
            action_interval_s=1.0,
            inbox_delay_s=0.05,
            processing=Processing(),
        ),
        Profile(
            name="processing, full metadata",
            actions=_REVOCATIONS | _ENDS,
            processing=Processing(metadata_limits=(4096, 40, 16, 0), broker_limits=(4096, 30, 12, 0)),
        ),
        Profile(
            name="processing classic",
            rules=(_CLASSIC,),
            faults=_LOSSY,
            actions=_REVOCATIONS | _ENDS | {"cut off": 1},
            action_interval_s=1.0,
            inbox_delay_s=0.05,
            processing=Processing(metadata_limits=(4096, 20)),
        ),
        Profile(
            name="classic static and dynamic",
            rules=(_CLASSIC,),
            faults=_LOSSY,
            actions=_MOVES | {"crash": 2, "bounce": 3, "stop polling": 2, "move coordinator": 1},
            is_static=True,
            is_mixed=True,
            inbox_delay_s=0.02,
        ),
        Profile(
            name="classic takeovers",
            rules=(_CLASSIC,),
            faults=_LOSSY,
            actions=_MOVES | _TAKEOVERS,
            is_static=True,
            inbox_delay_s=0.02,
        ),
    )
}
