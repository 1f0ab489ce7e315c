"""Each violation in the reported events of partners is detected."""

from __future__ import annotations

import json

import pytest

from tests.support.partners.books import Account, Report, double_owners, repetitions, uncommitted
from tests.support.partners.life import Client, Lifetime, Strategy


def account(*events: tuple[int, str, dict[str, object]]) -> Account:
    """Return an account with these events."""
    result = Account()
    for at, event, values in events:
        result.take(Report.read(json.dumps({"at": at, "event": event} | values).encode()))
    return result


def assigned(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """Return an event that assigns these partitions."""
    return at, "assigned", {"partitions": partitions, "generation": 1}


def revoked(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """Return an event that revokes these partitions."""
    return at, "revoked", {"partitions": partitions, "generation": 1}


def received(at: int, first: int, last: int) -> tuple[int, str, dict[str, object]]:
    """Return an event that delivers these records of partition 0."""
    return at, "records", {"partition": 0, "first": first, "last": last}


def committed(at: int, offset: int) -> tuple[int, str, dict[str, object]]:
    """Return an event that commits this offset of partition 0."""
    return at, "committed", {"offsets": [[0, offset]]}


def test_double_owners_finds_all_owners_that_overlap_with_a_long_ownership() -> None:
    """A long ownership overlaps with each later owner, not only with the next one."""
    found = double_owners(
        {"a": account(assigned(1, 0)), "b": account(assigned(2, 0), revoked(3, 0)), "c": account(assigned(4, 0))}
    )
    assert [text.split(" from ")[0] for text in found] == ["0: b", "0: c"]


def test_double_owners_accepts_a_partition_revoked_before_its_next_owner() -> None:
    """Revocation and assignment may have the same millisecond, and an ended process owns no partition."""
    first, second = account(assigned(1, 0, 1), revoked(5, 0), assigned(8, 0)), account(assigned(5, 0), revoked(8, 0))
    assert double_owners({"a": first, "b": second}) == []
    ended = account(assigned(9, 7))
    ended.ended_at = 10
    assert double_owners({"a": ended, "b": account(assigned(11, 7))}) == []


def test_repetitions_finds_records_committed_before_the_assignment() -> None:
    """A new owner must begin at the latest commit before its assignment."""
    first = account(assigned(1, 0), received(2, 0, 9), committed(3, 10), received(4, 10, 14), revoked(5, 0))
    assert repetitions({"a": first, "b": account(assigned(6, 0), received(7, 10, 20))}) == []
    assert len(repetitions({"a": first, "b": account(assigned(6, 0), received(7, 9, 20))})) == 1


def test_repetitions_finds_records_repeated_or_delivered_without_ownership() -> None:
    """A member must not receive a record twice during one ownership, or without owning its partition."""
    assert len(repetitions({"a": account(assigned(1, 0), received(2, 0, 9), received(3, 9, 11))})) == 1
    assert len(repetitions({"a": account(assigned(1, 0), revoked(2, 0), received(3, 0, 9))})) == 1


def test_repetitions_names_the_batch_the_commit_and_the_history() -> None:
    """The text has the batch, the committed offset with its member and time, and all events around the batch."""
    first = account(assigned(1, 0), received(2, 0, 9), committed(3, 10), revoked(5, 0))
    second = account(assigned(6, 0), received(7, 9, 20))
    (text,) = repetitions({"a": first, "b": second})
    violation, *history = text.splitlines()
    assert violation == (
        "b received 0: 9..20 at 7 instead of continuing at 10"
        " (a reported this commit at 3; partition 0 was assigned at 6)"
    )
    assert history == [
        "  1 a assigned [0] in generation 1",
        "  2 a received 0: 0..9",
        "  3 a committed 0: 10",
        "  5 a revoked [0] in generation 1",
        "  6 b assigned [0] in generation 1",
        "  7 b received 0: 9..20",
    ]


def test_uncommitted_returns_records_after_the_last_commit_of_lost_partitions() -> None:
    """If a partition is revoked or the process ends, the records after the last commit are uncommitted."""
    given_up = account(
        assigned(1, 0), received(2, 0, 9), committed(3, 8), revoked(4, 0), assigned(5, 0), received(6, 8, 9)
    )
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
def test_lifetime_raises_for_a_protocol_or_assignor_that_its_client_lacks(
    client: Client, protocol: str, strategies: tuple[Strategy, ...]
) -> None:
    """The constructor raises an error, so that no process is started with such arguments."""
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
