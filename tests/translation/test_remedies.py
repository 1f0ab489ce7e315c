"""Remedies for errors: each appears once in a message and never names the other protocol's keys."""

from __future__ import annotations

import re

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.membership.classic.exchanges import ClassicVerdict, JoinRejected, SyncRejected
from consumer_membership.membership.events import HeartbeatRejected, Verdict
from consumer_membership.runtime.application.notices import kafka_error
from consumer_membership.translation import answers, classic_answers
from consumer_membership.translation.remedies import REMEDIES, with_remedy
from consumer_membership.translation.verdicts import classic_verdict, heartbeat_error, heartbeat_verdict
from consumer_membership.types import BrokerError, GroupProtocol
from consumer_membership.wire.versions import Api
from tests.wire.classic import join_answer, join_order, sync_answer, sync_order
from tests.wire.frames import heartbeat_answer

#: Keys for members of only one protocol, or of the brokers for them.
KEYS = {
    GroupProtocol.CONSUMER: (
        "group.consumer.",
        "group.remote.assignor",
        "group.version",
        "group.coordinator.rebalance.protocols",
        "group.instance.id.pool",
        "conflict.policy",
        "RE2",
        "KIP-848",
        "Kafka 4.0",
    ),
    GroupProtocol.CLASSIC: (
        "group.max.size",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "group.min.session",
        "group.max.session",
    ),
}
#: The protocols whose members send the request.
PROTOCOLS = {
    Api.CONSUMER_GROUP_HEARTBEAT: {GroupProtocol.CONSUMER},
    Api.JOIN_GROUP: {GroupProtocol.CLASSIC},
    Api.SYNC_GROUP: {GroupProtocol.CLASSIC},
}
FATAL = [code for code in ErrorCode if code is not ErrorCode.none and heartbeat_verdict(code) is Verdict.FATAL]
FATAL_JOIN = [code for code in ErrorCode if classic_verdict(Api.JOIN_GROUP, code) is ClassicVerdict.FATAL and code]
FATAL_SYNC = [code for code in ErrorCode if classic_verdict(Api.SYNC_GROUP, code) is ClassicVerdict.FATAL and code]


def check(error: BrokerError, request: Api) -> None:
    """Check that the message ends in one remedy and does not name the other protocol's keys."""
    text, remedy = str(error), REMEDIES[request].get(error.code, "")
    assert error.remedy == remedy
    assert text.count(remedy) == 1 if remedy else text == str(error)
    for protocol in set(GroupProtocol) - PROTOCOLS[request]:
        assert not [key for key in KEYS[protocol] if key in remedy]
    assert not re.search(r"\b(?:raise|set|unset|grant|use|close|give|stop)\b", error.message.lower()), (
        "advice in the words"
    )


@pytest.mark.parametrize("code", FATAL)
def test_fatal_heartbeat_error_has_one_remedy(code: int) -> None:
    """Each fatal ConsumerGroupHeartbeat error has one remedy, with and without a broker message."""
    for words in (None, "The broker's words."):
        check(heartbeat_error(code, words, "g"), Api.CONSUMER_GROUP_HEARTBEAT)


@pytest.mark.parametrize("code", FATAL_JOIN)
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_fatal_join_error_has_one_remedy(code: int, instance_id: str | None) -> None:
    """Each fatal JoinGroup error of static and dynamic members has one remedy."""
    joined = classic_answers.join_group(join_answer(code=code), "g", join_order(instance_id=instance_id))
    assert isinstance(joined, JoinRejected)
    check(joined.error, Api.JOIN_GROUP)


@pytest.mark.parametrize("code", FATAL_SYNC)
def test_fatal_sync_error_has_one_remedy(code: int) -> None:
    """Each fatal SyncGroup error has one remedy."""
    synced = classic_answers.sync_group(sync_answer(code=code), "g", sync_order(instance_id="i"))
    assert isinstance(synced, SyncRejected)
    check(synced.error, Api.SYNC_GROUP)


def test_group_id_not_found_remedy_differs_for_joining_and_joined_member() -> None:
    """On a join, GROUP_ID_NOT_FOUND means a classic group; for a member, the group no longer exists."""
    joining = heartbeat_error(ErrorCode.group_id_not_found, "Group g is not a consumer group.", "g")
    assert "close its classic members" in joining.remedy
    member = heartbeat_error(ErrorCode.group_id_not_found, "Group g not found.", "g", is_member=True)
    assert "classic members" not in str(member)
    assert "a new cluster" in member.remedy
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=69, message="Group g not found."), 3, "g", 5)
    assert isinstance(answer, HeartbeatRejected)
    assert answer.error == member


def test_remedies_exist_only_for_fatal_codes() -> None:
    """A remedy for a code that is not fatal for its request would be dead data."""
    assert REMEDIES[Api.CONSUMER_GROUP_HEARTBEAT].keys() <= {*FATAL, ErrorCode.group_id_not_found}
    assert REMEDIES[Api.JOIN_GROUP].keys() <= set(FATAL_JOIN)
    assert REMEDIES[Api.SYNC_GROUP].keys() <= set(FATAL_SYNC)


def test_group_max_size_error_names_limit_of_its_protocol() -> None:
    """A full group's message names only the limit of its own protocol."""
    joined = classic_answers.join_group(join_answer(code=81), "g", join_order())
    assert isinstance(joined, JoinRejected)
    assert str(joined.error) == (
        "GROUP_MAX_SIZE_REACHED: Consumer group g already has the configured maximum number of members; raise "
        "group.max.size on the brokers, or run fewer members"
    )
    assert str(heartbeat_error(81, None, "g")) == (
        "GROUP_MAX_SIZE_REACHED: The consumer group has reached its maximum capacity; raise group.consumer.max.size on "
        "the brokers, or run fewer members"
    )


def test_unsupported_join_error_does_not_name_consumer_protocol_keys() -> None:
    """The remedy for UNSUPPORTED_VERSION of a JoinGroup names no consumer protocol keys."""
    joined = classic_answers.join_group(join_answer(code=35), "g", join_order())
    assert isinstance(joined, JoinRejected)
    assert not [key for key in KEYS[GroupProtocol.CONSUMER] if key in str(joined.error)]


def test_error_without_remedy_is_unchanged() -> None:
    """An error without a remedy stays the same object; without a message, its name is the text."""
    error = BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR")
    assert with_remedy(Api.JOIN_GROUP, error) is error
    assert (error.description, str(error)) == ("UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR")
    assert kafka_error(error).str() == "UNKNOWN_SERVER_ERROR"
