"""How the connections of one client are made safe: encrypted, and authenticated with what is good just then.

What TLS and SASL need is imported for whoever has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from consumer_membership.config import ConnectionSettings, SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.errors import AuthenticationError, InternalError
from consumer_membership.light_dataclasses import replace
from consumer_membership.runtime.network.daemon_thread import in_daemon_thread

if TYPE_CHECKING:
    import ssl

    from consumer_membership.wire.sasl import Mechanism


class ConnectionSecurity:
    """Made once for a client, before it connects; `tls` is None where nothing is encrypted.

    Raises:
        ConfigurationError: what TLS needs cannot be read.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.tls = None if settings.tls is None else _context(settings.tls)
        # One reference, replaced as a whole: connections of the membership's thread read it.
        self._sasl = settings.sasl

    @property
    def sasl(self) -> SaslSettings | None:
        """Who authentications say that this client is, from now on; None: nobody is told."""
        return self._sasl

    def set_credentials(self, username: str, password: str) -> None:
        """Have later authentications say this, from any thread."""
        if self._sasl is not None:
            self._sasl = replace(self._sasl, username=username, password=password)

    async def mechanism(self) -> Mechanism | None:
        """What authenticates one connection once; None where nobody is to be told who this is.

        Raises:
            AuthenticationError: there are no credentials, or none that the mechanism can carry.
        """
        sasl = self._sasl
        if sasl is None:
            return None
        try:
            return await _made(sasl)
        except ValueError as error:
            raise AuthenticationError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error


def _context(tls: TlsSettings) -> ssl.SSLContext:
    from consumer_membership.runtime.network.tls import tls_context

    return tls_context(tls)


async def _made(sasl: SaslSettings) -> Mechanism:
    match sasl.mechanism:
        case SaslMechanism.PLAIN | SaslMechanism.SCRAM_SHA_256 | SaslMechanism.SCRAM_SHA_512:
            from consumer_membership.runtime.network.passwords import password_mechanism

            return password_mechanism(sasl)
        case SaslMechanism.OAUTHBEARER:
            if sasl.token is None:
                raise InternalError("OAUTHBEARER was configured without a source of tokens")
            from consumer_membership.wire.sasl import OAuthBearer

            token = await in_daemon_thread("oauth_cb", sasl.token)
            return OAuthBearer(token.value, token.extensions)
        case _:
            assert_never(sasl.mechanism)
