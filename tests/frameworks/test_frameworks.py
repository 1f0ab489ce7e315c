"""Frameworks that create their own consumers also work with this package: no record is lost or repeated.

Each program runs unchanged with confluent-kafka, and then under `consumer-membership run`. One member works, another
joins, and the first leaves at a signal, while records are written all the time.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import draw_ports
from tests.frameworks.environments import FASTSTREAM, environment
from tests.frameworks.members import PARTITIONS, Journey, Member, Outcome
from tests.support.kafka import create_topic, produce, read_committed, unique, wait_for_end_of_transactions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

APPS = Path(__file__).parent / "apps"
#: The releases are pinned, so that a later release is used only after a deliberate change.
QUIXSTREAMS = "quixstreams==3.28.1"
STREAMZ = "streamz==0.6.6"
BYTEWAX = "bytewax[kafka]==0.21.1"

#: The two consumers, each with the type of its group.
WHOSE = {"raw": "CLASSIC", "ours": "CONSUMER"}
GOOD = Outcome(lost=[], twice=[], codes=[0, 0])


def program(python: Path, whose: str, *words: str) -> list[str]:
    """Return the command that runs this program, with this package's consumer if `whose` is not `raw`."""
    command = [str(python), *words]
    return command if whose == "raw" else [str(python), "-m", "consumer_membership", "run", "--", *command]


def journey(python: Path, whose: str, kafka: Broker, app: str, *more: str) -> tuple[Journey, Outcome]:
    """Run a walkthrough of two members with this program, in a group with its own topic; return it and its outcome."""
    servers, name = kafka.bootstrap_servers, unique("frameworks")
    topic = create_topic(servers, name, PARTITIONS)

    def start(number: int) -> Member:
        given = [one.format(number=number) for one in more]
        return Member(program(python, whose, str(APPS / app), servers, topic, name, *given))

    made = Journey(servers, topic, name, start)
    outcome = made.run()
    assert made.protocol == WHOSE[whose]
    return made, outcome


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_quixstreams_counts_every_record_once(kafka: Broker, tmp_path: Path, guarantee: str) -> None:
    """The count of each key continues after a rebalance, because partitions of the state move with those of the topic.

    Quixstreams was written for eager callbacks: when one partition is revoked, it also drops the last counts of the
    retained ones.
    """
    python = environment("quixstreams", QUIXSTREAMS)
    for whose in WHOSE:
        output = create_topic(kafka.bootstrap_servers, unique("counted"), PARTITIONS)
        folder = str(tmp_path / whose / "{number}")
        made, outcome = journey(python, whose, kafka, "app_quixstreams.py", output, guarantee, folder)
        assert outcome == GOOD, whose
        counts = defaultdict(list)
        wait_for_end_of_transactions(kafka.bootstrap_servers, output)
        for message in read_committed(kafka.bootstrap_servers, output):
            number, count = (message.value() or b"").decode().split()
            counts[int(number) % PARTITIONS].append(int(count))
        for key in range(PARTITIONS):
            written = len(range(key, made.written, PARTITIONS))
            assert sorted(counts[key]) == list(range(1, written + 1)), (whose, key)


@pytest.mark.parametrize("mode", ["single", "batch", "manual"])
def test_faststream_handles_every_record_once(kafka: Broker, mode: str) -> None:
    """Faststream, which calls its consumer from a thread of an asyncio program, handles each record once."""
    python = environment("faststream", FASTSTREAM)
    found = {whose: journey(python, whose, kafka, "app_faststream.py", mode)[1] for whose in WHOSE}
    assert found == {"raw": GOOD, "ours": GOOD}


def test_streamz_emits_every_record_once(kafka: Broker) -> None:
    """Streamz, which polls without waiting from tornado's loop and unsubscribes before it closes, loses no record.

    The only exception: it drops the result of a source's first poll, with either consumer.
    """
    python = environment("streamz", STREAMZ)
    for whose in WHOSE:
        made, outcome = journey(python, whose, kafka, "app_streamz.py")
        first = {member: {n % PARTITIONS: n for n in reversed(seen)} for member, seen in enumerate(made.records)}
        thrown_away = {n - PARTITIONS for of_member in first.values() for n in of_member.values()}
        assert set(outcome.lost) <= thrown_away, whose
        assert len(outcome.lost) <= len(made.records), whose
        assert (outcome.twice, outcome.codes) == (GOOD.twice, GOOD.codes), whose


def test_bytewax_reads_every_record_once(kafka: Broker) -> None:
    """Bytewax reads each record once with two processes, which assign partitions manually and have no group."""
    python = environment("bytewax", BYTEWAX)
    count = 2_000
    topic = create_topic(kafka.bootstrap_servers, unique("frameworks"), PARTITIONS)
    produce(kafka.bootstrap_servers, topic, count)
    more = {"SERVERS": kafka.bootstrap_servers, "TOPIC": topic}
    for whose in WHOSE:
        addresses = ";".join(f"127.0.0.1:{port}" for port in draw_ports(2))
        words = ("-m", "bytewax.run", "app_bytewax", "-a", addresses, "-i")
        with (
            Member(program(python, whose, *words, "0"), APPS, more) as first,
            Member(program(python, whose, *words, "1"), APPS, more) as second,
        ):
            codes = [first.end(), second.end()]
            found = Outcome.of(count, [*first.records, *second.records], codes)
            assert found == GOOD, [whose, *first.other, *second.other]
            assert first.records
            assert second.records
