"""Members of the same groups that are not ours: other clients, each in a process of its own that tells what it does.

    python -m tests.support.partners LIFE       LIFE: `life.Lifetime` as JSON

Whatever the client, its lines on stdout are the same (`speech`), so that one test can keep the books of a group of
many. A partner commits what it was given, batch by batch, and leaves its group on SIGTERM. `ours` and `confluent` are
one application of two libraries, as the one is to stand in for the other.
"""
