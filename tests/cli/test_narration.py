"""The narration of a membership, line by line."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from confluent_kafka import KafkaError, TopicPartition

from consumer_membership import MemberState
from consumer_membership.cli.narration import Narration, named
from consumer_membership.membership.view import Transition
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.types import BrokerAddress, BrokerError
from consumer_membership.types import TopicPartition as Partition
from tests.support.views import view_of

VIEW = view_of(MemberState.JOINING)


def lines_of(err: io.StringIO) -> list[str]:
    """Return the lines without their times of day."""
    lines = err.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line) for line in lines)
    return [line[13:] for line in lines]


def test_narration_reports_each_transition_once() -> None:
    """A transition is reported once, however often the narration is updated."""
    err = io.StringIO()
    narration = Narration(err)
    joins = Transition(at=1.0, old=MemberState.UNSUBSCRIBED, new=MemberState.JOINING, reason="it polls")
    takes = Transition(at=2.0, old=MemberState.JOINING, new=MemberState.RECONCILE, reason="it was answered")
    narration.update(replace(VIEW, transitions=(joins,)), 1.0)
    narration.update(replace(VIEW, transitions=(joins,)), 1.5)
    narration.update(replace(VIEW, transitions=(joins, takes), member_epoch=4), 2.0)
    assert lines_of(err) == ["UNSUBSCRIBED -> JOINING: it polls", "JOINING -> RECONCILE, epoch 4: it was answered"]


def test_narration_reports_wait_every_few_seconds() -> None:
    """The report is delayed, because a join always waits briefly, and is not repeated on each update."""
    err = io.StringIO()
    narration = Narration(err)
    waiting = replace(
        VIEW,
        waits_for=WaitsFor.COORDINATOR,
        waits_since=10.0,
        last_error=BrokerError(code=-195, name="_TRANSPORT", message="refused"),
    )
    for now in range(10, 18):
        narration.update(waiting, float(now))
    words, error = "waiting for group coordinator", "last error: _TRANSPORT: refused"
    assert lines_of(err) == [f"{words} ({seconds} s); {error}" for seconds in (2, 5)]
    narration.update(replace(waiting, last_error_over_at=18.0), 18.0)
    assert lines_of(err)[2:] == [f"{words} (8 s)"]


def test_narration_reports_stable_member_that_lost_its_coordinator() -> None:
    """A stable member that receives no responses from its coordinator is reported, although it owns its partitions."""
    err = io.StringIO()
    searching = replace(VIEW, state=MemberState.STABLE, member_epoch=3, waits_for=WaitsFor.COORDINATOR, waits_since=0.0)
    Narration(err).update(searching, 4.0)
    assert lines_of(err) == ["waiting for group coordinator (4 s)"]


def test_narration_reports_stable_member_that_cannot_fetch() -> None:
    """A stable member that waits for a broker connection to fetch is reported."""
    err = io.StringIO()
    reading = replace(
        VIEW,
        state=MemberState.STABLE,
        member_epoch=3,
        owned={Partition("t", 0): 3},
        coordinator=BrokerAddress(node_id=1, host="h", port=1),
        waits_for=WaitsFor.BROKER_CONNECTION,
        waits_since=0.0,
    )
    Narration(err).update(reading, 4.0)
    assert lines_of(err) == ["waiting for broker connection (4 s)"]


def test_narration_reports_repeated_error_once() -> None:
    """A repeated error is printed once, even if it has another duration in its text, and cannot flood the terminal."""
    err = io.StringIO()
    narration = Narration(err)
    for took_ms in range(50):
        text = f"Connect to h:1 failed: Connection refused (after {took_ms}ms in state CONNECT)"
        narration.error(KafkaError(KafkaError._TRANSPORT, text))
        narration.error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert lines_of(err) == [
        "error: _TRANSPORT: Connect to h:1 failed: Connection refused",
        "error: _ALL_BROKERS_DOWN: 1/1 brokers are down",
    ]


def test_narration_reports_member_without_partitions_once() -> None:
    """A member without partitions is reported once, because silence would look like a failure."""
    err = io.StringIO()
    narration = Narration(err)
    idle = replace(
        VIEW,
        state=MemberState.STABLE,
        member_epoch=3,
        coordinator=BrokerAddress(node_id=1, host="h", port=1),
        waits_for=WaitsFor.PARTITIONS,
        waits_since=0.0,
    )
    for now in range(10):
        narration.update(idle, float(now))
    narration.update(replace(idle, owned={Partition("t", 0): 3}, waits_for=None, waits_since=None), 10.0)
    assert len(lines_of(err)) == 1
    assert lines_of(err)[0].startswith(
        "joined the group, but no partitions are assigned: the group may have more members"
    )


def test_narration_names_missing_topics() -> None:
    """A misspelled topic is the most common reason for a member without partitions."""
    err = io.StringIO()
    narration = Narration(err)
    idle = replace(VIEW, state=MemberState.STABLE, member_epoch=3, missing_topics=frozenset({"orders", "^typo"}))
    for now in range(10):
        narration.update(idle, float(now))
    words = "joined the group, but no partitions are assigned: no topic matches ^typo, topic orders does not exist"
    assert lines_of(err)[-1] == words


def test_narration_ignores_closed_stderr() -> None:
    """A closed stderr, as after `2>&1 | head`, raises no error."""

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    Narration(Closed()).print("something")


def test_named_groups_partitions_into_ranges() -> None:
    """Partitions are sorted by topic, and adjacent numbers form a range."""
    places = [TopicPartition("b", 1), *(TopicPartition("a", number) for number in (7, 0, 2, 1, 4, 5))]
    assert named(places) == "a[0-2,4-5,7] b[1]"
