"""Requests under way between a process and the coordinator, and their answers as the wire reports them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from consumer_membership.membership.effects import CommitOffsets, DescribeGroup, FetchCommitted, Heartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    Event,
    GroupDescribed,
    GroupDescribeFailed,
    HeartbeatAnswered,
    StartOffsetsFailed,
    StartOffsetsFetched,
)
from consumer_membership.types import TRANSPORT_CODE, BrokerError
from consumer_membership.wire.verdicts import FetchVerdict, broker_error, commit_verdict, fetch_verdict
from tests.exploration.consumer.cluster import Answer
from tests.exploration.process import NO_ANSWER
from tests.simulation.process import rejected
from tests.simulation.rules import Refused

_ERROR = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=NO_ANSWER)

Order: TypeAlias = FetchCommitted | CommitOffsets | DescribeGroup


class Exchange(NamedTuple):
    """A heartbeat under way, or its answer."""

    number: int
    beat: Heartbeat
    answer: Answer | None = None


def heartbeat_answer(one: Exchange) -> Event:
    """A heartbeat's answer."""
    answer = one.answer
    if isinstance(answer, Refused):
        return rejected(one.number, answer)
    assert answer is not None
    return HeartbeatAnswered(
        request_id=one.number,
        member_epoch=answer.member_epoch,
        heartbeat_interval_s=answer.heartbeat_interval_s,
        assignment=answer.assignment,
    )


def answer_to(order: Order, reply: Any) -> Event:  # noqa: ANN401 - each order has its own kind of reply
    """A reply as the wire reports it."""
    match order:
        case CommitOffsets():
            errors = {p: None if error == 0 else broker_error(error) for p, error in reply.items()}
            verdict = commit_verdict(frozenset(reply.values()))
            return CommitAnswered(commit_id=order.commit_id, verdict=verdict, errors=errors)
        case DescribeGroup():
            return GroupDescribed(request_id=order.request_id, holders=reply)
        case FetchCommitted() if isinstance(reply, Refused):
            verdict = fetch_verdict(reply.code)
            return StartOffsetsFailed(
                attempt=order.attempt,
                error=broker_error(reply.code, reply.message),
                retriable=verdict is not FetchVerdict.FINAL,
                rediscover=verdict is FetchVerdict.REDISCOVER,
            )
        case FetchCommitted():
            return StartOffsetsFetched(attempt=order.attempt, offsets=reply)


def failure_of(order: Order) -> Event:
    """What its sender learns of a request without an answer."""
    match order:
        case CommitOffsets():
            return CommitFailed(commit_id=order.commit_id, reason=NO_ANSWER)
        case DescribeGroup():
            return GroupDescribeFailed(request_id=order.request_id, error=_ERROR)
        case FetchCommitted():
            return StartOffsetsFailed(attempt=order.attempt, error=_ERROR, retriable=True, rediscover=True)
