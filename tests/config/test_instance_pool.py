"""`group.instance.id.pool`: the ids from which members claim one."""

from __future__ import annotations

import pytest

from tests.config.builders import accepted, refused


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ("orders-{0..3}", ("orders-0", "orders-1", "orders-2", "orders-3")),
        ("a-{08..10}-z", ("a-08-z", "a-09-z", "a-10-z")),
        ("r{1..2}-s{0..1}", ("r1-s0", "r1-s1", "r2-s0", "r2-s1")),
        ("one, two,x-{0..1}", ("one", "two", "x-0", "x-1")),
        (["one", "two-{0..1}"], ("one", "two-0", "two-1")),
    ],
)
def test_instance_pool_expands_ranges(given: object, ids: tuple[str, ...]) -> None:
    """A pool is a shell-like range, a comma-separated text or a list."""
    assert accepted(group_instance_id_pool=given).member_settings().instance_pool == ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "an id is empty"),
        ("a,,b", "an id is empty"),
        ([], "the pool is empty"),
        (7, "list of names"),
        (["a", 7], "list of names"),
        ("a-{3..1}", "is reversed"),
        ("a-{x}", "not a range"),
        ("a-{0..20000}", "more than 10000 ids"),
        ("a,b,a", "duplicate id 'a'"),
    ],
)
def test_invalid_instance_pool_is_rejected(given: object, message: str) -> None:
    """An invalid pool raises an error that names key, value and fix."""
    refusal = refused(group_instance_id_pool=given)
    assert (refusal.key, refusal.value) == ("group.instance.id.pool", given)
    assert message in str(refusal)
