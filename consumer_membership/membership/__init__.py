"""The pure core: what a member of a group does, without I/O, clock, thread or log.

`member.Member` is the KIP-848 member. Start reading at `states`, then `effects` (the order contract), then `member`.
"""
