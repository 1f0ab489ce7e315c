"""The versions of Apache Kafka that tests run on, by their role; devbroker knows which versions exist."""

from __future__ import annotations

from consumer_membership.devbroker import SUPPORTED_VERSIONS
from consumer_membership.devbroker.request import CLASSIC_VERSIONS

#: The first release with the consumer protocol, and the last release.
OLDEST, NEWEST = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]

#: Those beside them, of which `python -m tests --full` has its say: the last patch of each minor line, oldest first.
OTHERS = (*CLASSIC_VERSIONS, *SUPPORTED_VERSIONS[1:-1])
