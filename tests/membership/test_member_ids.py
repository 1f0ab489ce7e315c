"""Member ids carry the creation time of their consumer."""

from __future__ import annotations

import base64
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.membership.member_ids import creation_time, new_member_id

TIMES = st.integers(min_value=0, max_value=2**48 - 1)
RANDOMNESS = st.binary(min_size=10, max_size=10)


def uuid_of(member_id: str) -> uuid.UUID:
    """Return the UUID in this id."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(member_id + "=="))


@given(TIMES, RANDOMNESS)
def test_id_is_a_uuid_of_version_7_with_the_creation_time(created_ms: int, randomness: bytes) -> None:
    """RFC 9562, section 5.7: 48 bits of time, the version, and at least 74 random bits."""
    member_id = new_member_id(created_ms, randomness)
    found = uuid_of(member_id)
    assert (len(member_id), found.version, found.variant) == (22, 7, uuid.RFC_4122)
    assert creation_time(member_id) == created_ms == found.int >> 80


@given(TIMES, RANDOMNESS, RANDOMNESS)
def test_ids_of_one_consumer_differ(created_ms: int, one: bytes, other: bytes) -> None:
    """All bits but those of version and variant are random."""
    mask = int.from_bytes(b"\x0f\xff\x3f" + b"\xff" * 7, "big")
    are_equal = int.from_bytes(one, "big") & mask == int.from_bytes(other, "big") & mask
    assert (new_member_id(created_ms, one) == new_member_id(created_ms, other)) == are_equal


@given(st.uuids(version=4))
def test_random_uuid_of_another_client_has_no_time(random_id: uuid.UUID) -> None:
    """Ids of librdkafka and Java (KIP-1082)."""
    assert creation_time(base64.urlsafe_b64encode(random_id.bytes).decode().rstrip("=")) is None


@pytest.mark.parametrize("member_id", ["", "i1-9b1deb4d-3b7d-4bad", "member-1", "é" * 22, "+" * 22, "=" * 22])
def test_other_id_has_no_time(member_id: str) -> None:
    """Brokers create the ids of classic members, and other clients may use any text."""
    assert creation_time(member_id) is None
