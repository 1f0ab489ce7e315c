"""librdkafka's own error codes, whose names are private in confluent-kafka."""

from __future__ import annotations

from confluent_kafka import KafkaError

from consumer_membership import types
from consumer_membership.runtime.application import session_errors


def test_error_codes_are_librdkafkas() -> None:
    """Each code has the number of the name without `_CODE`."""
    codes = {name: code for name, code in vars(session_errors).items() if name.endswith("_CODE")}
    codes |= {f"{name}_CODE": getattr(types, f"{name}_CODE") for name in ("CONFLICT", "FATAL", "TIMED_OUT")}
    codes["TRANSPORT_CODE"] = types.TRANSPORT_CODE
    assert codes == {name: getattr(KafkaError, f"_{name.removesuffix('_CODE')}") for name in codes}
    assert len(codes) == 8
