"""The books notice what they are kept for."""

from __future__ import annotations

import json

import pytest

from tests.support.partners.books import Account, Told, doubles, repetitions, uncommitted
from tests.support.partners.life import Client, Lifetime, Strategy


def account(*events: tuple[int, str, dict[str, object]]) -> Account:
    """An account of these lines."""
    kept = Account()
    for at, event, words in events:
        kept.take(Told.read(json.dumps({"at": at, "event": event} | words).encode()))
    return kept


def has(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """It is assigned these."""
    return at, "assigned", {"partitions": partitions, "generation": 1}


def gives(at: int, *partitions: int) -> tuple[int, str, dict[str, object]]:
    """It gives these up."""
    return at, "revoked", {"partitions": partitions, "generation": 1}


def reads(at: int, first: int, last: int) -> tuple[int, str, dict[str, object]]:
    """It is given these records of partition 0."""
    return at, "records", {"partition": 0, "first": first, "last": last}


def commits(at: int, offset: int) -> tuple[int, str, dict[str, object]]:
    """It commits partition 0."""
    return at, "committed", {"offsets": [[0, offset]]}


def test_partition_in_two_hands_is_found_even_where_somebody_short_stands_between() -> None:
    """The one with a long term overlaps with all who come meanwhile."""
    found = doubles({"a": account(has(1, 0)), "b": account(has(2, 0), gives(3, 0)), "c": account(has(4, 0))})
    assert [words.split(" from ")[0] for words in found] == ["0: b", "0: c"]


def test_partition_that_is_given_up_first_is_in_one_hand() -> None:
    """In the same millisecond, too: the clock is not finer. A dead process has nothing."""
    first, second = account(has(1, 0, 1), gives(5, 0), has(8, 0)), account(has(5, 0), gives(8, 0))
    assert doubles({"a": first, "b": second}) == []
    dead = account(has(9, 7))
    dead.ended_at = 10
    assert doubles({"a": dead, "b": account(has(11, 7))}) == []


def test_record_that_was_committed_before_is_found() -> None:
    """Whoever gets a partition begins at the latest commit before that, or it repeats."""
    first = account(has(1, 0), reads(2, 0, 9), commits(3, 10), reads(4, 10, 14), gives(5, 0))
    assert repetitions({"a": first, "b": account(has(6, 0), reads(7, 10, 20))}) == []
    assert len(repetitions({"a": first, "b": account(has(6, 0), reads(7, 9, 20))})) == 1


def test_record_that_comes_twice_to_one_member_or_to_a_member_without_the_partition_is_found() -> None:
    """Nothing that is uncommitted excuses these."""
    assert len(repetitions({"a": account(has(1, 0), reads(2, 0, 9), reads(3, 9, 11))})) == 1
    assert len(repetitions({"a": account(has(1, 0), gives(2, 0), reads(3, 0, 9))})) == 1


def test_repetition_is_told_with_its_record_its_people_and_its_times() -> None:
    """Which batch, whose it was before, by what it was to go on where, and what everybody told around then."""
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


def test_what_was_not_committed_when_a_partition_went_may_come_again() -> None:
    """Given up, or cut short by death: the records behind the last commit. Nothing, as long as it goes on."""
    given_up = account(has(1, 0), reads(2, 0, 9), commits(3, 8), gives(4, 0), has(5, 0), reads(6, 8, 9))
    assert uncommitted(given_up) == {(0, 8): 1, (0, 9): 1}
    given_up.ended_at = 7
    assert uncommitted(given_up) == {(0, 8): 2, (0, 9): 2}


def test_life_comes_back_from_the_command_line() -> None:
    """What a process is told is what it was to be told."""
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
def test_life_that_a_client_cannot_live_is_refused(
    client: Client, protocol: str, strategies: tuple[Strategy, ...]
) -> None:
    """Before a process is started that would be waited for in vain."""
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
