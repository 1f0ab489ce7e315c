"""Run this package's consumer in Kafka's system tests: `python -m consumer_membership.kafkatest`.

Kafka's system tests start a consumer in its own process, and check the events that it writes to stdout, one JSON object
per line. The arguments and the events are those of the Java class `org.apache.kafka.tools.VerifiableConsumer`, so that
the same scenarios run with this package.

    __main__ ── verifiable_consumer     subscribes, polls, reports, commits
                 ├── arguments          the command line and the properties file -> configuration
                 └── events             events -> JSON

This package uses only the public consumer. No other package imports it.
"""
