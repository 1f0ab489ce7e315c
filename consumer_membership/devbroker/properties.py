"""The broker properties of one node, as a server.properties file or as KAFKA_* variables.

The nodes run in combined mode: every node is a broker, and the first three (or only the first, if there are fewer than
three) are also controllers. With three JVMs, any one can be stopped without losing the quorum; separate controllers
would need a fourth process. With two nodes, only node 1 is a controller, because a quorum of two needs both nodes.
"""

from __future__ import annotations

import base64
import secrets
import struct
from collections.abc import Mapping

from consumer_membership.devbroker.listeners import SECURED_LISTENERS, Security, secured_properties

_MOST_CONTROLLERS = 3
_REPLICAS = 3  # Kafka's default for internal topics
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_INTERNAL_PARTITIONS = "8"
"""The partitions of each internal topic instead of 50, because a new broker creates them before its first group, and a
restarted one loads them. Groups still use several coordinator shards and, with three nodes, all brokers."""

_PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **SECURED_LISTENERS}


def cluster_id() -> str:
    """Return 16 random bytes in URL-safe base64 without padding.

    The first character is never `-`, which Kafka's format tool would interpret as an option.
    """
    return "k" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:]


def controller_ids(nodes: int) -> range:
    """Return the ids of the nodes that are also controllers; their number is odd."""
    return range(1, (_MOST_CONTROLLERS if nodes >= _MOST_CONTROLLERS else 1) + 1)


def node_properties(
    *,
    node_id: int,
    nodes: int,
    log_dir: str,
    bound: Mapping[str, str],
    advertised: Mapping[str, str],
    voters: Mapping[int, str],
    security: Security | None = None,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return all properties of the node `node_id` (1 to `nodes`); `extra` has the caller's, which take precedence.

    `bound` and `advertised` have host:port of the listeners by name. CONTROLLER is never advertised, and in `bound` it
    is used only for controllers. `voters` has host:port of each controller by node id.
    """
    is_controller = node_id in controller_ids(nodes)
    mine = {name: address for name, address in bound.items() if is_controller or name != "CONTROLLER"}
    replicas = str(min(nodes, _REPLICAS))
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller" if is_controller else "broker",
        "listeners": _joined("://", mine),
        "advertised.listeners": _joined("://", advertised),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": _joined("@", voters),
        "inter.broker.listener.name": "INTERNAL" if "INTERNAL" in bound else "PLAINTEXT",
        "listener.security.protocol.map": _joined(":", _PROTOCOLS),
        "log.dirs": log_dir,
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": _INTERNAL_PARTITIONS,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": _INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": _INTERNAL_PARTITIONS,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # The default of 128 MiB is allocated at the start, and the heap is small.
        "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
        # With the default, there is a record every half second, which doubles the CPU time of an idle broker.
        "metadata.max.idle.interval.ms": "0",
        **(secured_properties(security) if security is not None else {}),
        **extra,
    }


def _joined(sign: str, pairs: Mapping[str, str] | Mapping[int, str]) -> str:
    return ",".join(f"{key}{sign}{value}" for key, value in pairs.items())


def properties_file(properties: Mapping[str, str]) -> str:
    """Return the text of a server.properties file with these properties, in ASCII."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    """Escape a value for java.util.Properties, which reads Latin-1 and escapes of UTF-16 code units."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    return "".join(chr(unit) if chr(unit).isascii() else f"\\u{unit:04x}" for (unit,) in units)


def system_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the JVM's own properties that a broker with these properties needs.

    Since Kafka 4.0, a broker reads the keys of an identity provider only from a URL that the JVM allows.
    """
    urls = sorted({value for key, value in properties.items() if key.endswith(_JWKS_URL)})
    return {_ALLOWED_URLS: ",".join(urls)} if urls else {}


def container_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as environment variables for the image apache/kafka.

    The image's rule: prefix KAFKA_, upper case, `.` becomes `_`, `_` becomes `__`, and `-` becomes `___`.
    """
    return {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in properties.items()
    }
