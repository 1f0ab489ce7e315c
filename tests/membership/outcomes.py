"""Read results from a scene's last effects."""

from __future__ import annotations

from consumer_membership.membership.effects import CommitCompleted, RaiseToApplication
from consumer_membership.types import BrokerError
from tests.membership.builders import Scene


def errors_of(scene: Scene) -> dict[int, BrokerError | None]:
    """Return each commit that the last event completed, with the error that its partitions share (None: committed)."""
    found: dict[int, BrokerError | None] = {}
    for completed in scene.new(CommitCompleted):
        distinct = set(completed.errors.values()) or {None}
        assert len(distinct) == 1, completed
        found[completed.commit_id] = distinct.pop()
    return found


def raised(scene: Scene) -> list[BrokerError]:
    """Return the errors that the last event raised to the application."""
    return [effect.error for effect in scene.new(RaiseToApplication)]
