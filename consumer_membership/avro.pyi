# For type checkers: `clients.names` finds the module.
from confluent_kafka.avro import *  # noqa: F403
