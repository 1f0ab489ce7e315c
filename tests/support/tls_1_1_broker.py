"""A broker whose TLS listener supports only TLS 1.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker, start
from tests.support.secured import Materials
from tests.support.versions import NEWEST


@contextmanager
def tls_1_1_broker(made: Materials, folder: Path) -> Iterator[Broker]:
    """Start the broker in this process, so that its Java reads an environment variable."""
    # Java 17 supports TLS 1.1, but disables it by default.
    allowing = folder / "java.security"
    allowing.write_text("jdk.tls.disabledAlgorithms=\n")
    old = {"listener.name.tls.ssl.protocol": "TLSv1.1", "listener.name.tls.ssl.enabled.protocols": "TLSv1.1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.properties={allowing}")
        broker = start(NEWEST, 1, old, security=made.security)
    with broker:
        yield broker
