"""The pure core: what a member of a group does, without I/O, clock, thread or log.

`member.MemberCore` is a member of either protocol. Start reading at `states`, then `effects` (the order contract),
then `member`, then `protocol` (what a protocol is to it).
"""
