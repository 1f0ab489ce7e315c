"""Observe groups of any client from outside: consumption rates, diagnosis, and a timeline of partition owners.

The input is samples of a group from `admin`; the output is values and pages. This package never joins a group and
never consumes the application's records, so that observation has no effect on the members, whatever client they use.
"""
