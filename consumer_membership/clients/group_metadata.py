"""The bytes of `consumer_group_metadata()`, which a transactional producer sends with the offsets.

The format is librdkafka's (rd_kafka_consumer_group_metadata_write): the magic, the generation as a native int32, the
group id and the member id each with a NUL, a byte that is 1 if no instance id follows, and the instance id with a NUL.
The broker uses these values to fence the offsets of a transaction. Fetch them immediately before use, because the epoch
changes.
"""

from __future__ import annotations

import struct

from consumer_membership.errors import InternalError, UseError
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID

_MAGIC = b"CGMDv2:"
_EPOCH = struct.Struct("=i")
_NO_INSTANCE, _INSTANCE = b"\1", b"\0"


def pack_group_metadata(group_id: str, member_epoch: int, member_id: str, instance_id: str | None) -> bytes:
    """Return the bytes that `Producer.send_offsets_to_transaction` accepts.

    Raises:
        UseError: an id has characters that librdkafka's reader rejects (all but printable ASCII).
    """
    for name, text in (("group.id", group_id), ("group.instance.id", instance_id or "")):
        if not (text.isascii() and text.isprintable()):
            raise UseError(
                f"{name}={text!r}: transactions need an id of printable ASCII characters; choose another {name}"
            )
    packed = _MAGIC + _EPOCH.pack(member_epoch) + group_id.encode() + b"\0" + member_id.encode() + b"\0"
    return packed + (_NO_INSTANCE if instance_id is None else _INSTANCE + instance_id.encode() + b"\0")


def epoch_in(metadata: bytes) -> int:
    """Return the member epoch in the bytes of `pack_group_metadata`; it is negative outside a group.

    Raises:
        UseError: the bytes are not group metadata.
    """
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + _EPOCH.size:
        raise UseError(f"{metadata!r} is not group metadata; pass the result of consumer_group_metadata()")
    epoch: int = _EPOCH.unpack_from(metadata, len(_MAGIC))[0]
    return epoch


def unpack_group_metadata(metadata: bytes) -> tuple[str, str, int]:
    """Return group id, member id and member epoch from the bytes of `pack_group_metadata`.

    Raises:
        UseError: the bytes are not group metadata.
    """
    epoch = epoch_in(metadata)
    group_id, member_id, _ = metadata[len(_MAGIC) + _EPOCH.size :].split(b"\0", 2)
    return group_id.decode(), member_id.decode(), epoch


def check_layout(group_id: str, produced: bytes) -> None:
    """Compare this format with the bytes that the installed client writes for a consumer that is not a member.

    Raises:
        InternalError: the formats differ, so the client's producer could not read this package's bytes.
    """
    expected = pack_group_metadata(group_id, NO_EPOCH, NO_MEMBER_ID, None)
    if produced != expected:
        raise InternalError(
            f"the installed confluent-kafka writes group metadata as {produced!r} and not as {expected!r}, so "
            "transactions cannot use this member's metadata; install confluent-kafka 2.6 to 2.16"
        )
