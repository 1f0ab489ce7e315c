"""What tests read off a scene's last effects."""

from __future__ import annotations

from consumer_membership.membership.effects import CommitCompleted, RaiseToApplication
from consumer_membership.types import BrokerError
from tests.membership.builders import Scene


def errors_of(scene: Scene) -> dict[int, BrokerError | None]:
    """Each commit that the last event ended, with the one error of all its partitions (None: committed)."""
    found: dict[int, BrokerError | None] = {}
    for completed in scene.new(CommitCompleted):
        distinct = set(completed.errors.values()) or {None}
        assert len(distinct) == 1, completed
        found[completed.commit_id] = distinct.pop()
    return found


def raised(scene: Scene) -> list[BrokerError]:
    """Return what the application learned from the last event."""
    return [told.error for told in scene.new(RaiseToApplication)]
