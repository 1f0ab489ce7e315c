"""The bytes of `consumer_group_metadata()`: what a transactional producer sends along with offsets.

librdkafka's format (rd_kafka_consumer_group_metadata_write): the magic, the generation as a native int32, the group id
and the member id each with a NUL, a byte that says whether no instance id follows, and the instance id with a NUL. The
broker fences a transaction's offsets by what stands in it, so fetch it right before use: the epoch moves.
"""

from __future__ import annotations

import struct

from consumer_membership.errors import InternalError, UseError
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID

_MAGIC = b"CGMDv2:"
_EPOCH = struct.Struct("=i")
_NO_INSTANCE, _INSTANCE = b"\1", b"\0"


def pack_group_metadata(group_id: str, member_epoch: int, member_id: str, instance_id: str | None) -> bytes:
    """The bytes as `Producer.send_offsets_to_transaction` takes them.

    Raises:
        UseError: an id holds characters that librdkafka's reader does not take (other than printable ASCII).
    """
    for name, text in (("group.id", group_id), ("group.instance.id", instance_id or "")):
        if not (text.isascii() and text.isprintable()):
            raise UseError(
                f"{name}={text!r}: transactions need an id of printable ASCII characters; choose another {name}"
            )
    packed = _MAGIC + _EPOCH.pack(member_epoch) + group_id.encode() + b"\0" + member_id.encode() + b"\0"
    return packed + (_NO_INSTANCE if instance_id is None else _INSTANCE + instance_id.encode() + b"\0")


def epoch_in(metadata: bytes) -> int:
    """The member epoch that `pack_group_metadata` was given; below 0: of no member.

    Raises:
        UseError: these are no group metadata.
    """
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + _EPOCH.size:
        raise UseError(f"{metadata!r} is no group metadata; pass what consumer_group_metadata() gave")
    epoch: int = _EPOCH.unpack_from(metadata, len(_MAGIC))[0]
    return epoch


def check_layout(group_id: str, produced: bytes) -> None:
    """Compare with what the installed client writes for a consumer that is no member.

    Raises:
        InternalError: the client writes something else, so its producer would not understand these bytes.
    """
    expected = pack_group_metadata(group_id, NO_EPOCH, NO_MEMBER_ID, None)
    if produced != expected:
        raise InternalError(
            f"the installed confluent-kafka writes group metadata as {produced!r} and not as {expected!r}, so "
            "transactions cannot carry this member's; install a confluent-kafka of 2.6 to 2.16"
        )
