"""The command line on secured listeners: `-c` accepts the keys of each kind of login."""

from __future__ import annotations

import pytest

from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique
from tests.support.list_command import list_command
from tests.support.secured import Materials, Way, client_config
from tests.support.versions import NEWEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def broker(broker_pool: RunBrokers, secured_materials: Materials) -> Broker:
    """Return a broker with listeners of all kinds."""
    return broker_pool.shared(NEWEST, security=secured_materials.security)


def listing(config: dict[str, object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code of `list` with these keys, and its output."""
    code = main(list_command(config))
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize("way", [way for way in Way if way is not Way.TOKEN_OVER_TLS], ids=lambda way: way.name)
def test_list_connects_over_each_listener(
    broker: Broker, secured_materials: Materials, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command connects with the keys with which a consumer connects."""
    code, text = listing(client_config(broker, secured_materials, way), capsys)
    assert code == 0, text


def test_list_takes_certificates_as_text(
    broker: Broker, secured_materials: Materials, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value of a key may have several lines, for example a certificate."""
    made = secured_materials
    config: dict[str, object] = {
        "bootstrap.servers": broker.secured["MUTUAL"],
        "security.protocol": "ssl",
        "ssl.ca.pem": made.ca_pem,
        "ssl.certificate.pem": made.client_cert_pem,
        "ssl.key.pem": made.client_key_pem,
    }
    code, text = listing(config, capsys)
    assert code == 0, text


def test_list_takes_a_keystore(
    broker: Broker, secured_materials: Materials, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reads the client's certificate and key from a keystore with a password."""
    made = secured_materials
    config: dict[str, object] = {
        "bootstrap.servers": broker.secured["MUTUAL"],
        "security.protocol": "ssl",
        "ssl.ca.location": made.ca_file,
        "ssl.keystore.location": made.keystore_file,
        "ssl.keystore.password": made.keystore_password,
    }
    code, text = listing(config, capsys)
    assert code == 0, text


def test_list_without_a_callback_names_oauth_cb(
    broker: Broker, secured_materials: Materials, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line cannot set a callback, so the error for tokens names the missing `oauth_cb`."""
    config = client_config(broker, secured_materials, Way.TOKEN_OVER_TLS)
    del config["oauth_cb"]
    code, text = listing({**config, "client.id": unique("cli")}, capsys)
    assert code != 0
    assert "oauth_cb" in text
