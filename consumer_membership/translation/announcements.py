"""Announcements for hand-overs as text: the metadata of an offset in a group's helper group.

An announcement is JSON with a version. Brokers limit the metadata of an offset (offset.metadata.max.bytes, 4096 by
default); the ids in an announcement are far shorter.
"""

from __future__ import annotations

import json

from consumer_membership.membership.consumer.hand_over import HELPER_SUFFIX
from consumer_membership.types import HandOverAnnouncement

_VERSION = 1


def helper_group(group_id: str) -> str:
    """Return the name of the group whose committed metadata has the announcements."""
    return group_id + HELPER_SUFFIX


def announcement_text(announcement: HandOverAnnouncement | None) -> str:
    """Return an announcement as text; a withdrawn announcement is empty."""
    if announcement is None:
        return ""
    fields = {
        "v": _VERSION,
        "from": announcement.predecessor,
        "to": announcement.successor,
        "id": announcement.instance_id,
    }
    return json.dumps(fields, separators=(",", ":"))


def parse_announcement(text: str) -> HandOverAnnouncement | None:
    """Return the announcement in this text; None: it is not an announcement of this version."""
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("v") != _VERSION:
        return None
    predecessor, successor, instance_id = fields.get("from"), fields.get("to"), fields.get("id")
    if not (isinstance(predecessor, str) and isinstance(successor, str) and isinstance(instance_id, str)):
        return None
    return HandOverAnnouncement(predecessor=predecessor, successor=successor, instance_id=instance_id)
