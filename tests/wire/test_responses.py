"""Answers about a group as facts: no error becomes a success, and nothing that was left out becomes "nothing"."""

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
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire import responses
from tests.support.scripted_broker import ZERO
from tests.wire.frames import heartbeat_answer
from tests.wire.groups import both_forms, commit_answer, fetch_answer_v9

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
def test_heartbeat_success(assigned: dict[UUID, tuple[int, ...]] | None, expected: frozenset[Any] | None) -> None:
    """Null is "unchanged", an empty assignment is "give up everything": the difference is kept."""
    entity = heartbeat_answer(epoch=6, assigned=assigned)
    assert responses.consumer_group_heartbeat(entity, 3, "g") == HeartbeatAnswered(
        request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=expected
    )


def test_error_answer_is_never_a_success() -> None:
    """M11: with an error code the epoch and the assignment in the answer do not count."""
    entity = heartbeat_answer(epoch=9, code=110, message="fenced", assigned={A: (0,)})
    assert responses.consumer_group_heartbeat(entity, 3, "g") == HeartbeatRejected(
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
def test_holder_of_an_instance_id_is_taken_from_the_broker_s_words(message: str | None, holder: str | None) -> None:
    """UNRELEASED_INSTANCE_ID names the member that holds the id, in its text only (seen on 4.3.1)."""
    answer = responses.consumer_group_heartbeat(heartbeat_answer(code=111, message=message), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.UNRELEASED, holder)


def test_holder_is_looked_for_in_that_error_only() -> None:
    """Other errors may use similar words."""
    text = "the instance id is owned by o member."
    answer = responses.consumer_group_heartbeat(heartbeat_answer(code=82, message=text), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.FATAL, None)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commit_answer_has_an_outcome_for_each_partition() -> None:
    """The verdict is the whole commit's, the errors are the partitions' own; a committed one has none."""
    answer = responses.offset_commit(commit_answer({T0: 0, T1: 29, U0: 3}), 4, "g", [T0, T1, U0])
    assert answer == CommitAnswered(
        commit_id=4,
        verdict=CommitVerdict.RETRY_BRIEFLY,
        errors={
            T0: None,
            T1: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
            U0: BrokerError(
                code=3, name="UNKNOWN_TOPIC_OR_PARTITION", message=f"there is no {U0.topic} [{U0.partition}]"
            ),
        },
    )


def test_commit_answer_that_lacks_a_partition_does_not_confirm_it() -> None:
    """What a broker left out was not committed as far as anybody knows."""
    answer = responses.offset_commit(commit_answer({T0: 0}), 4, "g", [T0, T1])
    assert answer.errors[T0] is None
    assert answer.errors[T1] == BrokerError(
        code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's answer leaves this partition out"
    )


# ---- committed offsets -----------------------------------------------------------------------------------------------


@both_forms
def test_committed_offsets(answer: Any) -> None:  # noqa: ANN401
    """An offset of -1 means that nothing is committed; 0 is an offset like any other."""
    fetched = responses.offset_fetch(answer({T0: (17, 0), T1: (-1, 0), U0: (0, 0)}), "g", [T0, T1, U0])
    assert fetched == {T0: OffsetAndMetadata(offset=17, leader_epoch=3), T1: None, U0: OffsetAndMetadata(offset=0)}


@both_forms
def test_each_partition_has_its_own_answer(answer: Any) -> None:  # noqa: ANN401
    """For an application: an offset, None, or the error of this partition; one that is missing has an error too."""
    entity = answer({T0: (17, 0), T1: (-1, 29)})
    found = responses.offset_fetch_by_partition(entity, "g", [T0, T1, U0])
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        T1: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
        U0: BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's answer leaves this partition out"),
    }
    assert responses.offset_fetch_by_partition(answer({}, 30), "g", [T0]) == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


@both_forms
@pytest.mark.parametrize("code", [14, 16, 25, 88, 113])
def test_failed_fetch_is_never_no_offset(answer: Any, code: int) -> None:  # noqa: ANN401
    """An error of the group, of one partition, or a partition that is missing: the whole fetch failed."""
    name = ErrorCode(code).name.upper()
    assert responses.offset_fetch(answer({}, code), "g", [T0]) == BrokerError(code=code, name=name)
    assert responses.offset_fetch(answer({T0: (17, 0), T1: (-1, code)}), "g", [T0, T1]) == BrokerError(
        code=code, name=name, message="t [1]"
    )
    left_out = responses.offset_fetch(answer({T0: (17, 0)}), "g", [T0, T1])
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1


def test_fetch_that_answers_for_another_group_failed() -> None:
    """The batch must hold the group that was asked for."""
    left_out = responses.offset_fetch(fetch_answer_v9({T0: (17, 0)}, group="other"), "g", [T0])
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1


# ---- the coordinator -------------------------------------------------------------------------------------------------


def find_answer_v3(code: int, message: str | None = None) -> find_v3.FindCoordinatorResponse:
    """The answer in the form of version 3."""
    return find_v3.FindCoordinatorResponse(
        throttle_time=ZERO, error_code=ErrorCode(code), error_message=message, node_id=2, host="h", port=9092
    )


def find_answer_v4(code: int, message: str | None = None, key: str = "g") -> find_v4.FindCoordinatorResponse:
    """The answer in the form of version 4."""
    found = Coordinator(key=key, error_code=ErrorCode(code), error_message=message, node_id=2, host="h", port=9092)
    return find_v4.FindCoordinatorResponse(throttle_time=ZERO, coordinators=(found,))


@pytest.mark.parametrize("answer", [find_answer_v3, find_answer_v4])
def test_coordinator_is_found_or_refused(answer: Any) -> None:  # noqa: ANN401
    """Rules 2.5: an address, or the broker's reason; a missing right names the group."""
    assert responses.find_coordinator(answer(0), "g") == BrokerAddress(node_id=2, host="h", port=9092)
    assert responses.find_coordinator(answer(15, "Not yet."), "g") == BrokerError(
        code=15, name="COORDINATOR_NOT_AVAILABLE", message="Not yet."
    )
    assert responses.find_coordinator(answer(30), "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


def test_coordinator_of_another_group_is_none() -> None:
    """The batch must hold the group that was asked for; to ask again may help."""
    left_out = responses.find_coordinator(find_answer_v4(0, key="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.name == "COORDINATOR_NOT_AVAILABLE"
