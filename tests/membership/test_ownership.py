"""Owned and target partitions, by topic id."""

from __future__ import annotations

import pytest

from consumer_membership.membership.ownership import Ownership
from consumer_membership.types import TopicIdPartition
from tests.membership.builders import A0, A1, A2, B0, NAMES, ORDERS, named


def owning(*partitions: TopicIdPartition, target: frozenset[TopicIdPartition] | None = None) -> Ownership:
    """Return an ownership with these partitions, assigned at epoch 3, and all topic names."""
    ownership = Ownership()
    ownership.resolve(NAMES)
    ownership.take_target(frozenset(partitions))
    ownership.finish(frozenset(partitions), 3, ownership.target_number)
    if target is not None:
        ownership.take_target(target)
    return ownership


def test_first_target_is_a_change_even_if_empty() -> None:
    """No assignment and an empty assignment are different."""
    ownership = Ownership()
    assert (ownership.take_target(frozenset()), ownership.take_target(frozenset())) == (True, False)


def test_difference_is_partitions_to_revoke_and_to_add() -> None:
    """Surplus partitions are owned but not in the target; missing ones are in the target but not owned."""
    ownership = owning(A0, A1, target=frozenset({A1, A2}))
    assert (ownership.surplus(), ownership.missing()) == ({A0}, {A2})


def test_partition_without_name_is_neither_surplus_nor_missing() -> None:
    """A partition whose topic name is unknown is neither surplus nor missing."""
    ownership = Ownership()
    ownership.resolve({ORDERS: "orders"})
    ownership.take_target(frozenset({A0, B0}))
    assert (ownership.missing(), ownership.surplus(), ownership.unresolved) == ({A0}, frozenset(), {B0.topic_id})


def test_settled_means_owned_equals_target_and_was_reached() -> None:
    """A target that changed and changed back is not settled until it is reached again."""
    ownership = owning(A0)
    assert ownership.is_settled
    ownership.take_target(frozenset({A0, A1}))
    ownership.take_target(frozenset({A0}))
    assert not ownership.is_settled


def test_each_finished_reconciliation_increments_the_statement_number() -> None:
    """Each finished reconciliation increments the statement's number, even if the partitions are equal."""
    ownership = owning(A0)
    before = ownership.version
    ownership.finish(frozenset(), 4, ownership.target_number)
    assert ownership.version == before + 1


def test_kept_partition_keeps_its_epoch() -> None:
    """A partition keeps the epoch at which it was assigned."""
    ownership = owning(A0, target=frozenset({A0, A1}))
    ownership.finish(frozenset({A1}), 5, ownership.target_number)
    assert ownership.owned == {A0: 3, A1: 5}


def test_names_of_released_topics_are_forgotten() -> None:
    """The name cache keeps only names of owned and target partitions."""
    assert owning(A0).names == {ORDERS: "orders"}


def test_end_of_a_membership_resets_everything_but_the_counters() -> None:
    """The counters keep growing, so that no number of the old membership equals one of the new membership."""
    ownership = owning(A0)
    statement, number = ownership.version, ownership.target_number
    ownership.forget()
    assert (ownership.owned, ownership.names, ownership.target, ownership.is_first) == ({}, {}, None, True)
    assert (ownership.version, ownership.target_number) == (statement, number)


@pytest.mark.parametrize(("dropped", "left"), [((A0,), {A1}), ((A0, A1), set()), ((A2,), {A0, A1})])
def test_dropped_partitions_are_not_owned(dropped: tuple[TopicIdPartition, ...], left: set[TopicIdPartition]) -> None:
    """Dropping a partition that is not owned changes nothing."""
    ownership = owning(A0, A1)
    ownership.drop(dropped)
    assert ownership.held == named(*left)


def test_topic_id_keeps_its_name() -> None:
    """M59: An owned partition is revoked under the name with which it was assigned, whatever Metadata reports later."""
    ownership = owning(A0)
    ownership.resolve({ORDERS: "renamed", B0.topic_id: ""})
    assert ownership.names == {ORDERS: "orders"}
