"""Announcements for hand-overs as offset metadata."""

from __future__ import annotations

import pytest

from consumer_membership.translation.announcements import announcement_text, helper_group, parse_announcement
from consumer_membership.types import HandOverAnnouncement


def test_announcement_text_is_parsed_to_an_equal_announcement() -> None:
    """The text is at most 4096 bytes, the default limit of brokers, also with the longest instance id."""
    announcement = HandOverAnnouncement(predecessor="p" * 22, successor="s" * 36, instance_id="ü" * 249)
    assert parse_announcement(announcement_text(announcement)) == announcement
    assert len(announcement_text(announcement).encode()) < 4096


def test_withdrawn_announcement_has_no_text() -> None:
    """A commit cannot remove an offset, so its metadata becomes empty."""
    assert parse_announcement(announcement_text(None)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"v":2,"from":"a","to":"b","id":"c"}', '{"v":1,"from":"a"}'])
def test_other_metadata_is_not_an_announcement(text: str) -> None:
    """Metadata of other programs, and of other versions, is ignored."""
    assert parse_announcement(text) is None


def test_helper_group_is_named_after_the_group() -> None:
    """The name of the helper group is documented, because it needs a right."""
    assert helper_group("orders") == "orders.hand-over"
