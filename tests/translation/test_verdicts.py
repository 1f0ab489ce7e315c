"""The verdict tables: total over kio's codes and beyond, and the words for the user."""

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
    # Rules 1.11 and 2.4: a removed member hears of it by its heartbeat and rejoins; OffsetFetch ends nothing.
    25: FetchVerdict.RETRY,
    69: FetchVerdict.RETRY,
    88: FetchVerdict.RETRY,
    100: FetchVerdict.RETRY,
    113: FetchVerdict.RETRY,
}
CODES = [*ErrorCode, 134, 199, -2, 32767]


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_verdict(code: int) -> None:
    """H15: all codes that kio knows, and some that nobody knows yet, mean what the rules' tables say."""
    assert heartbeat_verdict(code) is HEARTBEAT.get(code, Verdict.FATAL)
    assert commit_verdict(frozenset({code})) is COMMIT.get(code, CommitVerdict.FINAL)
    assert fetch_verdict(code) is FETCH.get(code, FetchVerdict.FINAL)


@pytest.mark.parametrize("code", CODES)
def test_every_error_has_a_name(code: int) -> None:
    """An unknown code is called by its number, a known one as Kafka calls it."""
    error = broker_error(code)
    assert error.code == code
    assert type(error.code) is int
    assert error.name == (code.name.upper() if isinstance(code, ErrorCode) else f"ERROR_{code}")


def test_retriable_is_what_kafka_calls_so() -> None:
    """Requests that are not a member's own go by Kafka's retriable exceptions; an unknown code is not retriable."""
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
def test_commit_verdict_is_the_one_that_asks_for_most(codes: frozenset[int]) -> None:
    """Partitions that differ: rediscover before a stale epoch before a retry before the end."""
    order = [
        CommitVerdict.FINAL,
        CommitVerdict.RETRY_BRIEFLY,
        CommitVerdict.RETRY,
        CommitVerdict.STALE_EPOCH,
        CommitVerdict.REDISCOVER,
    ]
    assert commit_verdict(codes) is max((commit_verdict(frozenset({code})) for code in codes), key=order.index)


def test_commit_verdict_of_nothing_is_final() -> None:
    """An answer without partitions leaves nothing to try again."""
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
            "valid regular expression: missing closing ); write the pattern as RE2/J reads it, and subscribe again",
            id="invalid regular expression",
        ),
        pytest.param(
            42,
            " MemberId can't be empty. ",
            "MemberId can't be empty; the broker did not understand the request; look for a proxy or another broker in "
            "between",
            id="broker's own words",
        ),
        pytest.param(-1, None, "UNKNOWN_SERVER_ERROR", id="no words"),
    ],
)
def test_heartbeat_errors_are_in_words_for_the_user(code: int, words: str | None, expected: str) -> None:
    """H15: the broker's words where it has some, ours where Java has its own, with the remedy."""
    assert heartbeat_error(code, words, "orders").words == expected


@pytest.mark.parametrize("words", [None, "The consumer protocol is not enabled."])
def test_protocol_that_is_switched_off_says_how_to_switch_it_on(words: str | None) -> None:
    """H32 (broker): UNSUPPORTED_VERSION in an answer means that the cluster has KIP-848 switched off."""
    error = heartbeat_error(35, words, "orders")
    assert error.name == "UNSUPPORTED_VERSION"
    assert error.message.startswith("The cluster does not support the new CONSUMER group protocol.")
    assert "group.version" in error.remedy
    assert (words or "") in error.message


def test_group_error_of_a_commit_is_not_the_heartbeat_s() -> None:
    """UNSUPPORTED_VERSION of a commit is about OffsetCommit's version, not about the protocol."""
    assert group_error(35, None, "orders") == BrokerError(code=35, name="UNSUPPORTED_VERSION")
