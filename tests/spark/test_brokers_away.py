"""A driver whose brokers are away hears at once, and why: not after half a minute, in librdkafka's words."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from consumer_membership.errors import TransportError
from consumer_membership.spark import brokers, drain, member_task, read_group, run
from tests.spark.builders import GIVEN, write

#: For ever, as a test sees it: what waits for so long is ended by its time limit.
FOR_EVER_S = 86_400.0

CALLS: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "run": lambda config: run(**{**GIVEN, "config": config}),  # type: ignore[arg-type]  # by their names
    "drain": lambda config: drain(**{**GIVEN, "config": config}),  # type: ignore[arg-type]  # by their names
    "member_task": lambda config: member_task(config, ["orders"], write, group="billing"),
    "read_group": lambda config: read_group(GIVEN["spark"], config, ["orders"], "billing"),  # type: ignore[arg-type]  # enough of one
}


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address of this machine where nobody listens, and nobody will."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where somebody accepts, and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_address_where_nobody_listens_is_named_at_once(
    call: Callable[[Mapping[str, object]], object], nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, as operators hear it from `GroupAdmin`."""
    monkeypatch.setattr(brokers, "_TIMEOUT_S", FOR_EVER_S)
    with pytest.raises(TransportError, match=rf"No broker can be reached: {nobody}: .*connection refused"):
        call({"bootstrap.servers": nobody, "log_level": 0})


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_address_where_nobody_listens_is_named_by_the_error_alone(
    call: Callable[[Mapping[str, object]], object], nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line for each refused connection is written only for a user who sets one of its log keys."""
    with pytest.raises(TransportError, match="connection refused"):
        call({"bootstrap.servers": nobody})
    assert "|FAIL|" not in capfd.readouterr().err
    with pytest.raises(TransportError, match="connection refused"):
        call({"bootstrap.servers": nobody, "log_level": 6})
    assert "|FAIL|" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_broker_that_is_slow_is_waited_for(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is there: it has all the time, and what is said then is what the package's own client knows."""
    monkeypatch.setattr(brokers, "_FIRST_S", 0.2)
    monkeypatch.setattr(brokers, "_TIMEOUT_S", 1.0)
    brokers.refuse_if_away({"bootstrap.servers": silent})
    with pytest.raises(TransportError, match="topic 'orders' cannot be looked up: ") as refused:
        CALLS["drain"]({"bootstrap.servers": silent, "log_level": 0})
    assert "Local: " not in str(refused.value)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_one_address_that_may_have_a_broker_is_enough(nobody: str, silent: str) -> None:
    """The others may be away for a while."""
    brokers.refuse_if_away({"bootstrap.servers": f"{nobody},{silent}"})
