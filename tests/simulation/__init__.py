"""Floor 3: several members against a pure fake coordinator, under a virtual clock and seeded faults.

    python -m tests.simulation --seeds 200 --start 0

`coordinator` follows Kafka's rules and knows nothing of the simulation; `application` and `network` are doubles of the
shell that keep the contract of `membership.effects`; `invariants` looks at every step; `world` connects them.
"""
