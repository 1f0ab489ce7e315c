"""Values of the core as JSON and back; nothing of the application's own in it, and nothing else made of it."""

from __future__ import annotations

import json
from math import inf
from uuid import UUID

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership import effects, events
from consumer_membership.membership.classic import exchanges
from consumer_membership.recorder.values import Decoder, Encoder, RecordingError
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicIdPartition, TopicPartition

SEAL = b"0123456789abcdef"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = UUID(int=7)
VALUES = (
    None,
    True,
    3,
    0.1 + 0.2,
    inf,
    "täxt",
    (1, (2.5, None)),
    frozenset({P0, P1}),
    events.Polled(delivered=True),
    events.HeartbeatAnswered(
        request_id=3, member_epoch=2, heartbeat_interval_s=5.0, assignment=frozenset({TopicIdPartition(ID, 0)})
    ),
    events.TopicIdsResolved(names={ID: "orders"}),
    events.CommitAnswered(
        commit_id=1,
        verdict=events.CommitVerdict.FINAL,
        errors={P0: None, P1: BrokerError(code=22, name="ILLEGAL_GENERATION")},
    ),
    effects.AssignPartitions(attempt=1, offsets={P0: 5}, member_epoch=3),
    exchanges.ClassicHeartbeatAnswered(request_id=1),
)


@pytest.mark.parametrize("value", VALUES, ids=[type(value).__name__ for value in VALUES])
def test_value_comes_back_as_it_was(value: object) -> None:
    """Through text, and floats to their last bit."""
    assert Decoder().decode(json.loads(json.dumps(Encoder(SEAL).encode(value)))) == value


def test_metadata_of_commits_and_bytes_of_assignors_are_not_written() -> None:
    """In their place stands what is equal where they are equal, and tells nothing without the process's own key."""
    offsets = {one: OffsetAndMetadata(offset=1, metadata="my secret") for one in (P0, P1)}
    commit = events.CommitRequested(commit_id=1, offsets=offsets, timeout_s=1.0)
    join = exchanges.JoinAnswered(
        request_id=1,
        generation=1,
        member_id="m",
        leader_id="m",
        protocol_name="own",
        members={"m": MemberSubscription(topics=frozenset({"orders"}), user_data=b"my secret")},
    )
    text = json.dumps([Encoder(SEAL).encode(commit), Encoder(SEAL).encode(join)])
    assert "secret" not in text
    first, second = Decoder().decode(Encoder(SEAL).encode(commit)).offsets.values()
    assert (first.metadata, first.offset) == (second.metadata, 1)
    assert first.metadata != Decoder().decode(Encoder(b"x" * 16).encode(offsets))[P0].metadata


@pytest.mark.parametrize(
    "told",
    [
        {"!": "os.system", "=": ["true"]},
        {"!": "membership.member.os", "=": []},
        {"!": "membership.events.NoSuchEvent"},
        {"!": "membership.events.Polled", "delivered": True, "more": 1},
        {"!": "membership.events.Step", "=": "NO_SUCH_STEP"},
        {"!": "constant", "=": "membership.states.MemberState"},
        {"!": "external", "=": "anything"},
        {"no": "tag"},
        [1],
    ],
    ids=range(9),
)
def test_what_is_none_of_the_cores_values_is_refused(told: object) -> None:
    """A file can make the core's values and nothing else; what this version does not know is said."""
    with pytest.raises(RecordingError):
        Decoder().decode(told)


def test_what_cannot_be_recorded_is_refused() -> None:
    """A value of a new kind needs a line in `values`; the simulation would meet it."""
    with pytest.raises(RecordingError, match="cannot be recorded"):
        Encoder(SEAL).encode(object())
    with pytest.raises(RecordingError, match="cannot be recorded"):
        Encoder(SEAL).encode(lambda: None)
