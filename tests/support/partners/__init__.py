"""Partners: group members with various client libraries. Each is a process that reports its events.

    python -m tests.support.partners LIFE       LIFE: `life.Lifetime` as JSON

All clients print the same kinds of lines to stdout (`reporting`), so that one test can check a group of different
clients. A partner commits its records batch by batch, and leaves its group on SIGTERM. `ours` and `confluent` are the
same application with two libraries, because this package is a replacement for confluent-kafka.
"""
