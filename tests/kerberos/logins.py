"""Members that log in with Kerberos: a real KDC and a real broker, on the connections of this package and librdkafka's.

They need a librdkafka that was compiled with GSSAPI, and the package gssapi: `tests/frameworks/test_kerberos.py` makes
an environment with both, and runs them there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from pyspark.sql import SparkSession

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.listeners import SASL
from consumer_membership.errors import AuthenticationError
from consumer_membership.membership.states import MemberState
from consumer_membership.spark import check
from tests.integration.guardian_kills import members
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.processes import has_ended
from tests.spark.builders import copying_sink
from tests.spark.clusters import (
    SPARK_S,
    Ground,
    SessionProcess,
    a_run,
    a_session,
    drained,
    reported,
    stopped,
)
from tests.spark.recorders import Recorder
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, read_committed, unique
from tests.support.kerberos import Kdc, kerberos_broker, running_kdc
from tests.support.list_command import list_command
from tests.support.secured import Materials
from tests.support.waiting import PATIENCE_S, SOONER_THAN_A_SESSION_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Each connection authenticates again within this time (KIP-368).
REAUTH_S = 6
#: Tickets that end soon: they are replaced after half of this.
SHORT_S = 30
NETWORK = "consumer_membership.network"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC; this process and its children are its clients."""
    folder = tmp_path_factory.mktemp("kdc")
    with running_kdc(folder) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def broker(kdc: Kdc, secured_materials: Materials) -> Iterator[Broker]:
    """A broker that accepts tickets and ends sessions that are not renewed."""
    limits = {"connections.max.reauth.ms": str(REAUTH_S * 1000)}
    with kerberos_broker(kdc, secured_materials.security, properties=limits) as running:
        yield running


@pytest.fixture
def principal(kdc: Kdc) -> Iterator[str]:
    """A new principal with short tickets; the KDC runs before and after the test, with an empty ticket cache."""
    name = unique("user")
    kdc.add(name, lifetime_s=SHORT_S)
    yield name
    kdc.start()
    kdc.kdestroy()


def with_keytab(broker: Broker, kdc: Kdc, principal: str) -> dict[str, object]:
    """The keys of a client with a keytab."""
    return {
        "bootstrap.servers": broker.secured[SASL],
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.keytab": kdc.keytab(principal),
        "sasl.kerberos.principal": principal,
        # librdkafka fills the ticket cache by it.
        "sasl.kerberos.min.time.before.relogin": 2000,
    }


def with_cache(broker: Broker) -> dict[str, object]:
    """The keys of a client that reads the ticket cache."""
    return {
        "bootstrap.servers": broker.secured[SASL],
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.min.time.before.relogin": 0,
    }


def member(config: dict[str, object], group: str, topic: str, **more: Any) -> Worker:
    """An application in a thread."""
    settings: dict[str, Any] = {key.replace(".", "_"): value for key, value in config.items()} | more
    return Worker(str(settings.pop("bootstrap_servers")), group, [topic], **settings)


def topic_of(broker: Broker, records: int) -> str:
    """A new topic with these records in four partitions."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 4)
    produce(broker.bootstrap_servers, topic, records)
    return topic


def renewals(caplog: pytest.LogCaptureFixture) -> int:
    """How often a connection of the membership has authenticated again."""
    return caplog.text.count("SASL session renewed")


def test_member_with_a_keytab_joins_reads_and_commits(broker: Broker, kdc: Kdc, principal: str) -> None:
    """The membership uses the keytab itself, and librdkafka the ticket cache, which its kinit fills."""
    topic, group = topic_of(broker, 40), unique("group")
    config = with_keytab(broker, kdc, principal)
    with member(config, group, topic) as worker:
        worker.settled(4)
        worker.wait(lambda w: len(w.notes.records) == 40, "the records")
        described = GroupAdmin(config).describe(group, with_offsets=False).group
        assert [len(one.assignment) for one in described.members] == [4]
    reader = Consumer({**config, "group.id": group})
    try:
        committed = reader.committed([Partition(topic, number) for number in range(4)], PATIENCE_S)
    finally:
        reader.close()
    assert [found.offset for found in committed] == [10] * 4


def test_command_line_takes_the_keys_of_kerberos(
    broker: Broker, kdc: Kdc, principal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list` logs in with a keytab."""
    assert main(list_command(with_keytab(broker, kdc, principal))) == 0, capsys.readouterr()


def test_member_with_a_ticket_cache_joins_and_reads(broker: Broker, kdc: Kdc, principal: str) -> None:
    """Both kinds of connections read the tickets of another program's kinit."""
    topic = topic_of(broker, 4)
    kdc.kinit(principal)
    with member(with_cache(broker), unique("group"), topic) as worker:
        worker.settled(4)
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")


def test_short_tickets_are_renewed_without_a_state_change(
    broker: Broker, kdc: Kdc, principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reauthentication (KIP-368) uses a valid ticket, and the KDC issues a new one before the former ends."""
    caplog.set_level(logging.DEBUG, NETWORK)
    topic = topic_of(broker, 4)
    with member(with_keytab(broker, kdc, principal), unique("group"), topic) as worker:
        worker.settled(4)
        before, issued = worker.consumer.membership().transitions, kdc.logins(principal)
        wait_until(lambda: renewals(caplog) >= 4 and kdc.logins(principal) > issued, "renewals", 2 * PATIENCE_S)
        produce(broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 8, "what was written meanwhile")
        assert worker.consumer.membership().transitions == before


def test_member_continues_while_the_kdc_is_away(
    broker: Broker, kdc: Kdc, principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Valid tickets authenticate connections again without the KDC; a new member waits, and joins when it returns."""
    caplog.set_level(logging.DEBUG, NETWORK)
    topic, group = topic_of(broker, 4), unique("group")
    late = unique("user")
    kdc.add(late)
    with member(with_keytab(broker, kdc, principal), group, topic) as worker:
        worker.settled(4)
        before = worker.consumer.membership().transitions
        kdc.stop()
        already = renewals(caplog)
        wait_until(lambda: renewals(caplog) > already, "a renewal without the KDC")
        assert worker.consumer.membership().transitions == before
        with member(with_keytab(broker, kdc, late), group, topic, reconnect_backoff_max_ms=500) as second:
            wait_until(lambda: "no Kerberos ticket: Cannot contact any KDC" in caplog.text, "the reason in the log")
            assert second.consumer.membership().state is MemberState.JOINING
            kdc.start()
            second.settled(2)
            worker.settled(2)


@pytest.mark.parametrize("case", ["principal", "cache"])
def test_missing_ticket_is_reported_with_its_fix(
    broker: Broker, kdc: Kdc, principal: str, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A principal that the keytab does not have, and an empty ticket cache: the member waits, and GroupAdmin raises."""
    if case == "principal":
        config = {**with_keytab(broker, kdc, principal), "sasl.kerberos.principal": "stranger"}
        text = "the keytab cannot be read, or has no key of the principal; check sasl.kerberos.principal=stranger"
    else:
        config = with_cache(broker)
        text = "run kinit, or set sasl.kerberos.keytab"
    topic = topic_of(broker, 0)
    with member(config, unique("group"), topic) as worker:
        wait_until(lambda: text in caplog.text, "the reason in the log")
        assert worker.consumer.membership().state is MemberState.JOINING
        with pytest.raises(AuthenticationError, match="no Kerberos ticket for kafka/127"):
            GroupAdmin(config).describe("any")


def test_guardian_leaves_with_the_members_keytab(broker: Broker, kdc: Kdc, principal: str, tmp_path: Path) -> None:
    """The guardian's process requests its own ticket with the keytab, whose path may be relative."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 12), unique("group")
    config = {key.replace(".", "_"): value for key, value in with_keytab(broker, kdc, principal).items()}
    bootstrap = str(config.pop("bootstrap_servers"))
    with (
        ConsumerProcess(bootstrap, group, topic, tmp_path / "one", **config) as one,
        ConsumerProcess(bootstrap, group, topic, tmp_path / "two", **config) as two,
    ):
        two.settled(6)
        one.settled(6)
        guardian = one.guardian()
        one.kill()
        two.settled(12, SOONER_THAN_A_SESSION_S)
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert f"left on its behalf (epoch -1) at coordinator {bootstrap}" in one.guardian_lines()[0]
        assert members(broker, group) == 1


def test_spark_tasks_log_in_with_the_keytab(broker: Broker, kdc: Kdc, principal: str, tmp_path: Path) -> None:
    """Members and producers in two executors read the keytab, as does the driver; each record arrives once."""
    ground, recorder = Ground(broker, 4, 40), Recorder(tmp_path)
    config = ground.config = with_keytab(broker, kdc, principal)
    out = create_topic(broker.bootstrap_servers, unique("out"), 1)
    with a_session("local-cluster[2,1,1024]") as session:
        with a_run(session, ground, recorder):
            wait_until(lambda: shares(session, ground) == [2, 2], "two partitions with each member", SPARK_S)
            produce(broker.bootstrap_servers, ground.topic, 40)
            wait_until(lambda: len(recorder.counts()) == 80, "all records", SPARK_S)
            session.ask(stopped, ground.group)
        assert session.ask(drained, config, ground.topic, unique("group"), copying_sink(config, out)).records == 80
        errors = session.ask(errors_of_check, config, ground.topic)
    assert (errors, ground.committed(), ground.members()) == ([], [20] * 4, [])
    assert len({given.pid for given in recorder.given()}) == 2
    assert list(recorder.counts().values()) == [1] * 80
    assert len(read_committed(broker.bootstrap_servers, out)) == 80


def shares(session: SessionProcess, ground: Ground) -> list[int]:
    """Return the number of partitions that each member of the run owns."""
    return [len(member.owned) for member in session.ask(reported, ground.group)]


def errors_of_check(spark: SparkSession, config: Mapping[str, object], topic: str) -> list[str]:
    """Return the errors that `check` finds."""
    return [str(finding) for finding in check(spark, config, [topic], unique("group"), instances=2).errors]


def test_kinit_is_installed() -> None:
    """Librdkafka's default `sasl.kerberos.kinit.cmd` runs it."""
    assert shutil.which("kinit"), "install Debian's package krb5-user"
