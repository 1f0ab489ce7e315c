"""Which mechanism authenticates a connection, and with which credentials."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from consumer_membership.config import ConnectionSettings, SaslMechanism, SaslSettings, Token
from consumer_membership.errors import AuthenticationError
from consumer_membership.runtime.network.connection_security import ConnectionSecurity

TOKEN = Token(value="abc.def.", expires_at=0.0, extensions={"tenant": "blue"})


def security(
    mechanism: SaslMechanism, username: str = "alice", token: Callable[[], Token] | None = None
) -> ConnectionSecurity:
    """Return the connection security of such a configuration."""
    sasl = SaslSettings(mechanism=mechanism, username=username, password="secret", token=token)  # noqa: S106
    return ConnectionSecurity(ConnectionSettings(bootstrap_servers=(), sasl=sasl))


def next_authentication(made: ConnectionSecurity) -> tuple[str, bytes]:
    """Return the mechanism and the first message of the next authentication."""
    mechanism = asyncio.run(made.mechanism("broker.test"))
    assert mechanism is not None
    return mechanism.name, mechanism.begin()


def test_connection_security_is_empty_without_configuration() -> None:
    """A plaintext connection is neither encrypted nor authenticated."""
    made = ConnectionSecurity(ConnectionSettings(bootstrap_servers=()))
    assert made.tls is None
    assert asyncio.run(made.mechanism("broker.test")) is None


def test_connection_security_sends_the_first_message_of_each_mechanism() -> None:
    """PLAIN and SCRAM use name and password, and OAUTHBEARER uses the current token."""
    assert next_authentication(security(SaslMechanism.PLAIN)) == ("PLAIN", b"\0alice\0secret")
    for mechanism in (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512):
        name, message = next_authentication(security(mechanism))
        assert name == mechanism.value
        assert message.startswith(b"n,,n=alice,r=")
    assert next_authentication(security(SaslMechanism.OAUTHBEARER, token=lambda: TOKEN)) == (
        "OAUTHBEARER",
        b"n,,\x01auth=Bearer abc.def.\x01tenant=blue\x01\x01",
    )


def test_scram_authentication_has_a_new_nonce_each_time() -> None:
    """RFC 5802: a repeated nonce lets an eavesdropper replay the exchange."""
    made = security(SaslMechanism.SCRAM_SHA_256)
    assert len({next_authentication(made) for _ in range(10)}) == 10


def test_set_credentials_applies_to_later_authentications() -> None:
    """`set_sasl_credentials` replaces name and password."""
    made = security(SaslMechanism.PLAIN)
    made.set_credentials("bob", "another")
    assert next_authentication(made) == ("PLAIN", b"\0bob\0another")


def test_set_credentials_that_cannot_be_sent_fail_the_authentication() -> None:
    """Credentials may be set at any time; the error names the mechanism and no secret."""
    made = security(SaslMechanism.PLAIN)
    made.set_credentials("bob", "x\0y")
    with pytest.raises(AuthenticationError, match=r"^sasl\.mechanism=PLAIN: the password has a NUL") as caught:
        next_authentication(made)
    assert "x\0y" not in str(caught.value)


def test_oauth_token_callback_does_not_block_the_loop() -> None:
    """A slow callback delays only the connection that waits for its token."""
    going_on = threading.Event()

    def token() -> Token:
        assert going_on.wait(30)
        return TOKEN

    async def run() -> str:
        made = security(SaslMechanism.OAUTHBEARER, token=token)
        waiting = asyncio.create_task(made.mechanism("broker.test"))
        # The loop runs while the callback waits for the event.
        await asyncio.sleep(0)
        going_on.set()
        mechanism = await waiting
        assert mechanism is not None
        return mechanism.name

    assert asyncio.run(run()) == "OAUTHBEARER"


def test_oauth_token_callback_that_never_returns_does_not_block_the_end() -> None:
    """The loop ends although the callback has not returned, and its daemon thread lets the process end."""
    called, never = threading.Event(), threading.Event()

    def token() -> Token:
        called.set()
        never.wait(30)
        return TOKEN

    async def run() -> None:
        attempt = asyncio.create_task(security(SaslMechanism.OAUTHBEARER, token=token).mechanism("broker.test"))
        await asyncio.to_thread(called.wait, 30)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    asyncio.run(run())
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "oauth_cb"] == [True]
    never.set()


def test_oauth_token_callback_that_raises_fails_the_authentication() -> None:
    """The caller that connects receives the reason."""

    def token() -> Token:
        raise AuthenticationError("oauth_cb raised ValueError: no network")

    with pytest.raises(AuthenticationError, match="no network"):
        next_authentication(security(SaslMechanism.OAUTHBEARER, token=token))
