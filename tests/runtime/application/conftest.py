"""The fixtures of tests/clients: parts of the application's side as a consumer drives them, its member played."""

from __future__ import annotations

from tests.clients.conftest import cluster, consumers, topic

__all__ = ["cluster", "consumers", "topic"]
