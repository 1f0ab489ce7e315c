"""The consumer's report of its membership: group metadata for transactions, ids, epochs, the view."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import InternalError, UseError
from consumer_membership.clients.group_metadata import check_layout, epoch_in, pack_group_metadata
from consumer_membership.types import TopicPartition
from tests.clients.application import record, subscribed
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import MEMBER_ID


def test_group_metadata_bytes_have_librdkafka_s_layout() -> None:
    """The bytes have the magic, a native int32, strings with NUL, and a flag that no instance id follows."""
    assert pack_group_metadata("g", 7, "m", None) == b"CGMDv2:" + struct.pack("=i", 7) + b"g\0m\0\1"
    assert pack_group_metadata("g", -1, "m", "i") == b"CGMDv2:" + struct.pack("=i", -1) + b"g\0m\0\0i\0"


@pytest.mark.parametrize("epoch", [7, 0, -1, 2**31 - 1])
def test_epoch_of_group_metadata_bytes_is_read_back(epoch: int) -> None:
    """The epoch precedes the ids, so it can be read for all ids."""
    assert epoch_in(pack_group_metadata("g", epoch, "m", "i")) == epoch


@pytest.mark.parametrize("metadata", [b"", b"CGMDv2:", b"CGMDv3:\0\0\0\0g\0m\0\1"])
def test_epoch_of_bytes_in_another_layout_is_refused(metadata: bytes) -> None:
    """Otherwise a number that was never written would be taken for an epoch."""
    with pytest.raises(UseError, match="is not group metadata"):
        epoch_in(metadata)


@pytest.mark.parametrize(("group", "instance"), [("grüppe", None), ("g\n", None), ("g", "ï")])
def test_group_metadata_refuses_ids_that_librdkafka_cannot_read(group: str, instance: str | None) -> None:
    """The reader in librdkafka accepts only printable ASCII; the error names the key."""
    with pytest.raises(UseError, match="printable ASCII"):
        pack_group_metadata(group, 1, "m", instance)


def test_group_metadata_with_another_installed_layout_raises_an_error() -> None:
    """A producer would misread the bytes, so the error comes before their use."""
    with pytest.raises(InternalError, match="writes group metadata"):
        check_layout("g", b"CGMDv3:...")


def test_group_metadata_is_accepted_by_the_installed_producer(consumers: ConsumerFactory, topic: str) -> None:
    """The first use checks the installed client's layout, with and without a membership."""
    consumer = subscribed(consumers, topic, [], group_instance_id="i-1")
    assert consumer.consumer_group_metadata() == pack_group_metadata("group", -1, MEMBER_ID, "i-1")
    consumer.member.assign({TopicPartition(topic, 0): 0}, epoch=5)
    record(consumer)
    assert consumer.consumer_group_metadata() == pack_group_metadata("group", 5, MEMBER_ID, "i-1")
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t", "log_level": 0})
    with pytest.raises(Exception, match="state") as caught:  # read, then rejected because there is no transaction
        producer.send_offsets_to_transaction([PartitionOffset(topic, 0, 1)], consumer.consumer_group_metadata(), 1)
    assert caught.value.args[0].code() == -172


def test_generation_and_owned_since_return_the_member_epochs(consumers: ConsumerFactory, topic: str) -> None:
    """They return the member epoch, -1 without a membership, and the epoch at which a partition was assigned."""
    consumer = subscribed(consumers, topic, [])
    assert (consumer.generation(), consumer.owned_since(PartitionOffset(topic, 0))) == (-1, None)
    consumer.member.assign({TopicPartition(topic, 0): 0}, epoch=4)
    record(consumer)
    consumer.member.view = replace(consumer.member.view, member_epoch=6)
    assert (consumer.generation(), consumer.owned_since(PartitionOffset(topic, 0))) == (6, 4)
    assert consumer.membership() is consumer.member.view
    assert consumer.memberid() == MEMBER_ID
