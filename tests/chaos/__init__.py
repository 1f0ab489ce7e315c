"""Chaos tests: real members on a real cluster under faults, whose written history a pure checker judges."""
