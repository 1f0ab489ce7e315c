"""The small worlds that are explored, of both protocols."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.types import ConflictPolicy, LeaveOption
from tests.exploration.worlds import CLASSIC, World

_CONFLICTS = frozenset({"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"})
_NETWORK = {"loss": 2, "duplicate": 1, "break": 1}
_REMOVALS = {"poll": 1, "session": 1, "crash": 1}
_CLASSIC_REMOVALS = _REMOVALS | {"rebalance": 1}
_FENCED = frozenset({"FENCED_INSTANCE_ID"})
_OPTIONS = (LeaveOption.DEFAULT, LeaveOption.LEAVE, LeaveOption.REMAIN)

WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(
            name="dynamic",
            words="2 members join at once",
            seats=(None, None),
            is_settled=False,
            budgets={"all": 1, "start": 1, "forget": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.4"),
        ),
        World(
            name="rebalance",
            words="a second member joins, with commits, callbacks that raise, and delays between the threads",
            seats=(None, None),
            present=1,
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.4"),
        ),
        World(
            name="eager callbacks",
            words="a second member joins, both are told of the whole at each change, and callbacks may raise",
            seats=(None, None),
            present=1,
            auto_commit=True,
            is_eager=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
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
            rules=("4.0", "4.4"),
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
        World(
            name="classic",
            words="2 cooperative members join; the coordinator may move",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=(None, None),
            present=1,
            opening=("start",),
            budgets={"all": 1, "start": 1, "forget": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic eager",
            words="a second eager member joins, with commits, callbacks that raise, and delays between the threads",
            rules=(CLASSIC,),
            seats=(None, None),
            present=1,
            opening=("start",),
            assignor="sticky",
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "timeout": 1, "raise": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic slow",
            words="a second cooperative member joins, with commits, callbacks that raise, delays between the threads",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=(None, None),
            present=1,
            opening=("start",),
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic told of the whole",
            words="a second cooperative member joins, both are told of the whole at each change",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=(None, None),
            present=1,
            opening=("start",),
            auto_commit=True,
            is_eager=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic leaving",
            words="one of 2 eager members leaves in any way, with commits, and comes back",
            rules=(CLASSIC,),
            seats=(None, None),
            opening=("leave", "subscribe"),
            assignor="range",
            auto_commit=True,
            is_slow=True,
            leave_options=(LeaveOption.DEFAULT, LeaveOption.REMAIN),
            budgets={"all": 1, "leave": 2, "subscribe": 2, "raise": 1, "timeout": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic three",
            words="a third cooperative member joins, and one of the 3 leaves",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=(None, None, None),
            opening=("start",),
            partitions=3,
            budgets={"all": 1, "start": 1, "leave": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic crash",
            words="one of 3 eager members, the leader, dies, and another process comes",
            rules=(CLASSIC,),
            seats=(None, None, None),
            present=3,
            opening=("crash", "start"),
            assignor="roundrobin",
            partitions=3,
            budgets={"all": 2, "start": 2} | _NETWORK | _CLASSIC_REMOVALS | {"crash": 2},
        ),
        World(
            name="classic static",
            words="2 members with an instance id each; they crash and restart, leave in any way, and come back",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=("i0", "i1"),
            opening=("crash", "start"),
            leave_options=_OPTIONS,
            budgets={"all": 2, "start": 2, "leave": 1, "subscribe": 1, "timeout": 1, "forget": 1}
            | _NETWORK
            | _CLASSIC_REMOVALS
            | {"crash": 2},
        ),
        World(
            name="classic shared",
            words="a newcomer with a living holder's instance id, beside another member",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=("i0", "i1", "i0"),
            opening=("start",),
            may_end_with=_FENCED,
            budgets={"all": 1, "start": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
        World(
            name="classic late",
            words="requests that were given up arrive after later ones: what must never happen, not who settles",
            rules=(CLASSIC,),
            assignor="cooperative-sticky",
            seats=(None, None),
            present=1,
            opening=("start",),
            overtakes=True,
            budgets={"all": 1, "start": 1} | _NETWORK | _CLASSIC_REMOVALS,
        ),
    )
}
