"""Responses about a group as values: no error becomes a success, and no missing entry becomes an empty result."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator import v3 as find_v3
from kio.schema.find_coordinator import v4 as find_v4
from kio.schema.find_coordinator.v4.response import Coordinator

from consumer_membership.membership.events import (
    CommitAnswered,
    CommitVerdict,
    HeartbeatAnswered,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.translation import answers
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicIdPartition, TopicPartition
from tests.support.kio_entities import as_struct
from tests.support.scripted_broker import ZERO
from tests.wire.frames import heartbeat_answer
from tests.wire.groups import both_forms, commit_answer, config_answer, fetch_answer_v7, fetch_answer_v9, leave_answer

A, B = UUID(int=0xA), UUID(int=0xB)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


# ---- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        pytest.param(None, None, id="unchanged"),
        pytest.param({}, frozenset(), id="nothing"),
        pytest.param(
            {B: (1, 0, 1), A: (0,)},
            frozenset({TopicIdPartition(A, 0), TopicIdPartition(B, 0), TopicIdPartition(B, 1)}),
            id="partitions, one of them twice",
        ),
    ],
)
def test_heartbeat_response_keeps_null_and_empty_assignment_apart(
    assigned: dict[UUID, tuple[int, ...]] | None, expected: frozenset[Any] | None
) -> None:
    """A null assignment means "unchanged"; an empty assignment means "release all partitions"."""
    entity = as_struct(heartbeat_answer(epoch=6, assigned=assigned))
    assert answers.consumer_group_heartbeat(entity, 3, "g") == HeartbeatAnswered(
        request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=expected
    )


def test_heartbeat_response_with_error_code_is_rejection() -> None:
    """M11: A response with an error code is a rejection, whatever its epoch and assignment are."""
    entity = as_struct(heartbeat_answer(epoch=9, code=110, message="fenced", assigned={A: (0,)}))
    assert answers.consumer_group_heartbeat(entity, 3, "g") == HeartbeatRejected(
        request_id=3,
        verdict=Verdict.REJOIN,
        error=BrokerError(code=110, name="FENCED_MEMBER_EPOCH", message="fenced"),
    )


@pytest.mark.parametrize(
    ("message", "holder"),
    [
        (
            "Static member m with instance id i cannot join the group because the instance id is owned by o-1 member.",
            "o-1",
        ),
        ("Some other words.", None),
        (None, None),
    ],
)
def test_unreleased_instance_id_error_provides_holder_from_message(message: str | None, holder: str | None) -> None:
    """UNRELEASED_INSTANCE_ID names the member that holds the id, only in its message (seen on 4.3.1)."""
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=111, message=message), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.UNRELEASED, holder)


def test_other_errors_provide_no_holder() -> None:
    """The holder is parsed from UNRELEASED_INSTANCE_ID only, because other errors may use similar text."""
    text = "the instance id is owned by o member."
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=82, message=text), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.FATAL, None)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commit_response_has_result_for_each_partition() -> None:
    """The verdict applies to the whole commit; each partition has its own error or None."""
    answer = answers.offset_commit(commit_answer({T0: 0, T1: 29, U0: 3}), 4, "g", [T0, T1, U0])
    assert answer == CommitAnswered(
        commit_id=4,
        verdict=CommitVerdict.RETRY_BRIEFLY,
        errors={
            T0: None,
            T1: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
            U0: BrokerError(
                code=3, name="UNKNOWN_TOPIC_OR_PARTITION", message=f"{U0.topic} [{U0.partition}] does not exist"
            ),
        },
    )


def test_commit_response_without_partition_reports_error_for_it() -> None:
    """A partition that the broker leaves out counts as not committed."""
    answer = answers.offset_commit(commit_answer({T0: 0}), 4, "g", [T0, T1])
    assert answer.errors[T0] is None
    assert answer.errors[T1] == BrokerError(
        code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's response has no entry for this partition"
    )


# ---- committed offsets -----------------------------------------------------------------------------------------------


@both_forms
def test_offset_fetch_returns_none_for_offset_minus_one(answer: Any) -> None:
    """An offset of -1 means that no offset is committed; 0 is a valid offset."""
    fetched = answers.offset_fetch(answer({T0: (17, 0), T1: (-1, 0), U0: (0, 0)}), "g", [T0, T1, U0])
    assert fetched == {T0: OffsetAndMetadata(offset=17, leader_epoch=3), T1: None, U0: OffsetAndMetadata(offset=0)}


@both_forms
def test_offset_fetch_by_partition_returns_offset_none_or_error(answer: Any) -> None:
    """Each partition has an offset, None or its own error; a missing partition has an error."""
    entity = answer({T0: (17, 0), T1: (-1, 29)})
    found = answers.offset_fetch_by_partition(entity, "g", [T0, T1, U0])
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        T1: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
        U0: BrokerError(
            code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's response has no entry for this partition"
        ),
    }
    assert answers.offset_fetch_by_partition(answer({}, 30), "g", [T0]) == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


@both_forms
@pytest.mark.parametrize("code", [14, 16, 25, 88, 113])
def test_offset_fetch_with_any_error_returns_error(answer: Any, code: int) -> None:
    """A group error, a partition error or a missing partition fails the whole fetch."""
    name = ErrorCode(code).name.upper()
    assert answers.offset_fetch(answer({}, code), "g", [T0]) == BrokerError(code=code, name=name)
    assert answers.offset_fetch(answer({T0: (17, 0), T1: (-1, code)}), "g", [T0, T1]) == BrokerError(
        code=code, name=name, message="t [1]"
    )
    left_out = answers.offset_fetch(answer({T0: (17, 0)}), "g", [T0, T1])
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1


def test_offset_fetch_of_other_group_returns_error() -> None:
    """The batch must contain the requested group."""
    left_out = answers.offset_fetch(fetch_answer_v9({T0: (17, 0)}, group="other"), "g", [T0])
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1


# ---- the coordinator -------------------------------------------------------------------------------------------------


def find_answer_v3(code: int, message: str | None = None) -> find_v3.FindCoordinatorResponse:
    """Build a version 3 response."""
    return find_v3.FindCoordinatorResponse(
        throttle_time=ZERO, error_code=ErrorCode(code), error_message=message, node_id=2, host="h", port=9092
    )


def find_answer_v4(code: int, message: str | None = None, key: str = "g") -> find_v4.FindCoordinatorResponse:
    """Build a version 4 response."""
    found = Coordinator(key=key, error_code=ErrorCode(code), error_message=message, node_id=2, host="h", port=9092)
    return find_v4.FindCoordinatorResponse(throttle_time=ZERO, coordinators=(found,))


@pytest.mark.parametrize("answer", [find_answer_v3, find_answer_v4])
def test_find_coordinator_returns_address_or_error(answer: Any) -> None:
    """Rules 2.5: The result is an address or the broker's error; an authorization error names the group."""
    assert answers.find_coordinator(answer(0), "g") == BrokerAddress(node_id=2, host="h", port=9092)
    assert answers.find_coordinator(answer(15, "Not yet."), "g") == BrokerError(
        code=15, name="COORDINATOR_NOT_AVAILABLE", message="Not yet."
    )
    assert answers.find_coordinator(answer(30), "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


def test_find_coordinator_of_other_group_returns_retriable_error() -> None:
    """The batch must contain the requested group; the caller may retry."""
    left_out = answers.find_coordinator(find_answer_v4(0, key="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.name == "COORDINATOR_NOT_AVAILABLE"


# ---- responses to any client ----------------------------------------------------------------------------------------


LEFT_OUT = -1

BY_ID, BY_INSTANCE = MemberIdentity(member_id="m"), MemberIdentity(instance_id="i")


def codes(answer: tuple[BrokerError | None, ...] | BrokerError) -> list[int]:
    """Return the error code of each member, 0 for none."""
    assert isinstance(answer, tuple)
    return [0 if error is None else error.code for error in answer]


def test_removals_returns_results_in_requested_order() -> None:
    """KIP-345: The broker may list the members in any order."""
    answer = leave_answer(("", "i", 0), ("m", None, 25))
    assert codes(answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [25, 0]


def test_removals_matches_member_by_either_id() -> None:
    """A result that adds the other id of a member still belongs to that member."""
    answer = leave_answer(("m", "other", 0), ("x", "i", 82))
    assert codes(answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [0, 82]


def test_removals_returns_error_for_missing_member() -> None:
    """A member that the response leaves out counts as not removed."""
    assert codes(answers.removals(leave_answer(("m", None, 0)), "g", [BY_ID, BY_INSTANCE])) == [0, LEFT_OUT]


@pytest.mark.parametrize(("code", "name"), [(16, "NOT_COORDINATOR"), (30, "GROUP_AUTHORIZATION_FAILED")])
def test_removals_with_request_error_returns_error(code: int, name: str) -> None:
    """The error code of the request overrides the members' codes."""
    refused = answers.removals(leave_answer(("m", None, 0), code=code), "g", [BY_ID])
    assert isinstance(refused, BrokerError)
    assert (refused.code, refused.name) == (code, name)


def test_group_config_omits_keys_without_value() -> None:
    """Values stay as the broker sends them; a key without a value is absent."""
    answer = config_answer({"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": None})
    assert answers.group_config(answer, "g") == {"consumer.session.timeout.ms": "45000"}


def test_group_config_with_error_is_never_empty() -> None:
    """A rejected or missing configuration is an error, never an empty configuration."""
    answer = config_answer({}, code=30, message="words")
    assert answers.group_config(answer, "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )
    left_out = answers.group_config(config_answer({}, group="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.code == LEFT_OUT


@both_forms
def test_all_committed_keeps_error_of_each_partition(answer: Any) -> None:
    """A partition without an offset is absent, and a partition with an error does not hide the others."""
    found = answers.all_committed(answer({T0: (17, 0), T1: (-1, 0), U0: (-1, 29)}), "g")
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        U0: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
    }


def test_all_committed_with_error_is_never_empty() -> None:
    """A rejected request is an error, never a group without committed offsets."""
    of_another = fetch_answer_v9({T0: (1, 0)}, group="other")
    for answer, code in ((fetch_answer_v7({}, 30), 30), (fetch_answer_v9({}, 30), 30), (of_another, LEFT_OUT)):
        refused = answers.all_committed(answer, "g")
        assert isinstance(refused, BrokerError)
        assert refused.code == code
