"""Applications that die without a clean leave on a broker that requires TLS and SASL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker
from tests.integration.guardian_kills import guardian_log_after_kill, members
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.processes import ROOT, has_ended
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique
from tests.support.secured import Materials, Way, client_config
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The mechanisms without tokens: no process is left to fetch a token.
WAYS = [way for way in Way if not way.mechanism or way.has_password]


@pytest.fixture
def broker(broker_pool: RunBrokers, secured_materials: Materials) -> Broker:
    """A broker with listeners of all kinds."""
    return broker_pool.shared(NEWEST, security=secured_materials.security)


def settings(broker: Broker, made: Materials, way: Way, user: str) -> dict[str, str]:
    """The settings with which a `ConsumerProcess` connects over this listener.

    Paths are relative to its working folder.
    """
    config = {key.replace(".", "_"): str(value) for key, value in client_config(broker, made, way, user).items()}
    paths = {key: os.path.relpath(value, ROOT) for key, value in config.items() if key.endswith("_location")}
    return {"bootstrap": config.pop("bootstrap_servers")} | config | paths


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_guardian_leaves_over_the_connection_settings_of_a_killed_member(
    broker: Broker, secured_materials: Materials, way: Way, tmp_path: Path
) -> None:
    """The leave authenticates as the member did.

    Bob's password has characters that each mechanism encodes differently.
    """
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 12), unique("group")
    config = settings(broker, secured_materials, way, "bob")
    with (
        ConsumerProcess(group=group, topic=topic, log=tmp_path / "one", **config) as one,
        ConsumerProcess(group=group, topic=topic, log=tmp_path / "two", **config) as two,
    ):
        expected = f"left on its behalf (epoch -1) at coordinator {config['bootstrap']}"
        assert guardian_log_after_kill(one, two, group) == expected
        assert members(broker, group) == 1


def test_guardian_leaves_with_the_keystore_of_a_killed_member(
    broker: Broker, secured_materials: Materials, tmp_path: Path
) -> None:
    """The guardian presents the certificate of the keystore, whose path may be relative."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 12), unique("group")
    config = settings(broker, secured_materials, Way.MUTUAL_TLS, "alice")
    del config["ssl_certificate_location"], config["ssl_key_location"]
    config["ssl_keystore_location"] = os.path.relpath(secured_materials.keystore_file, ROOT)
    config["ssl_keystore_password"] = secured_materials.keystore_password
    with (
        ConsumerProcess(group=group, topic=topic, log=tmp_path / "one", **config) as one,
        ConsumerProcess(group=group, topic=topic, log=tmp_path / "two", **config) as two,
    ):
        expected = f"left on its behalf (epoch -1) at coordinator {config['bootstrap']}"
        assert guardian_log_after_kill(one, two, group) == expected
        assert members(broker, group) == 1


@pytest.mark.parametrize("way", [Way.PLAIN, Way.SCRAM_512_OVER_TLS], ids=lambda way: way.name)
def test_guardian_with_wrong_credentials_logs_the_refusal_and_ends(
    broker: Broker, secured_materials: Materials, way: Way, tmp_path: Path
) -> None:
    """`set_sasl_credentials` reaches the guardian, which logs the broker's refusal and does not wait."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 12), unique("group")
    config = settings(broker, secured_materials, way, "alice")
    with ConsumerProcess(group=group, topic=topic, log=tmp_path / "one", **config) as one:
        one.settled(12)
        guardian = one.guardian()
        one.set_credentials("alice", "hunter2")
        heartbeats = one.report().heartbeats
        wait_until(lambda: one.report().heartbeats >= heartbeats + 2, "two heartbeats")
        one.kill()
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        (line,) = one.guardian_lines()
        assert " WARNING consumer_membership.guardian: " in line
        refusal = (
            f"{config['bootstrap']}: the broker rejected the credentials for {way.mechanism}: Authentication failed"
        )
        assert f"died; could not leave on its behalf: {refusal}" in line
        assert line.endswith("; the coordinator removes it when its session ends")
        log = one.log.read_text()
        assert secured_materials.users["alice"] not in log
        assert "hunter2" not in log
    assert members(broker, group) == 1
