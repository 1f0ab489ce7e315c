"""The buffer between the handle and the application."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue, PrefetchBuffer, Waiting
from consumer_membership.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def messages(*places: tuple[TopicPartition, int]) -> list[Message]:
    """Return records with these partitions and offsets."""
    return [Message(topic=p.topic, partition=p.partition, offset=offset) for p, offset in places]


def places(found: list[Message]) -> list[tuple[TopicPartition, int]]:
    """Return partition and offset of each record."""
    return [(TopicPartition(m.topic() or "", m.partition() or 0), m.offset() or 0) for m in found]


def take_in(buffer: PrefetchBuffer, batch: list[Message]) -> None:
    """Add a batch that the handle has fetched."""
    buffer.landed.append(batch)
    buffer.take_in()


def hand_out(buffer: PrefetchBuffer, limit: int) -> list[Message]:
    """Return the records that the application receives."""
    return [buffer.ready.popleft() for _ in range(min(limit, len(buffer.ready)))]


def test_unparked_records_come_before_newer_ones() -> None:
    """Parking removes one partition's records and leaves the others in their order."""
    buffer = PrefetchBuffer()
    take_in(buffer, messages((A, 1), (B, 1), (A, 2), (B, 2)))
    buffer.park({A})
    assert places(hand_out(buffer, 9)) == [(B, 1), (B, 2)]
    take_in(buffer, messages((A, 3)))
    buffer.unpark([A])
    assert places(hand_out(buffer, 9)) == [(A, 1), (A, 2), (A, 3)]


def test_progress_counts_delivered_records() -> None:
    """Buffered, parked and dropped records do not count as delivered; `turns` shows that the thread is active."""
    buffer = PrefetchBuffer()
    take_in(buffer, messages((A, 1), (B, 1), (B, 2), (A, 2)))
    buffer.turns += 3
    assert buffer.progress() == (3, 0)
    buffer.park({A})
    buffer.drop({B})
    assert buffer.progress() == (3, 0)
    buffer.unpark([A])
    hand_out(buffer, 1)
    buffer.landed.append(messages(*[(B, offset) for offset in range(3, 13)]))
    whole: HandOutQueue[list[Message]] = HandOutQueue()
    buffer.offer(whole)
    assert len(whole.popleft()) == 10
    assert buffer.progress() == (14, 11)


def test_waiting_counts_records_and_bytes_of_each_partition() -> None:
    """Parked records also count; messages with an error do not."""
    buffer = PrefetchBuffer()
    take_in(buffer, [Message(topic="t", partition=0, offset=n, key=b"k", value=b"value") for n in range(3)])
    take_in(buffer, [Message(topic="t", partition=1, offset=1, error=KafkaError(KafkaError._PARTITION_EOF))])
    buffer.park({A})
    take_in(buffer, messages((B, 1)))
    assert buffer.waiting() == {A: Waiting(records=3, bytes=18), B: Waiting(records=1)}


def test_first_undelivered_prefers_parked_records() -> None:
    """Parked records are older than the records in the buffer."""
    buffer = PrefetchBuffer()
    take_in(buffer, messages((A, 5), (B, 7)))
    buffer.park({A})
    take_in(buffer, messages((A, 6), (B, 8)))
    found = buffer.first_undelivered({A, B})
    assert {partition: message.offset() for partition, message in found.items()} == {A: 5, B: 7}


def test_drop_keeps_errors_without_a_partition() -> None:
    """An error of the whole consumer belongs to no partition; an error of a partition has no position."""
    buffer = PrefetchBuffer()
    whole = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    end = Message(topic="t", partition=0, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))
    take_in(buffer, [whole, end])
    assert buffer.first_undelivered({A}) == {}
    buffer.drop({A})
    assert hand_out(buffer, 9) == [whole]


_ACTIONS = st.lists(
    st.sampled_from(["park A", "park B", "unpark A", "unpark B", "out", "in A", "in B"]), min_size=1, max_size=40
)


@given(_ACTIONS)
def test_prefetch_buffer_delivers_each_partition_completely_and_in_order(actions: list[str]) -> None:
    """The rule holds for any sequence of parking and unparking, if parked partitions receive no new records."""
    buffer = PrefetchBuffer()
    named = {"A": A, "B": B}
    made = {A: 0, B: 0}
    parked: set[TopicPartition] = set()
    out: list[tuple[TopicPartition, int]] = []
    for action in actions:
        word, _, name = action.partition(" ")
        partition = named.get(name, A)
        if word == "out":
            out += places(hand_out(buffer, 2))
        elif word == "in" and partition not in parked:
            made[partition] += 1
            take_in(buffer, messages((partition, made[partition])))
        elif word == "park":
            parked.add(partition)
            buffer.park({partition})
        elif word == "unpark":
            parked.discard(partition)
            buffer.unpark([partition])
        assert not parked & {partition for partition, _ in places(list(buffer.ready))}
    buffer.unpark([A, B])
    out += places(hand_out(buffer, 100))
    for partition, count in made.items():
        assert [offset for place, offset in out if place == partition] == list(range(1, count + 1))
    assert buffer.progress() == (sum(made.values()), sum(made.values()))
