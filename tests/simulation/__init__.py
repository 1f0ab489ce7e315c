"""Level 3: several members with a pure fake coordinator, under a virtual clock and seeded faults.

    python -m tests.simulation --seeds 200 --start 0

The module `simulation` supports both protocols. Two parts depend on the protocol: the coordinator
(`consumer_membership.testing.coordinators`, which follows Kafka's rules and does not depend on the simulation) and the
form of a request (`member_requests` in the same package). `application` and `network` are fakes of the shell that keep
the contract of `membership.effects`. `process_invariants` checks every step of one process, and `invariants` checks all
processes together. Both read the private state of a member with the functions of `internals`.

In the profiles whose names begin with "processing" each process is a processor (`processor`). It uses the real
scheduler, offsets and retries of `consumer_membership.processing`, and its handlers take virtual time.
`handler_invariants` contains the rules of handlers, and `processor_mutants` breaks each of these parts.

The simulated coordinators keep the rules of real brokers: each rule test runs on a simulated coordinator and on a real
broker (`under_test`, `real`). They differ from brokers in these points:

- A broker converts groups with members (migration.policy). The simulation has no migration policy and converts only
  empty groups. `tests/integration/test_migration.py` converts groups on a broker.
- Before 4.3, a broker with the policy `disabled` admits classic members to a consumer group. The simulation rejects
  them, because its groups have one protocol. `tests/integration/test_seen_answers.py` covers each version.
- On 4.3, the first member of an emptied group waits for its assignment. The simulation assigns immediately, because it
  has no rules for 4.3. `tests/integration/test_broker_differences.py` covers 4.3; an empty first assignment also occurs
  with each further member of a group.
- A broker evaluates patterns with RE2/J, and the simulation with Python's `re`. The patterns of the tests mean the same
  in both.
- A broker assigns partitions in the order of its assignors. The simulation assigns the same number of partitions, but
  perhaps other partitions, because no rule names a partition.
- A broker breaks a tie between the votes for assignors by a hash. In the simulation the first vote wins, because no
  rule names the winner.
- A broker creates member ids from names and random UUIDs. The simulation counts, because a seed must be repeatable.
- A broker has separate error texts for requests of the other protocol. The simulation has one text, because members
  read only the error code.

Tests of coordinator moves need several nodes, and tests of exact timer ends need virtual time. So these rules are
tested only on the simulation (`classic/test_moves.py`, `classic/test_times.py`).
"""
