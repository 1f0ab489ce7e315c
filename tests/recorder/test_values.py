"""Values of the core are converted to JSON and back, without application data; other values cannot be created."""

from __future__ import annotations

import json
import re
from collections import deque
from math import inf
from types import MappingProxyType
from uuid import UUID

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership import effects, events
from consumer_membership.membership.classic import exchanges
from consumer_membership.recorder.values import RecordingError, decoded, encoded
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
    frozenset(TopicIdPartition(ID, number) for number in range(3)),
    (0.5, inf, -inf),
    (events.TimePassed(), events.TimePassed()),
    (BrokerError(code=1, name="a"), BrokerError(code=2, name="b", message="c")),
    deque([(1, None), (2, "x")], maxlen=3),
    {P0: {1, 2}, P1: set()},
    re.compile("a+", re.IGNORECASE),
    MappingProxyType({ID: [P0, P1]}),
)


def read_back(value: object) -> object:
    """Return the value that a reader of the file receives."""
    return decoded(json.loads(json.dumps(encoded(value, SEAL), allow_nan=False)))


@pytest.mark.parametrize("value", VALUES, ids=[type(value).__name__ for value in VALUES])
def test_value_survives_encoding(value: object) -> None:
    """A value survives the conversion to text, and a float keeps its last bit."""
    assert read_back(value) == value


def test_shared_object_is_decoded_as_one_object() -> None:
    """Shared or self-containing lists, sets and dicts keep their identity."""
    shared = [P0]
    value: dict[str, object] = {"a": shared, "b": {1}, "c": shared}
    value["self"] = value
    made = read_back(value)
    assert isinstance(made, dict)
    assert made["a"] == [P0]
    assert made["a"] is made["c"]
    assert made["self"] is made


def test_records_are_encoded_as_columns() -> None:
    """A sequence of records has the class once and a list for each field; JSON values are written unchanged."""
    assert encoded((P0, P1), SEAL) == {
        "!": "tuple",
        "=": {"!": "types.TopicPartition", "topic": ["orders", "orders"], "partition": [0, 1]},
    }


def test_encoding_seals_commit_metadata_and_assignor_bytes() -> None:
    """Commit metadata and assignors' bytes are replaced by seals: equal for equal values, and not reversible."""
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
    single = events.CommitRequested(commit_id=2, offsets={P0: offsets[P0]}, timeout_s=1.0)
    text = json.dumps([encoded(one, SEAL) for one in (commit, single, join)])
    assert "secret" not in text
    first, second = decoded(encoded(commit, SEAL)).offsets.values()
    assert (first.metadata, first.offset) == (second.metadata, 1)
    assert first.metadata != decoded(encoded(offsets, b"x" * 16))[P0].metadata


@pytest.mark.parametrize(
    "coded",
    [
        {"!": "os.system", "=": ["true"]},
        {"!": "membership.member.os", "=": []},
        {"!": "membership.events.NoSuchEvent"},
        {"!": "membership.events.Polled", "delivered": True, "more": 1},
        {"!": "membership.events.Step", "=": "NO_SUCH_STEP"},
        {"!": "shared", "=": "os.environ"},
        {"!": "shared", "=": "anything"},
        {"!": "tuple", "=": {"!": "os.stat_result", "st_mode": [1]}},
        {"!": "tuple", "=": {"!": "membership.states.TRANSITIONS", "a": [1]}},
        {"!": "tuple", "=": {"!": "membership.member.MemberCore", "a": [1]}},
        {"!": "tuple", "=": {"!": "types.TopicPartition", "topic": ["a"], "offset": [1]}},
        {"!": "regex", "=": ["(", 0]},
        {"no": "tag"},
        [1],
    ],
    ids=range(14),
)
def test_decoding_of_unknown_value_raises(coded: object) -> None:
    """A file can create only values of the core; any other value raises RecordingError."""
    with pytest.raises(RecordingError):
        decoded(coded)


def test_encoding_of_unsupported_value_raises() -> None:
    """A value of an unsupported kind raises an error; a new kind needs a line in `values`."""
    with pytest.raises(RecordingError, match="cannot be recorded"):
        encoded(object(), SEAL)
    with pytest.raises(RecordingError, match="cannot be recorded"):
        encoded(lambda: None, SEAL)
