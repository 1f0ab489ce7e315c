"""Notes for hand-overs as offset metadata."""

from __future__ import annotations

import pytest

from consumer_membership.translation.hand_over_notes import helper_group, note_text, parse_note
from consumer_membership.types import HandOverNote


def test_note_text_is_parsed_to_an_equal_note() -> None:
    """A note in text is at most 4096 bytes, the default limit of brokers, also with the longest instance id."""
    note = HandOverNote(predecessor="p" * 22, successor="s" * 36, instance_id="ü" * 249)
    assert parse_note(note_text(note)) == note
    assert len(note_text(note).encode()) < 4096


def test_withdrawn_note_has_no_text() -> None:
    """A commit cannot remove an offset, so its metadata becomes empty."""
    assert parse_note(note_text(None)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"v":2,"from":"a","to":"b","id":"c"}', '{"v":1,"from":"a"}'])
def test_other_metadata_is_not_a_note(text: str) -> None:
    """Metadata of other programs, and of other versions, is ignored."""
    assert parse_note(text) is None


def test_helper_group_is_named_after_the_group() -> None:
    """The name of the helper group is documented, because it needs a right."""
    assert helper_group("orders") == "orders.hand-over"
