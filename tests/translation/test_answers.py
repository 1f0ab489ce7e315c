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
def test_heartbeat_success(assigned: dict[UUID, tuple[int, ...]] | None, expected: frozenset[Any] | None) -> None:
    """Null is "unchanged", an empty assignment is "give up everything": the difference is kept."""
    entity = as_struct(heartbeat_answer(epoch=6, assigned=assigned))
    assert answers.consumer_group_heartbeat(entity, 3, "g") == HeartbeatAnswered(
        request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=expected
    )


def test_error_answer_is_never_a_success() -> None:
    """M11: with an error code the epoch and the assignment in the answer do not count."""
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
def test_holder_of_an_instance_id_is_taken_from_the_broker_s_words(message: str | None, holder: str | None) -> None:
    """UNRELEASED_INSTANCE_ID names the member that holds the id, in its text only (seen on 4.3.1)."""
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=111, message=message), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.UNRELEASED, holder)


def test_holder_is_looked_for_in_that_error_only() -> None:
    """Other errors may use similar words."""
    text = "the instance id is owned by o member."
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=82, message=text), 3, "g")
    assert isinstance(answer, HeartbeatRejected)
    assert (answer.verdict, answer.holder) == (Verdict.FATAL, None)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commit_answer_has_an_outcome_for_each_partition() -> None:
    """The verdict is the whole commit's, the errors are the partitions' own; a committed one has none."""
    answer = answers.offset_commit(commit_answer({T0: 0, T1: 29, U0: 3}), 4, "g", [T0, T1, U0])
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
    answer = answers.offset_commit(commit_answer({T0: 0}), 4, "g", [T0, T1])
    assert answer.errors[T0] is None
    assert answer.errors[T1] == BrokerError(
        code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's answer leaves this partition out"
    )


# ---- committed offsets -----------------------------------------------------------------------------------------------


@both_forms
def test_committed_offsets(answer: Any) -> None:
    """An offset of -1 means that nothing is committed; 0 is an offset like any other."""
    fetched = answers.offset_fetch(answer({T0: (17, 0), T1: (-1, 0), U0: (0, 0)}), "g", [T0, T1, U0])
    assert fetched == {T0: OffsetAndMetadata(offset=17, leader_epoch=3), T1: None, U0: OffsetAndMetadata(offset=0)}


@both_forms
def test_each_partition_has_its_own_answer(answer: Any) -> None:
    """For an application: an offset, None, or the error of this partition; one that is missing has an error too."""
    entity = answer({T0: (17, 0), T1: (-1, 29)})
    found = answers.offset_fetch_by_partition(entity, "g", [T0, T1, U0])
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        T1: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
        U0: BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's answer leaves this partition out"),
    }
    assert answers.offset_fetch_by_partition(answer({}, 30), "g", [T0]) == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


@both_forms
@pytest.mark.parametrize("code", [14, 16, 25, 88, 113])
def test_failed_fetch_is_never_no_offset(answer: Any, code: int) -> None:
    """An error of the group, of one partition, or a partition that is missing: the whole fetch failed."""
    name = ErrorCode(code).name.upper()
    assert answers.offset_fetch(answer({}, code), "g", [T0]) == BrokerError(code=code, name=name)
    assert answers.offset_fetch(answer({T0: (17, 0), T1: (-1, code)}), "g", [T0, T1]) == BrokerError(
        code=code, name=name, message="t [1]"
    )
    left_out = answers.offset_fetch(answer({T0: (17, 0)}), "g", [T0, T1])
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1


def test_fetch_that_answers_for_another_group_failed() -> None:
    """The batch must hold the group that was asked for."""
    left_out = answers.offset_fetch(fetch_answer_v9({T0: (17, 0)}, group="other"), "g", [T0])
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
def test_coordinator_is_found_or_refused(answer: Any) -> None:
    """Rules 2.5: an address, or the broker's reason; a missing right names the group."""
    assert answers.find_coordinator(answer(0), "g") == BrokerAddress(node_id=2, host="h", port=9092)
    assert answers.find_coordinator(answer(15, "Not yet."), "g") == BrokerError(
        code=15, name="COORDINATOR_NOT_AVAILABLE", message="Not yet."
    )
    assert answers.find_coordinator(answer(30), "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


def test_coordinator_of_another_group_is_none() -> None:
    """The batch must hold the group that was asked for; to ask again may help."""
    left_out = answers.find_coordinator(find_answer_v4(0, key="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.name == "COORDINATOR_NOT_AVAILABLE"


# ---- to anybody ------------------------------------------------------------------------------------------------------


LEFT_OUT = -1

BY_ID, BY_INSTANCE = MemberIdentity(member_id="m"), MemberIdentity(instance_id="i")


def codes(answer: tuple[BrokerError | None, ...] | BrokerError) -> list[int]:
    """The error code of each member, 0 for none."""
    assert isinstance(answer, tuple)
    return [0 if error is None else error.code for error in answer]


def test_each_member_has_its_own_result_in_the_order_asked() -> None:
    """KIP-345: the broker may answer in any order."""
    answer = leave_answer(("", "i", 0), ("m", None, 25))
    assert codes(answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [25, 0]


def test_coordinator_may_complete_an_identity() -> None:
    """An answer about `m` with its instance id is about `m`, and one about `i` with its member id is about `i`."""
    answer = leave_answer(("m", "other", 0), ("x", "i", 82))
    assert codes(answers.removals(answer, "g", [BY_ID, BY_INSTANCE])) == [0, 82]


def test_member_that_was_left_out_was_not_removed() -> None:
    """As far as anybody knows."""
    assert codes(answers.removals(leave_answer(("m", None, 0)), "g", [BY_ID, BY_INSTANCE])) == [0, LEFT_OUT]


@pytest.mark.parametrize(("code", "name"), [(16, "NOT_COORDINATOR"), (30, "GROUP_AUTHORIZATION_FAILED")])
def test_refused_request_removed_nobody(code: int, name: str) -> None:
    """The whole request's code counts, whatever the members' say."""
    refused = answers.removals(leave_answer(("m", None, 0), code=code), "g", [BY_ID])
    assert isinstance(refused, BrokerError)
    assert (refused.code, refused.name) == (code, name)


def test_configuration_of_a_group() -> None:
    """Values as the broker writes them; a key without value is absent."""
    answer = config_answer({"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": None})
    assert answers.group_config(answer, "g") == {"consumer.session.timeout.ms": "45000"}


def test_refused_configuration_is_an_error() -> None:
    """Never an empty configuration."""
    answer = config_answer({}, code=30, message="words")
    assert answers.group_config(answer, "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )
    left_out = answers.group_config(config_answer({}, group="other"), "g")
    assert isinstance(left_out, BrokerError)
    assert left_out.code == LEFT_OUT


@both_forms
def test_everything_committed_with_each_partition_s_own_error(answer: Any) -> None:
    """A partition without an offset is absent, and one with an error does not hide the others."""
    found = answers.all_committed(answer({T0: (17, 0), T1: (-1, 0), U0: (-1, 29)}), "g")
    assert found == {
        T0: OffsetAndMetadata(offset=17, leader_epoch=3),
        U0: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
    }


def test_refused_offsets_are_an_error() -> None:
    """Never a group that committed nothing."""
    of_another = fetch_answer_v9({T0: (1, 0)}, group="other")
    for answer, code in ((fetch_answer_v7({}, 30), 30), (fetch_answer_v9({}, 30), 30), (of_another, LEFT_OUT)):
        refused = answers.all_committed(answer, "g")
        assert isinstance(refused, BrokerError)
        assert refused.code == code
