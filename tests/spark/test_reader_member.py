"""The driver's member of a bounded read: what the coordinator says to its commit, and what that means for the read."""

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
    """With a topic."""
    with MockCluster.start(1) as cluster:
        filled(cluster, TOPIC, 1)
        yield cluster


def refused_with(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, code: int) -> Exception:
    """What is raised by a commit that the coordinator answers so."""
    monkeypatch.setattr(reader_member, "Consumer", ScriptedConsumer)
    reader = ReaderMember({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}, "g", "i")
    assert isinstance(reader.consumer, ScriptedConsumer)
    reader.consumer.member.commit_error = BrokerError(code=code, name="REFUSED")
    try:
        reader.commit({(TOPIC, 0): 1}, {})
    except Exception as refusal:  # noqa: BLE001 - whatever it is is what the test looks at
        return refusal
    finally:
        reader.close()
    raise AssertionError("the commit was taken")


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_INSTANCE_ID, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION]
)
def test_replaced_reader_is_fenced_whatever_the_coordinator_calls_it(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Whether the commit or the heartbeat hears of it first is chance."""
    refusal = refused_with(mock_cluster, monkeypatch, code)
    assert isinstance(refusal, FencedError)
    assert "was replaced; nothing was committed" in str(refusal)


def test_other_refusals_are_the_commits(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read is still this driver's."""
    refusal = refused_with(mock_cluster, monkeypatch, KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(refusal, CommitError)
    assert refusal.code == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_error_that_comes_again_and_again_is_logged_once(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fatal one does, once a second, for as long as the read takes to notice."""
    monkeypatch.setattr(reader_member, "Consumer", ScriptedConsumer)
    reader = ReaderMember({"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}, "g", "i")
    assert isinstance(reader.consumer, ScriptedConsumer)
    fenced = RaiseToApplication(problem=Problem.FATAL, error=BrokerError(code=82, name="FENCED_INSTANCE_ID"))
    reader.consumer.member.order(fenced, fenced, fenced, LosePartitions(attempt=1))
    with caplog.at_level(logging.INFO, "consumer_membership"):
        reader._thread.start()
        reader.consumer.member.wait_for(StepFinished)
        reader.close()
    told = [line.getMessage() for line in caplog.records if "FENCED_INSTANCE_ID" in line.getMessage()]
    assert len(told) == 1
