"""Notes for hand-overs as text: the metadata of an offset in a group's helper group.

A note is JSON with a version. Brokers limit the metadata of an offset (offset.metadata.max.bytes, 4096 by default); the
ids in a note are far shorter.
"""

from __future__ import annotations

import json

from consumer_membership.membership.consumer.hand_over import HELPER_SUFFIX
from consumer_membership.types import HandOverNote

_VERSION = 1


def helper_group(group_id: str) -> str:
    """Return the name of the group whose committed metadata has the notes."""
    return group_id + HELPER_SUFFIX


def note_text(note: HandOverNote | None) -> str:
    """Return a note as text; a withdrawn note is empty."""
    if note is None:
        return ""
    fields = {"v": _VERSION, "from": note.predecessor, "to": note.successor, "id": note.instance_id}
    return json.dumps(fields, separators=(",", ":"))


def parse_note(text: str) -> HandOverNote | None:
    """Return the note in this text; None: it is not a note of this version."""
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("v") != _VERSION:
        return None
    predecessor, successor, instance_id = fields.get("from"), fields.get("to"), fields.get("id")
    if not (isinstance(predecessor, str) and isinstance(successor, str) and isinstance(instance_id, str)):
        return None
    return HandOverNote(predecessor=predecessor, successor=successor, instance_id=instance_id)
