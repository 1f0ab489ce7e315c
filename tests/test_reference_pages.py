"""The reference page of errors agrees with the code."""

from __future__ import annotations

import re

from consumer_membership import errors
from tests.support.documents import DOCS, section

ERRORS = DOCS / "reference" / "errors.md"


def test_page_of_errors_has_each_exception_class() -> None:
    """Each public exception except the base class has a row in docs/reference/errors.md."""
    rows = re.findall(r"^\| `(\w+)` \|", section(ERRORS.read_text(), "Exception classes"), re.MULTILINE)
    classes = [
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.MembershipError) and found is not errors.MembershipError
    ]
    assert rows == classes
