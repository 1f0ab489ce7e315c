"""The broker's half of SASL for scripted brokers: only a client with a verified password receives other responses."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode

from tests.support.scripted_broker import Answer, Received, Script
from tests.wire.scram import Server

HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36
WORDS = "Authentication failed: Invalid username or password"
_SALT = b"salt of alice"


class SaslScript:
    """A script that knows one user, alice, and passes her requests to `then`.

    With `is_genuine=False` it accepts any proof but does not know the password, as an impostor of a broker would.
    """

    def __init__(self, then: Script, mechanism: str, password: str = "pencil", *, is_genuine: bool = True) -> None:  # noqa: S107
        self._then = then
        self._mechanism, self._password, self._is_genuine = mechanism, password, is_genuine
        self._servers: dict[int, Server] = {}
        self._known: set[int] = set()

    def __call__(self, request: Received) -> Answer:
        """Return the response to this request."""
        match request.api_key:
            case 18:
                return None
            case 17:
                is_taken = request.entity.mechanism == self._mechanism
                code = ErrorCode.none if is_taken else ErrorCode.unsupported_sasl_mechanism
                return request.response(error_code=code, mechanisms=(self._mechanism,))
            case 36:
                return self._authenticate(request)
        assert request.connection in self._known, request
        return self._then(request)

    def _authenticate(self, request: Received) -> Answer:
        client_message = request.entity.auth_bytes
        if self._mechanism == "PLAIN":
            return self._end(request, b"", is_proven=client_message == b"\0alice\0" + self._password.encode())
        server = self._servers.get(request.connection)
        if server is None:
            password = self._password if self._is_genuine else "a guess"
            server = self._servers[request.connection] = Server(self._mechanism, password, _SALT)
            return self._reply(request, server.first(client_message, b"of-the-broker"))
        final = server.final(client_message)
        if not self._is_genuine:
            return self._end(request, b"v=" + b"A" * 43 + b"=", is_proven=True)
        return self._end(request, final, is_proven=final.startswith(b"v=") and server.username == "alice")

    def _end(self, request: Received, message: bytes, *, is_proven: bool) -> Answer:
        if not is_proven:
            return self._reply(request, b"", ErrorCode.sasl_authentication_failed, WORDS)
        self._known.add(request.connection)
        return self._reply(request, message)

    def _reply(
        self, request: Received, message: bytes, code: ErrorCode = ErrorCode.none, refusal: str | None = None
    ) -> Answer:
        return request.response(
            error_code=code, error_message=refusal, auth_bytes=message, session_lifetime=timedelta(0)
        )
