"""The fixtures of tests/clients, for tests of the application's side that use a scripted member."""

from __future__ import annotations

from tests.clients.conftest import cluster, consumers, topic

__all__ = ["cluster", "consumers", "topic"]
