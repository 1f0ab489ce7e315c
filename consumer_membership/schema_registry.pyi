# For type checkers: `clients.names` finds the module.
from confluent_kafka.schema_registry import *  # noqa: F403
