"""The versions that brokers support of the APIs that this package calls: by API key, the lowest and highest version."""

from __future__ import annotations

#: The versions of Apache Kafka 4.0 to 4.4; tests/integration/test_broker_differences.py compares them with brokers.
KAFKA_4_0 = {2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (2, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5)}
KAFKA_4_0 |= {15: (0, 6), 17: (0, 1), 18: (0, 4), 32: (1, 4), 36: (0, 2), 68: (0, 1), 69: (0, 1)}
KAFKA_4_0 |= {16: (0, 5), 61: (0, 0), 65: (0, 0), 66: (0, 1)}
KAFKA_4_1 = KAFKA_4_0 | {11: (0, 9), 66: (0, 2)}
KAFKA_4_2 = KAFKA_4_1 | {2: (1, 11), 8: (2, 10), 9: (1, 10)}
KAFKA_4_3 = KAFKA_4_2
KAFKA_4_4 = KAFKA_4_3 | {18: (0, 5)}
#: By minor version.
KAFKA_4 = {"4.0": KAFKA_4_0, "4.1": KAFKA_4_1, "4.2": KAFKA_4_2, "4.3": KAFKA_4_3, "4.4": KAFKA_4_4}
#: The versions of librdkafka 2.16's mock cluster.
MOCK = {2: (0, 7), 3: (0, 12), 8: (0, 9), 9: (0, 6), 10: (0, 3), 11: (0, 6), 12: (0, 5), 13: (0, 4), 14: (0, 4)}
MOCK |= {18: (0, 2), 68: (1, 1)}
#: The versions of Apache Kafka 3.9.1, 2.8.2 and 2.4.1 for classic members and administrators (from their responses).
KAFKA_3_9 = {2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5)}
KAFKA_3_9 |= {15: (0, 5), 18: (0, 4), 32: (0, 4), 68: (0, 0), 69: (0, 0)}
KAFKA_2_8 = {2: (0, 6), 3: (0, 11), 8: (0, 8), 9: (0, 7), 10: (0, 3), 11: (0, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5)}
KAFKA_2_8 |= {15: (0, 5), 18: (0, 3), 32: (0, 4)}
KAFKA_2_4 = {2: (0, 5), 3: (0, 9), 8: (0, 8), 9: (0, 6), 10: (0, 3), 11: (0, 6), 12: (0, 4), 13: (0, 4), 14: (0, 4)}
KAFKA_2_4 |= {15: (0, 5), 18: (0, 3), 32: (0, 2)}
#: The versions of Redpanda, from its source; it does not support the consumer protocol.
REDPANDA = {2: (0, 4), 3: (0, 8), 8: (1, 8), 9: (1, 7), 10: (0, 3), 11: (0, 6), 12: (0, 4), 13: (0, 4), 14: (0, 4)}
REDPANDA |= {15: (0, 5), 18: (0, 3), 32: (0, 4)}
