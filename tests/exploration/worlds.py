"""The small worlds that are explored: who is there, and how much may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import ConflictPolicy, LeaveOption
from tests.simulation.rules import RULES_4_0, RULES_4_2, RULES_4_3, Rules

RULES: Mapping[str, Rules] = {"4.0": RULES_4_0, "4.2": RULES_4_2, "4.3": RULES_4_3}
#: What can be paid for, each from a budget of its own; what goes wrong costs one of "all", too.
KINDS = (
    "all",
    "loss",
    "duplicate",
    "break",
    "raise",
    "poll",
    "timeout",
    "session",
    "rebalance",
    "forget",
    "crash",
    "start",
    "leave",
    "subscribe",
)
#: Nothing goes wrong where these happen.
IN_ORDER = frozenset({"start", "leave", "subscribe"})
_CONFLICTS = frozenset({"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"})
_NETWORK = {"loss": 2, "duplicate": 1, "break": 1}
_REMOVALS = {"poll": 1, "session": 1, "crash": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One world. `seats` has each seat's instance id; the first `present` seats have a process at the beginning.

    `is_settled` begins where the present processes have joined and share the partitions.
    """

    name: str
    words: str
    seats: tuple[str | None, ...]
    budgets: Mapping[str, int]
    partitions: int = 2
    present: int = 2
    is_settled: bool = True
    auto_commit: bool = False
    #: Whether the application's posts and the answers to OffsetFetch take their time.
    is_slow: bool = False
    #: Whether a request that was given up may arrive after a later one; who then settles is chance (`fairness`).
    overtakes: bool = False
    pool: tuple[str, ...] = ()
    policy: ConflictPolicy = ConflictPolicy.TAKEOVER
    leave_option: LeaveOption = LeaveOption.DEFAULT
    may_end_with: frozenset[str] = frozenset()
    rules: tuple[str, ...] = ("4.2",)

    def settings(self, seat: int) -> MemberSettings:
        """The settings of a process in this seat."""
        return MemberSettings(
            group_id="g",
            instance_id=self.seats[seat],
            instance_pool=self.pool,
            conflict_policy=self.policy,
            auto_commit=self.auto_commit,
            auto_commit_interval_s=1e9,
        )


WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(
            name="dynamic",
            words="2 members join at once",
            seats=(None, None),
            is_settled=False,
            budgets={"all": 1, "start": 1, "forget": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        World(
            name="rebalance",
            words="a second member joins, with commits, callbacks that raise, and delays between the threads",
            seats=(None, None),
            present=1,
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        World(
            name="leaving",
            words="one of 2 members leaves, with commits, and comes back",
            seats=(None, None),
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "leave": 1, "subscribe": 1, "raise": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        World(
            name="three partitions",
            words="a second member joins, and one of the 2 leaves",
            seats=(None, None),
            partitions=3,
            present=1,
            budgets={"all": 1, "start": 1, "leave": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
        ),
        World(
            name="static",
            words="2 members with an instance id each; they crash and restart, leave and come back",
            seats=("i0", "i1"),
            budgets={"all": 1, "start": 1, "leave": 1, "subscribe": 1, "loss": 1} | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        World(
            name="shared",
            words="a newcomer with a living holder's instance id, and one more after a crash",
            seats=("i", "i"),
            present=1,
            may_end_with=_CONFLICTS,
            budgets={"all": 1, "start": 2} | _NETWORK | _REMOVALS,
        ),
        World(
            name="twins",
            words="2 newcomers at once with a living holder's instance id",
            seats=("i", "i", "i"),
            present=1,
            may_end_with=_CONFLICTS,
            budgets={"all": 0, "start": 2} | _NETWORK | _REMOVALS,
        ),
        World(
            name="waiting",
            words="a newcomer that waits until the holder of its instance id has gone",
            seats=("i", "i"),
            present=1,
            policy=ConflictPolicy.WAIT,
            may_end_with=_CONFLICTS,
            budgets={"all": 1, "start": 1, "leave": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        World(
            name="pool",
            words="2 members claim ids of a pool of 2",
            seats=(None, None),
            is_settled=False,
            pool=("i0", "i1"),
            policy=ConflictPolicy.WAIT,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
        World(
            name="late requests",
            words="requests that were given up arrive after later ones: what must never happen, not who settles",
            seats=(None, None),
            present=1,
            overtakes=True,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
    )
}
