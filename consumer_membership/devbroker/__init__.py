"""A real Apache Kafka for the demo, the tests and the benchmarks.

`start()` gives a broker that is ready for groups, from an existing one, Docker or local JVMs, in this order; in
plaintext, and by local JVMs with listeners for TLS and SASL beside it, where a `Security` is given. The room knows
nothing of the package's clients and wire: the thing that they are tested against must not be made of them.
Only the command line imports it.
"""

from consumer_membership.devbroker.backends import start
from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError
from consumer_membership.devbroker.listeners import Security
from consumer_membership.devbroker.request import DEFAULT_VERSION, SUPPORTED_VERSIONS, Backend

__all__ = [
    "DEFAULT_VERSION",
    "SUPPORTED_VERSIONS",
    "Backend",
    "BackendMissingError",
    "Broker",
    "BrokerUnavailableError",
    "Security",
    "start",
]
