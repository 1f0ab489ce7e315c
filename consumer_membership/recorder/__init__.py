"""The flight recorder: what a member's core was told and what it ordered, kept in memory, written to a file, replayed.

The core is deterministic: the same settings, events, times and draws give the same effects. So a file with those is all
that is needed to see afterwards, step by step and on another machine, why a member did what it did.

`ring` keeps the latest events of a living member, `dumps` decides when they become a file, `values` says how they are
written, `recording` is such a file, `replay` runs the core on it, `explanation` puts it into words. `docs/recorder.md`
describes the format. Nothing here touches a socket, and only `dumps` touches files by itself.
"""
