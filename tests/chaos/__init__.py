"""Chaos tests: members run on a cluster under faults and write a history, which a checker without I/O then checks."""
