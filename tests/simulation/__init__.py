"""Level 3: several members against a pure fake coordinator, under a virtual clock and seeded faults.

    python -m tests.simulation --seeds 200 --start 0

`simulation` serves both protocols. The coordinator (`consumer_membership.testing.coordinators`, which follows Kafka's
rules and does not know the simulation) and the form of a request (`member_requests` there) depend on the protocol.
`application` and `network` are doubles of the shell that keep the contract of `membership.effects`.
`process_invariants` checks every step of one process, `invariants` checks all processes together. Both read the private
state of a member with the functions of `internals`.

In the profiles whose names begin with "processing" each process is a processor (`processor`). The real scheduler,
offsets and retries of `consumer_membership.processing` decide, and handlers take virtual time. `handler_invariants`
has their rules, and `processor_mutants` breaks each of these parts.

The coordinators keep the rules of real brokers: each rule test runs on a simulated coordinator and on a broker's
(`under_test`, `real`). What a broker does otherwise, and why the simulation does not:

a broker                                        the simulation                      the reason
--------                                        --------------                      ----------
converts live groups (migration.policy)       converts empty groups only          no migration policy here [1]
before 4.3 lets classic members in (disabled)   refuses them                        groups have one protocol here [3]
on 4.3 has an emptied group wait                assigns its first member at once    rules of 4.3 alone: none [2]
reads RE2/J                                     reads Python's `re`                 its patterns are the same in both
gives partitions in its assignors' own order    gives as many, perhaps others       no rule names a partition
breaks a tie of votes for an assignor by a hash by who voted first                  no rule names the winner
makes member ids from names and random UUIDs    counts                              a seed must be repeatable
has texts of its own for the other protocol     has one text                        members read the code

[1] `tests/integration/test_migration.py` converts groups on a broker.
[2] `tests/integration/test_broker_differences.py` has 4.3; an empty first assignment occurs with each further member.

[3] `tests/integration/test_seen_answers.py` has each version: a consumer group under the policy `disabled`.

Moves of the coordinator take several nodes, and moments at which timers end take virtual time: those rules are tested
on the simulation only (`classic/test_moves.py`, `classic/test_times.py`).
"""
