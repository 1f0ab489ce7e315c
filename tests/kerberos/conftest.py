"""Leaves these tests to the environment whose librdkafka has GSSAPI (`tests/frameworks/test_kerberos.py`)."""

from __future__ import annotations

import os

#: Set there.
SWITCH = "CONSUMER_MEMBERSHIP_KERBEROS_TESTS"
collect_ignore_glob = [] if SWITCH in os.environ else ["test_*.py"]
