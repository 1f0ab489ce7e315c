"""Exhaustive exploration of both cores: every interleaving of small configurations, breadth first.

`tests.simulation` is random: it finds likely defects. An exploration takes every possible step from each state, so it
misses nothing up to its depth. It has no clock: timers end at any time.

**Real parts.** The members are `membership.member.MemberCore`s of one protocol; classic members have the built-in
assignors. The coordinators and the invariants of a process are those of `tests.simulation`. Only the application's
thread (`application`), the network and the shell (`process`) are small fakes. `consumer` and `classic` contain the
protocol's part: how requests travel (`transport`), the spontaneous events of a group (`spontaneous_events`), and which
states are equivalent (`canonical`). The search, the states and their traces do not depend on the protocol.

**A state** is a tuple of numbers: one for the process in each slot, and one each for the coordinator, the requests
whose sender died, and the remaining budgets. A process is the member, its application, all messages on its connections,
and the values that the invariants remember of it. Equal parts are stored once (`model`), so the effect of an event on a
part is computed once, although the part occurs in many states.

A classic rebalance is long, about 30 steps for two members. So a classic configuration has an *opening*: the
exploration begins at each state of a run without faults in which a member joins, dies or leaves. Its depth is counted
from there.

**Sound abstractions** (`canonical`): nothing is lost by them.

- Numbers that are only compared for equality or order (requests, attempts, statements, targets, commits) are renamed:
  those that are awaited keep their order from a fixed number on, those that no member awaits become 0.
- Times for people, histories, round trips and heartbeat spacing are dropped: they decide when something is sent, and
  here each moment is tried. Backoffs count up to the number that makes a difference.
- In a configuration that is not "slow", the application reports a performed step to its member at once. But a step
  that was overtaken by a newer one may still be performed, which is what a callback that had begun before looks like.
- A lost request and a request that is executed after its sender gave it up are one step: the request stays under way,
  and need never arrive.
- Epochs are not renamed: each change of them costs budget, so that they stay small.

**Approximations**: more happens than can, or less.

- Time has no length: short timers (heartbeat, retry) come at any time, long ones (max.poll.interval, session,
  leave, commit) too, in any order, each for its budget. So a member may miss its poll before its first heartbeat. What
  needs a length, such as heartbeats in a second, is for `tests.simulation`.
- Topic names are known at once, start offsets too if a configuration is not "slow"; topics do not change, and
  automatic commits on the interval are off. Offsets have no values: a commit is of "what was consumed".
- One group, one broker node; the coordinator's session and rebalance timers end at any time. That the group is lost
  ("dynamic" only) restarts its epochs, so that a commit from before may count: not checked.
- A request that was given up arrives before the later ones of its process, or never, and of what a dying process had
  sent some is handled at once and the rest never. In the configuration "late requests" any may come late.
- A session is long: when one ends, no answer is under way and no member's last one is recent (a static member takes a
  removal soon after an answer for an administrator's). An administrator's removal of that kind is left out.
- The helper group of hand-overs has the same coordinator, which never refuses it. Its requests have a connection of
  their own. How long a released id is left to its successor is over at any time.
- A poll is taken in at once, and steps are performed whether or not a poll was reported: the event of the poll that
  performs them changes nothing else.

Of classic configurations alone:

- Generations are not renamed; each costs budget, or ends a rebalance that was begun with one.
- A rebalance timeout ends when no answer is under way, and for its budget where a live member is missing. The
  session of a request that waits does not end, as at a broker; it does for a new member whose first join waits.
- A static member that a generation went on without (its JoinGroup did not come in time) is also excused: its leader
  sees its earlier report, so that its partitions may be assigned to others before it learns of that.
- An answer to a JoinGroup or SyncGroup that was given up is lost, except in the configuration "classic late"; a request
  that the coordinator has forgotten (it answers neither well nor badly, as a broker) ends by its own time.
- Another coordinator ("forget") reads what was written last at once: it is never seen loading, nor are two at work.
- In a configuration that is not "slow", Metadata and the assignor answer at once. Topics and subscriptions do not
  change, and all members have the same assignor.
"""
