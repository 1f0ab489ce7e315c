"""The verdict tables, which cover kio's codes and unknown codes, and the messages for the user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from consumer_membership.membership.events import CommitVerdict, Verdict
from consumer_membership.translation.verdicts import (
    FetchVerdict,
    broker_error,
    commit_verdict,
    fetch_verdict,
    group_error,
    heartbeat_error,
    heartbeat_verdict,
    is_retriable,
)
from consumer_membership.types import BrokerError

#: Rules 2.4, by number; every code that is not here is fatal.
HEARTBEAT = {
    14: Verdict.RETRY,
    15: Verdict.REDISCOVER,
    16: Verdict.REDISCOVER,
    25: Verdict.REJOIN,
    29: Verdict.REPORT,
    69: Verdict.GROUP_GONE,
    110: Verdict.REJOIN,
    111: Verdict.UNRELEASED,
}
#: Rules 3.6; every code that is not here is final.
COMMIT = {
    3: CommitVerdict.RETRY_BRIEFLY,
    7: CommitVerdict.RETRY,
    14: CommitVerdict.RETRY,
    15: CommitVerdict.REDISCOVER,
    16: CommitVerdict.REDISCOVER,
    100: CommitVerdict.RETRY_BRIEFLY,
    113: CommitVerdict.STALE_EPOCH,
}
#: Rules 3.7; every code that is not here is final.
FETCH = {
    3: FetchVerdict.RETRY,
    7: FetchVerdict.RETRY,
    14: FetchVerdict.RETRY,
    15: FetchVerdict.REDISCOVER,
    16: FetchVerdict.REDISCOVER,
    # Rules 1.11 and 2.4: a removed member is notified by its heartbeat and rejoins; OffsetFetch ends nothing.
    25: FetchVerdict.RETRY,
    69: FetchVerdict.RETRY,
    88: FetchVerdict.RETRY,
    100: FetchVerdict.RETRY,
    113: FetchVerdict.RETRY,
}
CODES = [*ErrorCode, 134, 199, -2, 32767]


@pytest.mark.parametrize("code", CODES)
def test_verdicts_cover_every_error_code(code: int) -> None:
    """H15: Each code of kio, and some unknown codes, have the verdict of the rules' tables."""
    assert heartbeat_verdict(code) is HEARTBEAT.get(code, Verdict.FATAL)
    assert commit_verdict(frozenset({code})) is COMMIT.get(code, CommitVerdict.FINAL)
    assert fetch_verdict(code) is FETCH.get(code, FetchVerdict.FINAL)


@pytest.mark.parametrize("code", CODES)
def test_broker_error_has_name_for_each_code(code: int) -> None:
    """A known code has Kafka's name; an unknown code is named by its number."""
    error = broker_error(code)
    assert error.code == code
    assert type(error.code) is int
    assert error.name == (code.name.upper() if isinstance(code, ErrorCode) else f"ERROR_{code}")


def test_is_retriable_matches_kafkas_retriable_exceptions() -> None:
    """Requests outside the membership follow Kafka's retriable exceptions; an unknown code is not retriable."""
    assert {code: is_retriable(code) for code in (3, 5, 6, 15, 29, 30, 35, 74, 199)} == {
        3: True,
        5: True,
        6: True,
        15: True,
        29: False,
        30: False,
        35: False,
        74: True,
        199: False,
    }


@given(st.frozensets(st.sampled_from(sorted(ErrorCode)), min_size=1))
def test_commit_verdict_of_several_codes_is_strictest(codes: frozenset[int]) -> None:
    """The order is: rediscover, stale epoch, retry, final."""
    order = [
        CommitVerdict.FINAL,
        CommitVerdict.RETRY_BRIEFLY,
        CommitVerdict.RETRY,
        CommitVerdict.STALE_EPOCH,
        CommitVerdict.REDISCOVER,
    ]
    assert commit_verdict(codes) is max((commit_verdict(frozenset({code})) for code in codes), key=order.index)


def test_commit_verdict_without_codes_is_final() -> None:
    """A response without partitions leaves nothing to retry."""
    assert commit_verdict(frozenset()) is CommitVerdict.FINAL


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        pytest.param(
            30,
            "Group denied.",
            "Not authorized to access group: orders; grant READ on the group to this principal",
            id="group authorization",
        ),
        pytest.param(29, None, "Topic authorization failed.", id="topic authorization without words"),
        pytest.param(29, "Topics [a] denied.", "Topics [a] denied.", id="topic authorization with words"),
        pytest.param(
            81,
            "The consumer group has reached its maximum capacity of 2 members.",
            "The consumer group has reached its maximum capacity of 2 members; raise group.consumer.max.size on the "
            "brokers, or run fewer members",
            id="group full",
        ),
        pytest.param(
            128,
            "SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).",
            "Invalid RE2J SubscriptionPattern provided in the call to subscribe. SubscribedTopicRegex `(` is not a "
            "valid regular expression: missing closing ); use RE2/J syntax for the pattern, and subscribe again",
            id="invalid regular expression",
        ),
        pytest.param(
            42,
            " MemberId can't be empty. ",
            "MemberId can't be empty; the broker could not parse the request; check for a proxy or another broker in "
            "between",
            id="broker's own words",
        ),
        pytest.param(-1, None, "UNKNOWN_SERVER_ERROR", id="no words"),
    ],
)
def test_heartbeat_error_has_message_and_remedy(code: int, words: str | None, expected: str) -> None:
    """H15: The message is the broker's, or this package's where Java has its own, followed by the remedy."""
    assert heartbeat_error(code, words, "orders").description == expected


@pytest.mark.parametrize("words", [None, "The consumer protocol is not enabled."])
def test_unsupported_version_error_states_how_to_enable_protocol(words: str | None) -> None:
    """H32 (broker): UNSUPPORTED_VERSION in a response means that KIP-848 is disabled in the cluster."""
    error = heartbeat_error(35, words, "orders")
    assert error.name == "UNSUPPORTED_VERSION"
    assert error.message.startswith("The cluster does not support the new CONSUMER group protocol.")
    assert "group.version" in error.remedy
    assert (words or "") in error.message


def test_group_error_of_commit_differs_from_heartbeat_error() -> None:
    """UNSUPPORTED_VERSION of a commit concerns OffsetCommit's version, not the group protocol."""
    assert group_error(35, None, "orders") == BrokerError(code=35, name="UNSUPPORTED_VERSION")
