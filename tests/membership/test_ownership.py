"""Owned and target, by topic id."""

from __future__ import annotations

import pytest

from consumer_membership.membership.ownership import Ownership
from consumer_membership.types import TopicIdPartition
from tests.membership.builders import A0, A1, A2, B0, NAMES, ORDERS, named


def owning(*partitions: TopicIdPartition, target: frozenset[TopicIdPartition] | None = None) -> Ownership:
    """These are owned, taken at epoch 3; all names are known."""
    ownership = Ownership()
    ownership.resolve(NAMES)
    ownership.take_target(frozenset(partitions))
    ownership.finish(frozenset(partitions), 3, ownership.target_number)
    if target is not None:
        ownership.take_target(target)
    return ownership


def test_first_target_is_a_change_although_it_is_empty() -> None:
    """Nothing assigned and an empty assignment are two things."""
    ownership = Ownership()
    assert (ownership.take_target(frozenset()), ownership.take_target(frozenset())) == (True, False)


def test_difference_is_what_to_revoke_and_what_to_add() -> None:
    """Surplus is owned and not wanted, missing is wanted and not owned."""
    ownership = owning(A0, A1, target=frozenset({A1, A2}))
    assert (ownership.surplus(), ownership.missing()) == ({A0}, {A2})


def test_partition_without_name_is_neither_surplus_nor_missing() -> None:
    """It waits for its name."""
    ownership = Ownership()
    ownership.resolve({ORDERS: "orders"})
    ownership.take_target(frozenset({A0, B0}))
    assert (ownership.missing(), ownership.surplus(), ownership.unresolved) == ({A0}, frozenset(), {B0.topic_id})


def test_settled_means_owned_equals_target_and_was_reached() -> None:
    """A target that went away and came back is not settled before it was reached again."""
    ownership = owning(A0)
    assert ownership.is_settled
    ownership.take_target(frozenset({A0, A1}))
    ownership.take_target(frozenset({A0}))
    assert not ownership.is_settled


def test_each_finished_reconciliation_makes_a_statement() -> None:
    """The statement's number grows although the partitions are equal."""
    ownership = owning(A0)
    before = ownership.version
    ownership.finish(frozenset(), 4, ownership.target_number)
    assert ownership.version == before + 1


def test_kept_partition_keeps_its_epoch() -> None:
    """A partition is owned since the epoch at which it was taken."""
    ownership = owning(A0, target=frozenset({A0, A1}))
    ownership.finish(frozenset({A1}), 5, ownership.target_number)
    assert ownership.owned == {A0: 3, A1: 5}


def test_names_of_what_is_neither_owned_nor_wanted_are_forgotten() -> None:
    """The memory of names stays as small as the assignment."""
    assert owning(A0).names == {ORDERS: "orders"}


def test_end_of_a_membership_forgets_everything_but_the_counts() -> None:
    """The counts grow on, so that nothing of the old membership equals something of the new."""
    ownership = owning(A0)
    statement, number = ownership.version, ownership.target_number
    ownership.forget()
    assert (ownership.owned, ownership.names, ownership.target, ownership.is_first) == ({}, {}, None, True)
    assert (ownership.version, ownership.target_number) == (statement, number)


@pytest.mark.parametrize(("dropped", "left"), [((A0,), {A1}), ((A0, A1), set()), ((A2,), {A0, A1})])
def test_dropped_partitions_are_not_held(dropped: tuple[TopicIdPartition, ...], left: set[TopicIdPartition]) -> None:
    """To drop what is not owned changes nothing."""
    ownership = owning(A0, A1)
    ownership.drop(dropped)
    assert ownership.held == named(*left)


def test_topic_id_keeps_its_name() -> None:
    """M59: what is owned is revoked by the name that it was assigned with, whatever Metadata says later."""
    ownership = owning(A0)
    ownership.resolve({ORDERS: "renamed", B0.topic_id: ""})
    assert ownership.names == {ORDERS: "orders"}
