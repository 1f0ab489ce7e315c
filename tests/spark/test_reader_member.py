"""The driver's member of a bounded read: the coordinator's answer to its commit, and its meaning for the read."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from consumer_membership.errors import CommitError, FencedError
from consumer_membership.membership.effects import LosePartitions, Problem, RaiseToApplication
from consumer_membership.membership.events import StepFinished
from consumer_membership.spark import reader_member
from consumer_membership.spark.reader_member import ReaderMember
from consumer_membership.types import BrokerError
from tests.clients.conftest import filled
from tests.clients.scripted import ScriptedConsumer
from tests.support.mock_cluster import MockCluster

TOPIC = "records"


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[MockCluster]:
    """A mock cluster with a topic."""
    with MockCluster.start(1) as cluster:
        filled(cluster, TOPIC, 1)
        yield cluster


def refused_with(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, code: int) -> Exception:
    """The exception of a commit that the coordinator answers with this error."""
    monkeypatch.setattr(reader_member, "Consumer", ScriptedConsumer)
    reader = ReaderMember({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}, "g", "i")
    assert isinstance(reader.consumer, ScriptedConsumer)
    reader.consumer.member.commit_error = BrokerError(code=code, name="REFUSED")
    try:
        reader.commit({(TOPIC, 0): 1}, {})
    except Exception as refusal:  # noqa: BLE001 - the test checks the exception
        return refusal
    finally:
        reader.close()
    raise AssertionError("the commit was taken")


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_INSTANCE_ID, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION]
)
def test_commit_of_a_replaced_reader_raises_fenced_error(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Each error code of a replaced member raises `FencedError`, because commit and heartbeat race for the answer."""
    refusal = refused_with(mock_cluster, monkeypatch, code)
    assert isinstance(refusal, FencedError)
    assert "was replaced; nothing was committed" in str(refusal)


def test_other_errors_of_the_commit_raise_commit_error(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other error codes raise `CommitError`: the reader still owns its partitions."""
    refusal = refused_with(mock_cluster, monkeypatch, KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(refusal, CommitError)
    assert refusal.code == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_repeated_error_of_a_reader_is_logged_once(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fatal error arrives once a second until the read notices it, and is logged once."""
    monkeypatch.setattr(reader_member, "Consumer", ScriptedConsumer)
    reader = ReaderMember({"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}, "g", "i")
    assert isinstance(reader.consumer, ScriptedConsumer)
    fenced = RaiseToApplication(problem=Problem.FATAL, error=BrokerError(code=82, name="FENCED_INSTANCE_ID"))
    reader.consumer.member.order(fenced, fenced, fenced, LosePartitions(attempt=1))
    with caplog.at_level(logging.INFO, "consumer_membership"):
        reader._thread.start()
        reader.consumer.member.wait_for(StepFinished)
        reader.close()
    lines = [line.getMessage() for line in caplog.records if "FENCED_INSTANCE_ID" in line.getMessage()]
    assert len(lines) == 1
