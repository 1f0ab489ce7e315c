"""What a small world that is explored is: who is there, and how much may go wrong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import ConflictPolicy, LeaveOption
from tests.exploration.application import Application
from tests.exploration.cluster import Cluster
from tests.exploration.process import Core, Process

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


@dataclass(frozen=True, slots=True, kw_only=True)
class World(ABC):
    """One world. `seats` has each seat's instance id; the first `present` seats have a process at the beginning.

    `is_settled` begins where the present processes have joined and share the partitions. `opening` are steps by name:
    each is taken and followed by a run without faults, and the exploration begins everywhere along this way.
    """

    name: str
    words: str
    seats: tuple[str | None, ...]
    budgets: Mapping[str, int]
    partitions: int = 2
    present: int = 2
    is_settled: bool = True
    opening: tuple[str, ...] = ()
    auto_commit: bool = False
    #: Whether the application's posts and the answers to OffsetFetch take their time.
    is_slow: bool = False
    #: Whether a request that was given up may arrive after a later one; who then settles is chance (`fairness`).
    overtakes: bool = False
    pool: tuple[str, ...] = ()
    policy: ConflictPolicy = ConflictPolicy.TAKEOVER
    leave_options: tuple[LeaveOption, ...] = (LeaveOption.DEFAULT,)
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

    @abstractmethod
    def cluster(self, rules: str) -> Cluster:
        """A coordinator of a broker with these rules, without groups."""

    @abstractmethod
    def process(self, name: str, number: int, seat: int, member_class: type[Core] | None) -> Process:
        """A process that was just started."""

    def start(self, name: str, number: int, seat: int, member_class: type[Core] | None) -> Process:
        """A process that has just subscribed and polled; `member_class` None: the real one."""
        process = self.process(name, number, seat, member_class)
        process.subscribe()
        process.find_coordinator()
        process.canonicalise()
        return process

    def application(self, name: str) -> Application:
        """The application of a new process."""
        return Application(name, self.auto_commit)
