"""The reference pages of log messages and errors agree with the code."""

from __future__ import annotations

import re

from consumer_membership import errors
from tests.support import log_messages
from tests.support.documents import DOCS, section

ERRORS = DOCS / "reference" / "errors.md"


def test_page_of_log_messages_has_each_message_of_the_code_with_its_cause() -> None:
    """Each message has a row with a cause; `python -m tests.support.log_messages` updates the page."""
    assert log_messages.PAGE.read_text() == log_messages.rendered()
    assert [message for message, cause in log_messages.causes().items() if cause == "?"] == []


def test_log_messages_resolve_levels_texts_and_loggers() -> None:
    """The search resolves wrappers, texts in variables, and levels that depend on a condition."""
    found = set(log_messages.messages())
    membership, network = "consumer_membership.membership", "consumer_membership.network"
    transition = "Member ... with epoch ... transitioned from ... to ...: ..."
    assert found >= {
        (membership, "JoinGroup failed: ...", "WARNING"),
        (membership, "Lost previously assigned partitions ...", "WARNING"),
        (membership, "No id of group.instance.id.pool is free: ...", "WARNING"),
        (membership, transition, "DEBUG or INFO"),
        (network, "... succeeded after ... failures", "INFO"),
    }


def test_page_of_errors_has_each_exception_class() -> None:
    """Each public exception except the base class has a row in docs/reference/errors.md."""
    rows = re.findall(r"^\| `(\w+)` \|", section(ERRORS.read_text(), "Exception classes"), re.MULTILINE)
    classes = [
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.MembershipError) and found is not errors.MembershipError
    ]
    assert rows == classes
