"""Handlers of records: keys in parallel, retries, dead letters and transactions, with commits that never run ahead.

The package is built on the public `Consumer`; a member imports nothing of it.
"""
