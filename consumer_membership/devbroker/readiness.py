"""When a broker is ready: it answers, all its nodes are registered, and a group can find its coordinator.

An open port is not enough. On a fresh broker the topic __consumer_offsets does not exist; the first FindCoordinator
makes the broker create it, and until its partitions are led and loaded every group request is answered
NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS. Whoever waits here never meets that, since each partition of the topic
is the coordinator of some groups, and all of them are asked.

The question is to describe groups that do not exist, which creates none.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.probe import Probe, ProbeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka.admin._metadata import ClusterMetadata

_PORT_POLL_S = 0.02
_REQUEST_POLL_S = 0.05
_REQUEST_TIMEOUT_S = 2.0
_OFFSETS_TOPIC = "__consumer_offsets"
_COORDINATOR_ANSWERED = frozenset({KafkaError.NO_ERROR, KafkaError.GROUP_AUTHORIZATION_FAILED})

# librdkafka tells stderr about every refused connection, and waiting for a broker is made of refused connections.
_silent = logging.getLogger(f"{__name__}.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class _NotReadyError(Exception):
    """Not yet; the text says what is missing, and becomes the error's if it stays so."""


def admin_client(bootstrap_servers: str, login: Mapping[str, str] = MappingProxyType({})) -> AdminClient:
    """A quiet and impatient admin client; the caller keeps it as long as its futures.

    `login` holds the properties of a listener that is not plaintext.
    """
    return AdminClient({**_config(bootstrap_servers), **login}, logger=_silent)


def await_ready(
    bootstrap_servers: str,
    *,
    nodes: Sequence[str],
    secured: Sequence[str] = (),
    check: Callable[[], None],
    timeout_s: float,
) -> None:
    """Return as soon as the broker is ready.

    Args:
        bootstrap_servers: Where to ask.
        nodes: host:port of each node that must be there; empty for a broker that is not ours.
        secured: host:port of the further listeners that must be open.
        check: Called between attempts; raises where waiting is in vain, say because a process has died.
        timeout_s: How long to wait for each of: the ports, the registration, the coordinator.

    Raises:
        BrokerUnavailableError: Something was still missing at the end of that time.
    """

    def persist(act: Callable[[], None], every_s: float = _REQUEST_POLL_S) -> None:
        _persist(act, check=check, every_s=every_s, timeout_s=timeout_s)

    # A refused connection tells sooner than librdkafka, which backs off after each.
    for address in (*nodes, *secured):
        persist(partial(_connect, address), _PORT_POLL_S)
    admin = admin_client(bootstrap_servers)
    persist(lambda: _registered(admin, max(1, len(nodes))))
    # The first question makes the topic, whose partitions the second one needs.
    persist(lambda: _coordinated(bootstrap_servers, 1))
    persist(lambda: _coordinated(bootstrap_servers, _coordinators(admin)))


def count_brokers(bootstrap_servers: str, timeout_s: float) -> int:
    """How many brokers a cluster has; asked once.

    Raises:
        BrokerUnavailableError: It does not answer in time.
    """
    try:
        return len(admin_client(bootstrap_servers).list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        raise BrokerUnavailableError(f"no broker answers at {bootstrap_servers}: {error}") from error


def _config(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 50,
    }


def _persist(act: Callable[[], None], *, check: Callable[[], None], every_s: float, timeout_s: float) -> None:
    def attempt() -> None:
        check()
        act()

    retrying = Retrying(
        retry=retry_if_exception_type(_NotReadyError),
        wait=wait_fixed(every_s),
        stop=stop_after_delay(timeout_s),
        reraise=True,
    )
    try:
        retrying(attempt)
    except _NotReadyError as error:
        raise BrokerUnavailableError(f"the broker was not ready after {timeout_s:.0f} s: {error}") from error


def _connect(address: str) -> None:
    try:
        with Probe(address, _REQUEST_TIMEOUT_S):
            pass
    except ProbeError as error:
        raise _NotReadyError(str(error)) from error


def _metadata(admin: AdminClient, topic: str | None = None) -> ClusterMetadata:
    try:
        return admin.list_topics(topic, timeout=_REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise _NotReadyError(f"metadata request: {error}") from error


def _registered(admin: AdminClient, brokers: int) -> None:
    registered = _metadata(admin).brokers
    if len(registered) < brokers:
        raise _NotReadyError(f"{len(registered)} of {brokers} nodes are registered")


def probe_groups(coordinators: int) -> list[str]:
    """One group id for each partition of the offsets topic.

    A group's partition is its id's Java hash code modulo their number; ids whose last letters are neighbours
    have hash codes that are neighbours, so that many ids fall on that many partitions.
    """
    return [f"devbroker-{chr(ord('0') + offset)}" for offset in range(coordinators)]


def _coordinated(bootstrap_servers: str, coordinators: int) -> None:
    try:
        groups_at = _coordinator_addresses(bootstrap_servers, probe_groups(coordinators))
        for address, group_ids in groups_at.items():
            with Probe(address, _REQUEST_TIMEOUT_S) as probe:
                for group_id in group_ids:
                    _require_answer(f"the coordinator {address} of group {group_id}", probe.describe_group(group_id))
    except ProbeError as error:
        raise _NotReadyError(str(error)) from error


def _coordinator_addresses(bootstrap_servers: str, group_ids: Sequence[str]) -> dict[str, list[str]]:
    """The groups of each coordinator, as the first bootstrap server that listens tells it."""
    groups_at = defaultdict[str, list[str]](list)
    with _first_probe(bootstrap_servers) as probe:
        for group_id in group_ids:
            code, address = probe.find_coordinator(group_id)
            _require_answer(f"looking for the coordinator of group {group_id}", code)
            groups_at[address].append(group_id)
    return groups_at


def _first_probe(bootstrap_servers: str) -> Probe:
    refused: list[str] = []
    for address in bootstrap_servers.split(","):
        try:
            return Probe(address.strip(), _REQUEST_TIMEOUT_S)
        except ProbeError as error:
            refused.append(str(error))
    raise ProbeError("; ".join(refused))


def _require_answer(act: str, code: int) -> None:
    if code not in _COORDINATOR_ANSWERED:
        raise _NotReadyError(f"{act}: error {KafkaError(code).name()}")


def _coordinators(admin: AdminClient) -> int:
    """How many partitions the offsets topic has, all of them with a leader."""
    topic = _metadata(admin, _OFFSETS_TOPIC).topics[_OFFSETS_TOPIC]
    if topic.error is not None or any(partition.leader < 0 for partition in topic.partitions.values()):
        raise _NotReadyError(f"{_OFFSETS_TOPIC} has partitions without a leader")
    return len(topic.partitions)
