"""The small worlds that are explored: who is there, and how much may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import LeaveOption
from tests.simulation.rules import RULES_4_0, RULES_4_2, RULES_4_3, Rules

RULES: Mapping[str, Rules] = {"4.0": RULES_4_0, "4.2": RULES_4_2, "4.3": RULES_4_3}
#: What can be paid for, each from a budget of its own; "all" is what they may cost together.
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
_CONFLICTS = frozenset({"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One world. `seats` has each seat's instance id; the first `present` seats have a process at the beginning.

    `is_settled` begins where the present processes have joined and share the partitions.
    """

    name: str
    seats: tuple[str | None, ...]
    budgets: Mapping[str, int]
    partitions: int = 2
    present: int = 2
    is_settled: bool = False
    auto_commit: bool = False
    #: Whether the application's posts and the answers to OffsetFetch take their time.
    is_slow: bool = False
    #: Whether a request that was given up may arrive after a later one; who then settles is chance (`fairness`).
    overtakes: bool = False
    leave_option: LeaveOption = LeaveOption.DEFAULT
    may_end_with: frozenset[str] = frozenset()
    rules: tuple[str, ...] = ("4.0", "4.3")
    #: Whether a member of each instance id must go on in the end.
    words: str = field(default="")

    def settings(self, seat: int) -> MemberSettings:
        """The settings of a process in this seat."""
        return MemberSettings(
            group_id="g",
            instance_id=self.seats[seat],
            auto_commit=self.auto_commit,
            auto_commit_interval_s=1e9,
        )


WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(
            name="dynamic",
            seats=(None, None),
            budgets={"all": 2, "loss": 1, "duplicate": 1, "break": 1, "poll": 1, "session": 1}
            | {"crash": 1, "start": 1, "leave": 1, "subscribe": 1},
            words="2 members, 2 partitions, from nothing",
        ),
        World(
            name="rebalance",
            seats=(None, None),
            present=1,
            is_settled=True,
            auto_commit=True,
            is_slow=True,
            budgets={"all": 4, "start": 2, "loss": 2, "duplicate": 1, "break": 1, "raise": 1, "timeout": 1}
            | {"rebalance": 1, "crash": 1, "leave": 1},
            words="the second of 2 members joins, with commits and callbacks that raise",
        ),
        World(
            name="static",
            seats=("i0", "i1"),
            is_settled=True,
            budgets={"all": 3, "loss": 1, "duplicate": 1, "poll": 1, "session": 1, "crash": 1, "start": 1}
            | {"leave": 1, "subscribe": 1},
            words="2 members with an instance id each",
        ),
        World(
            name="shared",
            seats=("i", "i", "i"),
            present=1,
            is_settled=True,
            may_end_with=_CONFLICTS,
            budgets={"all": 4, "start": 2, "loss": 1, "duplicate": 1, "poll": 1, "session": 1, "crash": 1},
            words="newcomers with a living holder's instance id",
        ),
        World(
            name="three partitions",
            seats=(None, None),
            partitions=3,
            present=1,
            is_settled=True,
            budgets={"all": 3, "start": 1, "loss": 1, "break": 1, "poll": 1, "leave": 1, "subscribe": 1, "session": 1},
            words="the second of 2 members joins, 3 partitions",
        ),
    )
}
