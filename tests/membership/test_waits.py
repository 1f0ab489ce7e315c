"""The `waits_for` values: programs and operators may rely on a closed, documented set."""

from __future__ import annotations

import json
import re

import pytest

from consumer_membership import PartitionWaitsFor, WaitsFor
from consumer_membership.membership.waits import described
from tests.support.documents import DOCS, section, tables

PAGE = DOCS / "reference" / "waits-for.md"


def values_under(heading: str) -> list[str]:
    """Return the first column of the section's table."""
    (table,) = tables(section(PAGE.read_text(), heading))
    return [re.sub(r"^\| `([^`]+)` \|.*$", r"\1", row) for row in table[2:]]


@pytest.mark.parametrize(
    ("heading", "values"),
    [("Values of a member", WaitsFor), ("Values of a partition", PartitionWaitsFor)],
    ids=["member", "partition"],
)
def test_page_documents_each_value(heading: str, values: type[WaitsFor | PartitionWaitsFor]) -> None:
    """docs/reference/waits-for.md has one row for each value and no other rows."""
    assert sorted(values_under(heading)) == sorted(str(one) for one in values)


def test_value_is_plain_text_in_json_and_in_messages() -> None:
    """A value is a string, so that it can be printed, compared and serialized."""
    value = WaitsFor.COORDINATOR
    assert (value == "group coordinator", f"{value}", json.dumps(value)) == (
        True,
        "group coordinator",
        '"group coordinator"',
    )


def test_text_appends_the_detail() -> None:
    """The one-line form is the value, or the value and its detail."""
    assert (described(None, ""), described(WaitsFor.ON_LOST, ""), described(WaitsFor.PARTITIONS, "none")) == (
        None,
        "on_lost",
        "partitions: none",
    )
