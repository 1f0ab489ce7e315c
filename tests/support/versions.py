"""The versions of Apache Kafka that tests use, by their role; devbroker has the list of supported versions."""

from __future__ import annotations

from consumer_membership.devbroker import SUPPORTED_VERSIONS
from consumer_membership.devbroker.request import CLASSIC_VERSIONS

#: The first supported release with the consumer protocol, and the newest release.
OLDEST, NEWEST = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]

#: The other versions, which only `python -m tests --full` uses: the newest patch of each minor version, oldest first.
OTHERS = (*CLASSIC_VERSIONS, *SUPPORTED_VERSIONS[1:-1])
