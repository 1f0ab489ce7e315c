"""Broker properties of one node, in the two spellings: a server.properties file and KAFKA_* variables.

Why combined mode: every node is a broker, and the first three (or the first alone, when there are fewer than three) are
controllers as well. Three JVMs are then a cluster of three, any one of which may be stopped without losing the
quorum, where separate controllers would take a fourth process. With two nodes the quorum is node 1 alone, since a
quorum of two stops as soon as either is away.
"""

from __future__ import annotations

import base64
import secrets
import struct
from collections.abc import Mapping

from consumer_membership.devbroker.listeners import SECURED_LISTENERS, Security, secured_properties

_MOST_CONTROLLERS = 3
_REPLICAS = 3  # Kafka's own default for the internal topics
_INTERNAL_PARTITIONS = "8"
"""Partitions of each internal topic, instead of 50: a fresh broker creates them before its first group, and a
restarted one loads them. Groups are still spread over several coordinator shards and, with three nodes, over all
brokers."""

_PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **SECURED_LISTENERS}


def cluster_id() -> str:
    """16 random bytes in URL-safe base64 without padding.

    Never with `-` in front, which Kafka's format tool would take for an option.
    """
    return "k" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:]


def controller_ids(nodes: int) -> range:
    """The node ids that are controllers too: an odd number of them."""
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
    """All properties of the node `node_id`, from 1 to `nodes`; `extra`, the caller's, win over the rest.

    `bound` and `advertised` have host:port of its listeners by name, where it listens and as others are told;
    CONTROLLER is never advertised, and counts in `bound` where the node is one. `voters`: host:port of each controller,
    by node id.
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
        # The default of 128 MiB is taken from the heap at once, which is small here.
        "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
        # Otherwise a record every half second, and twice the CPU time of a broker that nobody uses.
        "metadata.max.idle.interval.ms": "0",
        **(secured_properties(security) if security is not None else {}),
        **extra,
    }


def _joined(sign: str, pairs: Mapping[str, str] | Mapping[int, str]) -> str:
    return ",".join(f"{key}{sign}{value}" for key, value in pairs.items())


def properties_file(properties: Mapping[str, str]) -> str:
    """The text of a server.properties with these properties, in ASCII."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    """As java.util.Properties reads it back: Latin-1, in which other letters are escapes of their UTF-16 units."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    return "".join(chr(unit) if chr(unit).isascii() else f"\\u{unit:04x}" for (unit,) in units)


def container_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties as the variables that the image apache/kafka reads.

    Its rule: KAFKA_ in front, upper case, `.` becomes `_`, `_` becomes `__` and `-` becomes `___`.
    """
    return {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in properties.items()
    }
