"""Floor 3: several members against a pure fake coordinator, under a virtual clock and seeded faults.

    python -m tests.simulation --seeds 200 --start 0

There is one `world`; what differs with the protocol is its coordinator (`consumer`, `classic`, or `either`), which
follows Kafka's rules and knows nothing of the simulation, and what a request is called (`words`). `application` and
`network` are doubles of the shell that keep the contract of `membership.effects`; `watch` looks at every step of one
process, `invariants` at all of them together. What they look at inside a member is asked of `inside`.
"""
