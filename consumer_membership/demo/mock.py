"""Run librdkafka's embedded mock cluster in its own process, for a demo without a real broker.

    python -m consumer_membership.demo.mock '[TOPIC, PARTITIONS, SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS]'

The mock cluster is not Apache Kafka: it implements the protocol in memory with a simple assignor. It needs its own
process because an unexpected request can abort the process by an assertion. confluent-kafka's Python API does not have
the control functions, so they are called in the librdkafka library inside its wheel.

The bootstrap address is the only line on stdout; the end of stdin ends the process.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

from consumer_membership.demo.members import start_module

_ERROR_LENGTH = 512
_PRODUCER = 0  # RD_KAFKA_PRODUCER
_STOP_S = 5.0


class MockUnavailableError(Exception):
    """The mock cluster cannot be started with the installed librdkafka."""


@contextmanager
def mock_cluster(topic: str, partitions: int, session_timeout_ms: int, heartbeat_interval_ms: int) -> Iterator[str]:
    """Yield the bootstrap address of a mock cluster with this topic, and end the cluster afterwards.

    Raises:
        MockUnavailableError: The cluster did not start.
    """
    argument = json.dumps([topic, partitions, session_timeout_ms, heartbeat_interval_ms])
    with start_module(__name__, argument) as process:
        try:
            address = process.stdout.readline().strip() if process.stdout is not None else ""
            if not address:
                raise MockUnavailableError("librdkafka's mock cluster did not start; its output is above")
            yield address
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _library() -> ctypes.CDLL:
    """Load the librdkafka inside confluent-kafka's wheel."""
    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    found = [path for folder in folders for path in sorted(folder.glob("librdkafka*"))]
    if not found:
        raise MockUnavailableError(
            "librdkafka was not found, because confluent-kafka was not installed from a wheel; use another --backend"
        )
    library = ctypes.CDLL(str(found[0]))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for function, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set_log_cb", None, [pointer, pointer]),
        ("rd_kafka_new", pointer, [number, pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, ctypes.c_char_p, number, number]),
        ("rd_kafka_mock_set_group_consumer_session_timeout_ms", None, [pointer, number]),
        ("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", None, [pointer, number]),
    ):
        called = getattr(library, function)
        called.restype, called.argtypes = result, arguments
    return library


def _serve(topic: str, partitions: int, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
    library = _library()
    error = ctypes.create_string_buffer(_ERROR_LENGTH)
    configuration = library.rd_kafka_conf_new()
    # No log: librdkafka would warn about the missing bootstrap.servers of this handle, which never connects.
    library.rd_kafka_conf_set_log_cb(configuration, None)
    handle = library.rd_kafka_new(_PRODUCER, configuration, error, _ERROR_LENGTH)
    if not handle:
        raise MockUnavailableError(error.value.decode())
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    library.rd_kafka_mock_topic_create(cluster, topic.encode(), partitions, 1)
    library.rd_kafka_mock_set_group_consumer_session_timeout_ms(cluster, session_timeout_ms)
    library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(cluster, heartbeat_interval_ms)
    sys.stdout.write(library.rd_kafka_mock_cluster_bootstraps(cluster).decode() + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve(*json.loads(sys.argv[1]))
