"""Members of a group that use other clients, each in its own process, which reports its events.

    python -m tests.support.partners LIFE       LIFE: `life.Lifetime` as JSON

All clients print the same kinds of lines on stdout (`speech`), so that one test can keep the accounts of a mixed group.
A partner commits its records batch by batch and leaves its group on SIGTERM. `ours` and `confluent` are one application
with two libraries, because the one replaces the other.
"""
