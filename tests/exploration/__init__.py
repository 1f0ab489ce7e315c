"""Exhaustive exploration of both cores: every interleaving of small configurations, breadth first.

`tests.simulation` is random and finds likely defects. An exploration takes every possible step from each state, so it
finds every defect up to its depth. It has no clock: timers end at any time.

**Real parts.** The members are `membership.member.MemberCore`s of one protocol; classic members have the built-in
assignors. The coordinators come from `consumer_membership.testing.coordinators`, and the invariants of a process from
`tests.simulation`. Only the application's thread (`application`), the network and the shell (`process`) are small
fakes. The packages `consumer` and `classic` contain the parts that depend on the protocol: the delivery of requests
(`transport`), the spontaneous events of a group (`spontaneous_events`), and the equivalence of states (`canonical`).
The search, the states and their traces do not depend on the protocol.

**A state** is a tuple of numbers: one for the process in each slot, and one each for the coordinator, the requests
whose sender died, and the remaining budgets. A process consists of the member, its application, all messages on its
connections, and the state of its invariants. Equal parts are stored once (`model`), so the effect of an event on a part
is computed once, although the part occurs in many states.

A classic rebalance is long, about 30 steps for two members. So a classic configuration has an *opening*: the
exploration begins at each state of a run without faults in which a member joins, dies or leaves. The depth is counted
from these states.

**Sound abstractions** (`canonical`): they hide no behavior.

- Numbers that are only compared for equality or order (requests, attempts, statements, targets, commits) are renamed.
  Numbers that a member awaits keep their order and begin at a fixed number; numbers that no member awaits become 0.
- Times for people, histories, round trips and heartbeat spacing are dropped: they only determine when a message is
  sent, and the exploration tries each moment. Backoffs count only up to the number that makes a difference.
- In a configuration that is not "slow", the application immediately reports a performed step to its member. A step that
  a newer step has overtaken may still be performed, like a callback that had begun before.
- The loss of a request, and its execution after its sender abandoned it, begin with one step: the request stays in
  flight, and may never arrive.
- Epochs are not renamed, because each change of an epoch costs budget, so that epochs stay small.

**Approximations**: the exploration allows some behavior that is impossible, and omits some that is possible.

- Time has no length: short timers (heartbeat, retry) and long timers (max.poll.interval, session, leave, commit) end at
  any time and in any order; each long timer costs budget. So a member may miss its poll before its first heartbeat.
  Rules about durations, such as heartbeats in a second, are for `tests.simulation`.
- Members receive topic names immediately, and start offsets also if a configuration is not "slow". Topics do not
  change, and automatic commits on the interval are off. Offsets have no values: all commits have the same offset.
- There are one group and one broker node. The coordinator's session and rebalance timers end at any time. The loss of
  the group ("dynamic" only) restarts its epochs, so the coordinator may accept an earlier commit; this is not checked.
- An abandoned request arrives before the later requests of its process, or never. When a process dies, the coordinator
  immediately handles some of its requests in flight, and never handles the others. In the configuration "late requests"
  any of these requests may arrive late.
- A session is long: when it ends, no answer is in flight, and no member's last answer is recent. (A static member
  treats a removal soon after an answer as an administrator's removal.) An administrator's removal of that kind is
  omitted.
- The helper group of hand-overs has the same coordinator, which never rejects its requests. Its requests use a separate
  connection. The time for which a released id is reserved for its successor ends at any time.
- The member receives a poll immediately, and steps are performed whether or not a poll was reported: the event of the
  poll that performs them changes nothing else.

These approximations are only for classic configurations:

- Generations are not renamed: each generation costs budget, or ends a rebalance whose beginning cost budget.
- A rebalance timeout ends when no answer is in flight, and costs budget if a live member is missing. As on a broker,
  the session of a member whose request waits does not end, except for a new member whose first join waits.
- A static member is also excused if a generation began without it because its JoinGroup did not arrive in time: the
  leader uses its earlier report, so its partitions may be assigned to other members before it is notified.
- The answer to an abandoned JoinGroup or SyncGroup is lost, except in the configuration "classic late". A request that
  the coordinator has dropped without an answer, as a broker may do, ends by its own timeout.
- Another coordinator ("forget") immediately reads the state that was written last: it is never observed while it loads,
  and two coordinators are never active at the same time.
- In a configuration that is not "slow", Metadata and the assignor respond immediately. Topics and subscriptions do not
  change, and all members have the same assignor.
"""
