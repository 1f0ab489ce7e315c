"""The accounts of partners detect each violation."""

from __future__ import annotations

import json

import pytest

from tests.support.partners.books import Account, Told, doubles, repetitions, uncommitted
from tests.support.partners.life import Client, Lifetime, Strategy


def account(*events: tuple[int, str, dict[str, object]]) -> Account:
    """An account with these lines."""
    kept = Account()
    for at, event, words in events:
        kept.take(Told.read(json.dumps({"at": at, "event": event} | words).encode()))
    return kept


def has(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """An event that assigns these partitions."""
    return at, "assigned", {"partitions": partitions, "generation": 1}


def gives(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """An event that revokes these partitions."""
    return at, "revoked", {"partitions": partitions, "generation": 1}


def reads(at: int, first: int, last: int) -> tuple[int, str, dict[str, object]]:
    """An event that delivers these records of partition 0."""
    return at, "records", {"partition": 0, "first": first, "last": last}


def commits(at: int, offset: int) -> tuple[int, str, dict[str, object]]:
    """An event that commits this offset of partition 0."""
    return at, "committed", {"offsets": [[0, offset]]}


def test_doubles_finds_overlapping_owners_across_a_shorter_term() -> None:
    """A long ownership overlaps with each later owner, not only with the next one."""
    found = doubles({"a": account(has(1, 0)), "b": account(has(2, 0), gives(3, 0)), "c": account(has(4, 0))})
    assert [words.split(" from ")[0] for words in found] == ["0: b", "0: c"]


def test_doubles_accepts_a_partition_revoked_before_its_next_owner() -> None:
    """Revocation and assignment may have the same millisecond, and a dead process owns nothing."""
    first, second = account(has(1, 0, 1), gives(5, 0), has(8, 0)), account(has(5, 0), gives(8, 0))
    assert doubles({"a": first, "b": second}) == []
    dead = account(has(9, 7))
    dead.ended_at = 10
    assert doubles({"a": dead, "b": account(has(11, 7))}) == []


def test_repetitions_finds_records_committed_before_the_assignment() -> None:
    """A new owner must begin at the latest commit before its assignment."""
    first = account(has(1, 0), reads(2, 0, 9), commits(3, 10), reads(4, 10, 14), gives(5, 0))
    assert repetitions({"a": first, "b": account(has(6, 0), reads(7, 10, 20))}) == []
    assert len(repetitions({"a": first, "b": account(has(6, 0), reads(7, 9, 20))})) == 1


def test_repetitions_finds_records_repeated_or_delivered_without_ownership() -> None:
    """Uncommitted offsets excuse neither a repetition within one member nor a delivery without ownership."""
    assert len(repetitions({"a": account(has(1, 0), reads(2, 0, 9), reads(3, 9, 11))})) == 1
    assert len(repetitions({"a": account(has(1, 0), gives(2, 0), reads(3, 0, 9))})) == 1


def test_repetitions_names_the_batch_the_commit_and_the_history() -> None:
    """The text has the batch, the committed offset with its member and time, and all events around it."""
    first = account(has(1, 0), reads(2, 0, 9), commits(3, 10), gives(5, 0))
    second = account(has(6, 0), reads(7, 9, 20))
    (words,) = repetitions({"a": first, "b": second})
    told, *history = words.splitlines()
    assert told == "b was given 0: 9..20 at 7, where it was to go on at 10 (a told of that commit at 3, it got 0 at 6)"
    assert history == [
        "  1 a assigned [0] in generation 1",
        "  2 a was given 0: 0..9",
        "  3 a committed 0: 10",
        "  5 a revoked [0] in generation 1",
        "  6 b assigned [0] in generation 1",
        "  7 b was given 0: 9..20",
    ]


def test_uncommitted_returns_records_after_the_last_commit_of_lost_partitions() -> None:
    """A revocation or the process's death leaves the records after the last commit uncommitted."""
    given_up = account(has(1, 0), reads(2, 0, 9), commits(3, 8), gives(4, 0), has(5, 0), reads(6, 8, 9))
    assert uncommitted(given_up) == {(0, 8): 1, (0, 9): 1}
    given_up.ended_at = 7
    assert uncommitted(given_up) == {(0, 8): 2, (0, 9): 2}


def test_lifetime_round_trips_through_json() -> None:
    """`from_json` returns the lifetime that `as_json` wrote."""
    life = Lifetime(
        client=Client.JAVA,
        bootstrap_servers="b",
        group="g",
        topic="t",
        client_id="c",
        strategies=(Strategy.STICKY, Strategy.RANGE),
    )
    assert Lifetime.from_json(life.as_json()) == life


@pytest.mark.parametrize(
    ("client", "protocol", "strategies"),
    [
        (Client.CONFLUENT, "classic", (Strategy.STICKY,)),
        (Client.AIOKAFKA, "classic", (Strategy.COOPERATIVE_STICKY,)),
        (Client.JAVA, "classic", ()),
        (Client.KAFKA_PYTHON, "consumer", ()),
    ],
)
def test_lifetime_refuses_a_protocol_or_assignor_that_its_client_lacks(
    client: Client, protocol: str, strategies: tuple[Strategy, ...]
) -> None:
    """The constructor raises before a process is started in vain."""
    with pytest.raises(ValueError, match=client):
        Lifetime(
            client=client,
            bootstrap_servers="b",
            group="g",
            topic="t",
            client_id="c",
            protocol=protocol,
            strategies=strategies,
        )
