# For type checkers: `clients.names` finds the module.
from confluent_kafka.serialization import *  # noqa: F403
