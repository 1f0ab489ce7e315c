"""What helps against each error: once in a text, and never with the other protocol's keys."""

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

#: What stands only in the configuration of one protocol's members, or of the brokers for them.
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
#: Whose members send the request.
PROTOCOLS = {
    Api.CONSUMER_GROUP_HEARTBEAT: {GroupProtocol.CONSUMER},
    Api.JOIN_GROUP: {GroupProtocol.CLASSIC},
    Api.SYNC_GROUP: {GroupProtocol.CLASSIC},
}
FATAL = [code for code in ErrorCode if code is not ErrorCode.none and heartbeat_verdict(code) is Verdict.FATAL]
FATAL_JOIN = [code for code in ErrorCode if classic_verdict(Api.JOIN_GROUP, code) is ClassicVerdict.FATAL and code]
FATAL_SYNC = [code for code in ErrorCode if classic_verdict(Api.SYNC_GROUP, code) is ClassicVerdict.FATAL and code]


def check(error: BrokerError, request: Api) -> None:
    """One advice, at the end; of the other protocol not a word, but where the fact itself is about it."""
    told, remedy = str(error), REMEDIES[request].get(error.code, "")
    assert error.remedy == remedy
    assert told.count(remedy) == 1 if remedy else told == str(error)
    for protocol in set(GroupProtocol) - PROTOCOLS[request]:
        assert not [key for key in KEYS[protocol] if key in remedy]
    assert not re.search(r"\b(?:raise|set|unset|grant|use|close|give|stop)\b", error.message.lower()), (
        "advice in the words"
    )


@pytest.mark.parametrize("code", FATAL)
def test_what_ends_a_consumer_member_has_one_remedy(code: int) -> None:
    """ConsumerGroupHeartbeat: whatever is fatal, with the broker's words and without."""
    for words in (None, "The broker's words."):
        check(heartbeat_error(code, words, "g"), Api.CONSUMER_GROUP_HEARTBEAT)


@pytest.mark.parametrize("code", FATAL_JOIN)
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_what_ends_a_classic_join_has_one_remedy(code: int, instance_id: str | None) -> None:
    """JoinGroup: static and dynamic."""
    joined = classic_answers.join_group(join_answer(code=code), "g", join_order(instance_id=instance_id))
    assert isinstance(joined, JoinRejected)
    check(joined.error, Api.JOIN_GROUP)


@pytest.mark.parametrize("code", FATAL_SYNC)
def test_what_ends_a_classic_sync_has_one_remedy(code: int) -> None:
    """SyncGroup."""
    synced = classic_answers.sync_group(sync_answer(code=code), "g", sync_order(instance_id="i"))
    assert isinstance(synced, SyncRejected)
    check(synced.error, Api.SYNC_GROUP)


def test_member_whose_group_is_gone_is_not_asked_to_end_classic_members() -> None:
    """GROUP_ID_NOT_FOUND for a join is about a classic group, and for a member about a group that is gone."""
    joining = heartbeat_error(ErrorCode.group_id_not_found, "Group g is not a consumer group.", "g")
    assert "end its classic members" in joining.remedy
    member = heartbeat_error(ErrorCode.group_id_not_found, "Group g not found.", "g", is_member=True)
    assert "classic members" not in str(member)
    assert "a new cluster" in member.remedy
    answer = answers.consumer_group_heartbeat(heartbeat_answer(code=69, message="Group g not found."), 3, "g", 5)
    assert isinstance(answer, HeartbeatRejected)
    assert answer.error == member


def test_every_remedy_is_of_an_error_that_needs_one() -> None:
    """A code that a request never ends with would stand in its table in vain."""
    assert REMEDIES[Api.CONSUMER_GROUP_HEARTBEAT].keys() <= {*FATAL, ErrorCode.group_id_not_found}
    assert REMEDIES[Api.JOIN_GROUP].keys() <= set(FATAL_JOIN)
    assert REMEDIES[Api.SYNC_GROUP].keys() <= set(FATAL_SYNC)


def test_full_group_names_its_own_protocol_s_limit() -> None:
    """A full classic group was once told of both limits in one sentence."""
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


def test_classic_member_is_not_asked_for_the_consumer_protocol() -> None:
    """UNSUPPORTED_VERSION of a JoinGroup."""
    joined = classic_answers.join_group(join_answer(code=35), "g", join_order())
    assert isinstance(joined, JoinRejected)
    assert not [key for key in KEYS[GroupProtocol.CONSUMER] if key in str(joined.error)]


def test_error_without_a_known_remedy_is_left_as_it_is() -> None:
    """The same value, and the name where there are no words."""
    error = BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR")
    assert with_remedy(Api.JOIN_GROUP, error) is error
    assert (error.words, str(error)) == ("UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR")
    assert kafka_error(error).str() == "UNKNOWN_SERVER_ERROR"
