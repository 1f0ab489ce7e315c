"""A user's own assignor: what it receives, and how its result is checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import Assignor, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.errors import AssignmentError
from consumer_membership.types import TopicPartition
from tests.assignors.groups import golden, member, partitions

Subscriptions = Mapping[str, MemberSubscription]
Result = Mapping[str, Collection[TopicPartition]]


class Own:
    """A custom assignor with a fixed result."""

    name = "own"

    def __init__(self, rule: Callable[[Topics, Subscriptions], Result], *protocols: RebalanceProtocol) -> None:
        self.protocols = frozenset(protocols or {RebalanceProtocol.EAGER})
        self._rule = rule

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> None:
        """Return no user data."""
        del topics, owned, generation

    def assign(self, topics: Topics, subscriptions: Subscriptions) -> Result:
        """Return the result of the rule."""
        return self._rule(topics, subscriptions)


COOPERATIVE = RebalanceProtocol.COOPERATIVE


def giving(*protocols: RebalanceProtocol, **words: str) -> Own:
    """Return an assignor with this result."""
    return Own(lambda _topics, _subscriptions: {name: partitions(some) for name, some in words.items()}, *protocols)


def test_assignor_needs_no_base_class() -> None:
    """A class with the right methods is an assignor."""
    assert isinstance(giving(), Assignor)


def test_complete_result_is_sent_with_empty_lists_for_omitted_members() -> None:
    """Each member of the group receives a list, because Java's member fails without one."""
    checked = assign_checked(giving(a="t:0,1"), Topics(partitions={"t": 2}), {"a": member("t"), "b": member("t")})
    assert checked.assignments == {"a": partitions("t:0,1"), "b": frozenset()}
    assert checked.notes == ()


def test_generator_in_a_result_is_read_once() -> None:
    """The partitions of a member may be a generator."""
    own = Own(lambda _topics, _subscriptions: {"a": (p for p in [TopicPartition("t", 0)])})  # type: ignore[dict-item]  # as in users' code
    assert assign_checked(own, Topics(partitions={"t": 1}), {"a": member("t")}).assignments == {"a": partitions("t:0")}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "it returned None (of type NoneType)"),
        ([("a", [("t", 0)])], "it returned [('a', [('t', 0)])] (of type list)"),
        ("a", "it returned 'a' (of type str)"),
        ({1: [("t", 0)]}, "it gives partitions to 1 (of type int), which is not a member id"),
        ({b"a": [("t", 0)]}, "it gives partitions to b'a' (of type bytes), which is not a member id"),
        ({"a": None}, "it gives None (of type NoneType) to a"),
        ({"a": "t"}, "it gives 't' (of type str) to a"),
        ({"a": 5}, "it gives 5 (of type int) to a"),
        ({"a": ["t"]}, "it gives 't' (of type str) to a, which is not a partition"),
        ({"a": [0]}, "it gives 0 (of type int) to a, which is not a partition"),
        ({"a": [("t", "0")]}, "it gives ('t', '0') (of type tuple) to a, which is not a partition"),
        ({"a": [(0, "t")]}, "it gives (0, 't') (of type tuple) to a, which is not a partition"),
        ({"a": [("t", 0, 0)]}, "it gives ('t', 0, 0) (of type tuple) to a, which is not a partition"),
        ({"a": [("t", 0.0)]}, "which is not a partition"),
        ({"a": [("t", True)]}, "which is not a partition"),
        ({"a": [(b"t", 0)]}, "which is not a partition"),
        ({"a": [None]}, "which is not a partition"),
        ({"a": [TopicPartition("t\ud800", 0)]}, "which does not exist"),
        ({"a\ud800": [("t", 0)]}, "partitions are given to 'a\\ud800', which is not a member of the group"),
        ({"a": [("t", 2**40)]}, "which does not exist"),
        ({"a": [("t", -1)]}, "which does not exist"),
    ],
)
def test_result_of_a_wrong_type_raises_an_error_that_names_the_value(result: object, words: str) -> None:
    """The error names the wrong value and its type, and no internal error is raised."""
    own = Own(lambda _topics, _subscriptions: result)  # type: ignore[arg-type, return-value]  # wrong on purpose
    with pytest.raises(AssignmentError) as caught:
        assign_checked(own, Topics(partitions={"t": 1}), {"a": member("t")})
    assert words in str(caught.value)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
        max_leaves=6,
    )
)
def test_any_result_is_sent_or_raises_an_assignment_error(result: object) -> None:
    """Any value that a user's assignor returns is sent or raises AssignmentError."""
    own = Own(lambda _topics, _subscriptions: result)  # type: ignore[arg-type, return-value]  # wrong on purpose
    with suppress(AssignmentError):
        assert assign_checked(own, Topics(partitions={}), {"a": member("t")}).assignments == {"a": frozenset()}


def test_integers_of_other_types_are_accepted() -> None:
    """Partition numbers may be of any integer type, for example numpy's."""

    class Number:
        def __index__(self) -> int:
            return 0

    own = Own(lambda _topics, _subscriptions: {"a": [["t", Number()]]})  # type: ignore[list-item]
    assert assign_checked(own, Topics(partitions={"t": 1}), {"a": member("t")}).assignments == {"a": partitions("t:0")}


def test_incomplete_result_raises() -> None:
    """The error names the partition that is not assigned."""
    with pytest.raises(AssignmentError, match="no member is given t-1"):
        assign_checked(giving(a="t:0"), Topics(partitions={"t": 2}), {"a": member("t")})


def test_assignor_receives_the_valid_claims_and_the_log_the_others() -> None:
    """KIP-792: The assignor does not see a stale claim; a log message names it."""
    seen = {}

    def rule(_topics: Topics, subscriptions: Subscriptions) -> Result:
        seen.update({name: (s.owned, s.generation) for name, s in subscriptions.items()})
        return {"b": partitions("t:0")}

    claims = {"a": member("t", "t:0", 4), "b": member("t", "t:0", 5)}
    checked = assign_checked(Own(rule), Topics(partitions={"t": 1}), claims)
    assert seen == {"a": (frozenset(), 4), "b": (partitions("t:0"), 5)}
    assert len(checked.notes) == 1
    assert "t-0" in checked.notes[0]


def test_cooperative_result_must_omit_moved_partitions() -> None:
    """A cooperative result must omit a partition that moves; an eager result may assign it to any member."""
    claims = {"a": member("t", "t:0", 4), "b": member("t")}
    topics = Topics(partitions={"t": 1})
    assert assign_checked(giving(b="t:0"), topics, claims).assignments["b"] == partitions("t:0")
    assert assign_checked(giving(COOPERATIVE), topics, claims).assignments["b"] == frozenset()
    with pytest.raises(AssignmentError, match="t-0 is given to b while a still claims it"):
        assign_checked(giving(COOPERATIVE, b="t:0"), topics, claims)


def test_contested_partition_is_withheld_from_the_result() -> None:
    """The assignor sees the partition as unowned and assigns it. No member receives it before both have revoked it."""
    claims = {"a": member("t", "t:0", 4), "b": member("t", "t:0", 4)}
    checked = assign_checked(giving(COOPERATIVE, a="t:0"), Topics(partitions={"t": 1}), claims)
    assert checked.assignments == {"a": frozenset(), "b": frozenset()}


@pytest.mark.parametrize("assignor", BUILT_IN)
def test_results_of_built_in_assignors_pass_the_check(assignor: str) -> None:
    """The results for all golden groups pass, also with old clients and contradicted claims."""
    for group in golden():
        subscriptions = group.subscriptions(assignor)
        checked = assign_checked(BUILT_IN[assignor], group.topics, subscriptions)
        assert checked.assignments.keys() == subscriptions.keys()
