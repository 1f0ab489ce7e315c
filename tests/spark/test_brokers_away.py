"""A driver whose brokers do not respond raises an error at once with the reason, not after librdkafka's half minute."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from consumer_membership.errors import TransportError
from consumer_membership.spark import brokers, drain, member_task, read_group, run
from tests.spark.builders import GIVEN, write

#: Longer than the time limit of a test, which fails a test that waits for so long.
FOR_EVER_S = 86_400.0

CALLS: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "run": lambda config: run(**{**GIVEN, "config": config}),  # type: ignore[arg-type]  # untyped arguments
    "drain": lambda config: drain(**{**GIVEN, "config": config}),  # type: ignore[arg-type]  # untyped arguments
    "member_task": lambda config: member_task(config, ["orders"], write, group="billing"),
    "read_group": lambda config: read_group(GIVEN["spark"], config, ["orders"], "billing"),  # type: ignore[arg-type]  # enough of a session
}


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address of this machine on which no process listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that accepts connections and never responds."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_refused_connection_is_named_at_once(
    call: Callable[[Mapping[str, object]], object], nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no process listens on the address, the error names it at once, with the reason that `GroupAdmin` shows."""
    monkeypatch.setattr(brokers, "_TIMEOUT_S", FOR_EVER_S)
    with pytest.raises(TransportError, match=rf"No broker can be reached: {nobody}: .*connection refused"):
        call({"bootstrap.servers": nobody, "log_level": 0})


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_refused_connection_is_logged_only_with_a_log_key(
    call: Callable[[Mapping[str, object]], object], nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Refused connections are logged only if the user sets a librdkafka log key; the error names them anyway."""
    with pytest.raises(TransportError, match="connection refused"):
        call({"bootstrap.servers": nobody})
    assert "|FAIL|" not in capfd.readouterr().err
    with pytest.raises(TransportError, match="connection refused"):
        call({"bootstrap.servers": nobody, "log_level": 6})
    assert "|FAIL|" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_slow_broker_gets_the_whole_timeout(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that accepts the connection gets the whole timeout.

    The error then has the reason of the package's client.
    """
    monkeypatch.setattr(brokers, "_FIRST_S", 0.2)
    monkeypatch.setattr(brokers, "_TIMEOUT_S", 1.0)
    brokers.refuse_if_away({"bootstrap.servers": silent})
    with pytest.raises(TransportError, match="topic 'orders' cannot be looked up: ") as refused:
        CALLS["drain"]({"bootstrap.servers": silent, "log_level": 0})
    assert "Local: " not in str(refused.value)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_one_reachable_bootstrap_server_is_enough(nobody: str, silent: str) -> None:
    """One bootstrap server that accepts connections is enough; the others may be away."""
    brokers.refuse_if_away({"bootstrap.servers": f"{nobody},{silent}"})
