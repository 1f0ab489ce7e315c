"""The fixtures of tests/clients for tests of the application's side, whose member is scripted."""

from __future__ import annotations

from tests.clients.conftest import cluster, consumers, topic

__all__ = ["cluster", "consumers", "topic"]
