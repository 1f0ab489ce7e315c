# ruff: noqa: S311  # random values, not secrets
"""This package's tables against kio, an independent source of Kafka's messages: equal bytes in every version."""

from importlib import import_module
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema import errors

from consumer_membership.wire import messages
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.schema import Table, layout_of
from consumer_membership.wire.serial import MalformedError, reader, writer
from consumer_membership.wire.versions import SUPPORTED
from tests.support.kio_entities import as_struct, as_values, some_entity, written

#: Every message in every supported version with kio's class, and the two structures of a classic member.
PAIRS: list[tuple[Table, int, Any]] = [
    (table, version, getattr(import_module(f"kio.schema.{api.name.lower()}.v{version}"), table.name))
    for api, tables in messages.LAYOUTS.items()
    for version in SUPPORTED[api]
    for table in tables
] + [
    (table, version, getattr(import_module(f"kio.schema.{name}.v{version}"), table.name))
    for table, name in (
        (messages.SUBSCRIPTION, "consumer_protocol_subscription"),
        (messages.ASSIGNMENT, "consumer_protocol_assignment"),
    )
    for version in range(4)
]
#: The pairs with fields; the first requests of ApiVersions and ListGroups have no fields.
LONGER = [pair for pair in PAIRS if layout_of(*pair[:2]).fields]


def ids(pairs: list[tuple[Table, int, Any]]) -> list[str]:
    """Return test ids."""
    return [f"{table.name}-v{version}" for table, version, _ in pairs]


each_message = pytest.mark.parametrize(("table", "version", "theirs"), PAIRS, ids=ids(PAIRS))
seeds = st.integers(min_value=0, max_value=2**32)
some_examples = settings(max_examples=25)


@each_message
@some_examples
@given(seed=seeds)
def test_codec_equals_kio(table: Table, version: int, theirs: Any, seed: int) -> None:
    """The reader reads kio's bytes at any offset, and the writer writes equal bytes."""
    entity = some_entity(theirs, Random(seed))
    frame, layout, out = written(entity), layout_of(table, version), bytearray()
    assert reader(layout)(b"ahead" + frame + b"behind", 5) == (as_struct(entity), len(frame) + 5)
    writer(layout)(out, as_values(entity))
    assert out == frame


@pytest.mark.parametrize(("table", "version", "theirs"), LONGER, ids=ids(LONGER))
@some_examples
@given(seed=seeds)
def test_reader_rejects_truncated_message(table: Table, version: int, theirs: Any, seed: int) -> None:
    """A message without its last byte is malformed, with any last field."""
    frame = written(some_entity(theirs, Random(seed)))
    with pytest.raises(MalformedError):
        reader(layout_of(table, version))(frame[:-1], 0)


@pytest.mark.parametrize(("table", "version"), [pair[:2] for pair in PAIRS], ids=ids(PAIRS))
@settings(max_examples=50)
@given(frame=st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 127, 128, 255]), max_size=80).map(bytes))
def test_reader_of_any_bytes_returns_or_raises_malformed_error(table: Table, version: int, frame: bytes) -> None:
    """Invalid bytes raise only MalformedError."""
    try:
        _, end = reader(layout_of(table, version))(frame, 0)
    except MalformedError:
        return
    assert end <= len(frame)


def test_error_codes_equal_kio() -> None:
    """Name, number and the retriable flag are equal."""
    assert {(code.name, code.value, code.retriable) for code in ErrorCode} == {
        (code.name, code.value, code.retriable) for code in errors.ErrorCode
    }
