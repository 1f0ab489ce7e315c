"""How the text of a value is read."""

from __future__ import annotations

import pytest

from consumer_membership.config import OffsetReset, SecurityProtocol
from consumer_membership.config.values import parse_endpoints
from tests.config.builders import accepted


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("TRUE", True), (1, True), ("t", True), ("0", False)])
def test_booleans_are_read_as_librdkafka_reads_them(given: object, meant: object) -> None:
    """Values go through str(), so True, "TRUE" and 1 are the same."""
    assert accepted(enable_auto_commit=given).enable_auto_commit is meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("smallest", OffsetReset.EARLIEST),
        ("EARLIEST", OffsetReset.EARLIEST),
        ("beginning", OffsetReset.EARLIEST),
        ("largest", OffsetReset.LATEST),
        ("latest", OffsetReset.LATEST),
        ("end", OffsetReset.LATEST),
        ("error", OffsetReset.ERROR),
    ],
)
def test_offset_reset_knows_all_words_of_librdkafka(given: str, meant: OffsetReset) -> None:
    """Old and new words mean the same three things."""
    assert accepted(auto_offset_reset=given).start_settings().reset is meant


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("a", (("a", 9092),)),
        ("PLAINTEXT://a:1, b:2,", (("a", 1), ("b", 2))),
        ("[::1]:5,10.0.0.1", (("::1", 5), ("10.0.0.1", 9092))),
        ("a:1/,PLAINTEXT://b:2/path/to,c/", (("a", 1), ("b", 2), ("c", 9092))),
        ("", ()),
    ],
)
def test_endpoints_are_read_as_librdkafka_reads_them(text: str, endpoints: object) -> None:
    """Protocol and port may be left out, an IPv6 address stands in brackets, a path says nothing."""
    assert parse_endpoints(text, SecurityProtocol.PLAINTEXT) == endpoints
