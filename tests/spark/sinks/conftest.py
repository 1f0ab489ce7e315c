"""The real PostgreSQL of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import postgres


@pytest.fixture(scope="session")
def conninfo() -> Iterator[str]:
    """A server for this test run; its password must never be printed."""
    with postgres() as conninfo:
        yield conninfo
