"""Features that the installed confluent-kafka lacks, because the package is also tested with older releases."""

from __future__ import annotations

import confluent_kafka

RELEASE = tuple(int(number) for number in confluent_kafka.__version__.split(".")[:2])  # type: ignore[attr-defined]  # its stub is wrong
#: Methods of confluent-kafka's consumer that crash the process if the consumer is closed or was never initialized.
CRASHES_CLOSED = frozenset({"pause", "resume", "set_sasl_credentials", "list_topics"} if RELEASE < (2, 16) else ())
