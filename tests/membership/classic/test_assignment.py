"""The generation that a classic member joined, and the assignment that it applied."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from consumer_membership.assignors.assignor import NO_GENERATION, Assigned, Assignor
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignment import ClassicAssignment
from consumer_membership.membership.event_context import EventContext
from consumer_membership.types import GroupProtocol
from tests.membership.classic.scene import A0, A1, A2, Plan


@dataclass(frozen=True)
class Observing(Plan):
    """An assignor that receives assignments."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        raise NotImplementedError


def member(*assignors: Assignor, is_static: bool = True) -> tuple[ClassicAssignment, EventContext]:
    """Return the assignment of a new member, and its output."""
    event = EventContext()
    return ClassicAssignment(event, assignors or (Plan(),), is_static=is_static), event


def answer(generation: int, leader: str = "leader", assignor: str = "plan") -> ex.JoinAnswered:
    """Return a JoinGroup response; without a leader, it comes from a group of the consumer protocol."""
    return ex.JoinAnswered(request_id=1, generation=generation, member_id="m", leader_id=leader, protocol_name=assignor)


def synced() -> ex.SyncAnswered:
    """Return a SyncGroup response with one partition."""
    return ex.SyncAnswered(request_id=2, assignment=frozenset({A0}), user_data=b"data")


def assigned(*, is_static: bool = True) -> ClassicAssignment:
    """Return the assignment of a member that applied A0 and A1 in generation 4."""
    assignment, _ = member(is_static=is_static)
    assignment.joined(answer(4))
    assignment.apply(frozenset({A0, A1}), revokes=False)
    return assignment


def test_joined_generation_is_written_as_soon_as_its_assignment_is_applied() -> None:
    """A member without a generation has not joined; a joined generation counts as written with its assignment."""
    assignment, _ = member()
    seen = [(assignment.is_joined, assignment.is_written)]
    assignment.joined(answer(4))
    seen.append((assignment.is_joined, assignment.is_written))
    assignment.apply(frozenset(), revokes=False)
    seen.append((assignment.is_joined, assignment.is_written))
    assert seen == [(False, False), (True, False), (True, True)]


def test_assignment_stays_with_its_generation_until_the_next_one_is_applied() -> None:
    """KIP-792: a JoinGroup response does not renew the generation of the assignment."""
    assignment = assigned()
    assignment.joined(answer(5))
    assert (assignment.joined_generation, assignment.assigned_generation) == (5, 4)
    assert assignment.partitions == {A0, A1}
    assignment.apply(frozenset({A1, A2}), revokes=True)
    assert (assignment.assigned_generation, assignment.partitions) == (5, {A1, A2})
    assert (assignment.unchanged, assignment.revokes) == ({A1}, True)


def test_forgotten_assignment_leaves_no_generation_and_no_partitions() -> None:
    """A member outside its group has no generation, and its next assignment retains no partition of the former one."""
    assignment = assigned()
    assignment.forget()
    assert (assignment.joined_generation, assignment.assigned_generation) == (NO_GENERATION, NO_GENERATION)
    assert (assignment.is_joined, assignment.is_written, assignment.partitions) == (False, False, frozenset())
    assignment.joined(answer(9))
    assignment.apply(frozenset({A0}), revokes=False)
    assert assignment.unchanged == frozenset()


def test_join_response_has_the_protocol_and_the_assignor_of_the_group() -> None:
    """A response without a leader comes from a group of the consumer protocol."""
    assignment, _ = member()
    assignment.joined(answer(1, leader="", assignor="other"))
    assert (assignment.group_protocol, assignment.assignor) == (GroupProtocol.CONSUMER, "other")


@pytest.mark.parametrize(
    ("generation", "leader", "is_static", "expected"),
    [
        pytest.param(6, "leader", True, True, id="a static member"),
        pytest.param(5, "leader", True, False, id="the next generation"),
        pytest.param(6, "leader", False, False, id="a dynamic member, which would have been removed"),
        pytest.param(6, "", True, False, id="a group of the consumer protocol"),
    ],
)
def test_static_member_of_a_classic_group_may_have_missed_a_generation(
    generation: int, leader: str, *, is_static: bool, expected: bool
) -> None:
    """A static member of generation 4 that next joins generation 6 was not in generation 5."""
    missed = assigned(is_static=is_static).missed_generation(answer(generation, leader))
    assert (missed is not None) is expected


def test_first_generation_of_a_member_is_never_a_gap() -> None:
    """A member without a generation owns no partitions that other members may have owned meanwhile."""
    assignment, _ = member()
    assert not assignment.missed_generation(answer(6))


def test_static_member_returns_from_an_unwritten_generation_to_the_assigned_one() -> None:
    """The joined generation is forgotten once, and the assignment stays."""
    assignment = assigned()
    assignment.joined(answer(5))
    assert [assignment.forget_unwritten(), assignment.forget_unwritten()] == [True, False]
    assert (assignment.joined_generation, assignment.is_written, assignment.partitions) == (4, True, {A0, A1})


def test_dynamic_member_keeps_an_unwritten_generation() -> None:
    """The same coordinator expects this generation; a new coordinator removes the member anyway."""
    assignment = assigned(is_static=False)
    assignment.joined(answer(5))
    assert (assignment.forget_unwritten(), assignment.joined_generation) == (False, 5)


def test_first_unwritten_generation_is_kept() -> None:
    """A member without an assignment has no generation to return to."""
    assignment, _ = member()
    assignment.joined(answer(5))
    assert (assignment.forget_unwritten(), assignment.joined_generation) == (False, 5)


def test_assignor_with_on_assignment_receives_the_assignment_before_it_is_applied() -> None:
    """The assignment is returned once, when the notification of the assignor has ended."""
    assignment, event = member(Plan(), Observing(name="observing"))
    assignment.joined(answer(4, assignor="plan"))
    assert not assignment.has_observer
    assignment.joined(answer(5, assignor="observing"))
    assert assignment.has_observer
    assignment.notify_assignor(synced())
    (notice,) = event.effects()
    assert isinstance(notice, ex.NotifyAssignor)
    assert (notice.generation, notice.assignor, notice.assignment) == (
        5,
        "observing",
        Assigned(partitions=frozenset({A0}), user_data=b"data"),
    )
    assert (assignment.is_notifying, assignment.partitions) == (True, frozenset())
    assert assignment.notified(notice.request_id + 1) is None
    assert [assignment.notified(notice.request_id) for _ in range(2)] == [{A0}, None]
    assert not assignment.is_notifying


def test_next_generation_drops_an_assignment_of_which_the_assignor_is_notified() -> None:
    """A newer assignment follows, so the older one is not applied."""
    assignment, event = member(Observing())
    assignment.joined(answer(4))
    assignment.notify_assignor(synced())
    (notice,) = event.effects()
    assignment.joined(answer(5))
    assert isinstance(notice, ex.NotifyAssignor)
    assert (assignment.is_notifying, assignment.notified(notice.request_id)) == (False, None)
