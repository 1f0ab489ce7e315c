# For type checkers: `clients.names` finds the module.
from confluent_kafka.error import *  # noqa: F403
