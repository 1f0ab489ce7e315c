"""What is asked about a group from outside: no error becomes a success, and what was left out is an error of it."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition
from consumer_membership.wire import group_answers
from consumer_membership.wire.group_requests import MemberIdentity
from tests.wire.groups import both_forms, config_answer, fetch_answer_v7, fetch_answer_v9, leave_answer

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LEFT_OUT = -1

BY_ID, BY_INSTANCE = MemberIdentity(member_id="m"), MemberIdentity(instance_id="i")


def codes(answer: tuple[BrokerError | None, ...] | BrokerError) -> list[int]:
    """The error code of each member, 0 for none."""
    assert isinstance(answer, tuple)
    return [0 if error is None else error.code for error in answer]


def test_each_member_has_its_own_result_in_the_order_asked() -> None:
    """KIP-345: the broker may answer in any order."""
    answer = leave_answer(("", "i", 0), ("m", None, 25))
    assert codes(group_answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [25, 0]


def test_coordinator_may_complete_an_identity() -> None:
    """An answer about `m` with its instance id is about `m`, and one about `i` with its member id is about `i`."""
    answer = leave_answer(("m", "other", 0), ("x", "i", 82))
    assert codes(group_answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [0, 82]


def test_member_that_was_left_out_was_not_removed() -> None:
    """As far as anybody knows."""
    assert codes(group_answers.removals(leave_answer(("m", None, 0)), "g", [BY_ID, BY_INSTANCE])) == [0, LEFT_OUT]


@pytest.mark.parametrize(("code", "name"), [(16, "NOT_COORDINATOR"), (30, "GROUP_AUTHORIZATION_FAILED")])
def test_refused_request_removed_nobody(code: int, name: str) -> None:
    """The whole request's code counts, whatever the members' say."""
    refused = group_answers.removals(leave_answer(("m", None, 0), code=code), "g", [BY_ID])
    assert isinstance(refused, BrokerError)
    assert (refused.code, refused.name) == (code, name)


def test_configuration_of_a_group() -> None:
    """Values as the broker writes them; a key without value is absent."""
    answer = config_answer({"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": None})
    assert group_answers.group_config(answer, "g") == {"consumer.session.timeout.ms": "45000"}


def test_refused_configuration_is_an_error() -> None:
    """Never an empty configuration."""
    answer = config_answer({}, code=30, message="words")
    assert group_answers.group_config(answer, "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )
    left_out = group_answers.group_config(config_answer({}, group="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.code == LEFT_OUT


@both_forms
def test_everything_committed_with_each_partition_s_own_error(answer: Any) -> None:  # noqa: ANN401
    """A partition without an offset is absent, and one with an error does not hide the others."""
    found = group_answers.all_committed(answer({T0: (17, 0), T1: (-1, 0), U0: (-1, 29)}), "g")
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        U0: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
    }


def test_refused_offsets_are_an_error() -> None:
    """Never a group that committed nothing."""
    of_another = fetch_answer_v9({T0: (1, 0)}, group="other")
    for answer, code in ((fetch_answer_v7({}, 30), 30), (fetch_answer_v9({}, 30), 30), (of_another, LEFT_OUT)):
        refused = group_answers.all_committed(answer, "g")
        assert isinstance(refused, BrokerError)
        assert refused.code == code
