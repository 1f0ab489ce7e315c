"""The flight recorder: a member's events and effects, kept in memory, written to a file, and replayed.

The core is deterministic: equal settings, events, times and random draws cause equal effects. A file with these inputs
shows later, step by step and on another machine, why a member did what it did.

`ring` keeps the latest events of a running member, with `snapshot` as the state before the first of them. `dumps`
decides when they become a file, `values` writes and reads their values, `recording` is the file, `replay` runs the core
on it, and `explanation` summarizes it. `docs/project/recording-format.md` describes the format. No module here opens a
socket.
"""
