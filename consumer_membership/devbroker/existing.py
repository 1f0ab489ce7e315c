"""A broker that somebody else runs, named by the environment.

It comes first, because whoever sets the variable has decided. What it cannot promise (its version, its size,
its properties) is refused and never quietly ignored: a test that asked for 4.0.0 and ran on 4.3 has shown nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.errors import BrokerUnavailableError, WayMissingError
from consumer_membership.devbroker.probe import minor_line
from consumer_membership.devbroker.readiness import count_brokers
from consumer_membership.devbroker.request import Way

if TYPE_CHECKING:
    from consumer_membership.devbroker.request import BrokerRequest

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

_ANSWER_TIMEOUT_S = 5.0
_READY_TIMEOUT_S = 15.0


def start_existing(request: BrokerRequest) -> Broker:
    """The broker that the environment names, checked against the request; plaintext only.

    A version is matched by its minor line, which is what decides the protocol and all that a broker tells about itself.

    Raises:
        WayMissingError: The variable is not set.
        BrokerUnavailableError: The broker does not answer, or cannot promise what was asked for.
    """
    bootstrap_servers = os.environ.get(VARIABLE, "").strip()
    if not bootstrap_servers:
        raise WayMissingError(f"{VARIABLE} is not set; set it to the host:port of a running broker")
    if request.properties or request.port is not None or request.security is not None:
        _refuse(bootstrap_servers, request, "its properties, ports and listeners are not ours to set")
    brokers = count_brokers(bootstrap_servers, _ANSWER_TIMEOUT_S)
    if request.nodes is not None and request.nodes != brokers:
        _refuse(bootstrap_servers, request, f"it has {brokers} nodes")
    line = minor_line(bootstrap_servers.partition(",")[0].strip(), _ANSWER_TIMEOUT_S)
    if request.version is not None and not request.version.startswith(f"{line}."):
        _refuse(bootstrap_servers, request, f"its version is {line}")
    broker = Broker(way=Way.EXISTING, version=line, bootstrap_servers=bootstrap_servers)
    broker.wait_ready(_READY_TIMEOUT_S)
    return broker


def _refuse(bootstrap_servers: str, request: BrokerRequest, reason: str) -> None:
    raise BrokerUnavailableError(
        f"the existing broker {VARIABLE}={bootstrap_servers} cannot be {request}: {reason};"
        f" unset {VARIABLE}, or ask for another way"
    )
