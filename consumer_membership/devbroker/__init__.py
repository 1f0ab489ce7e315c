"""Start a real Apache Kafka broker for the demo, the tests and the benchmarks.

`start()` returns a broker that is ready for groups: an existing one, one in Docker, or one in local JVMs, in this
order. The listener is plaintext; with a `Security`, local JVMs also have listeners for TLS and SASL. The package must
not import the clients or `wire`, because these are tested against the broker. Only the demo and the command line
import it.
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
