"""An identity provider on loopback: a token endpoint and its keys over TLS, signed tokens, and outages on demand.

Tokens are like those of a real provider: JSON Web Tokens with RS256 and a key id. A broker verifies them with the keys
that this server publishes.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.secured import Materials, server_context

CLIENT, SECRET = "orders-app", "provider-secret"
AUDIENCE = "kafka"
ISSUER = "https://identity.test"
#: The grant type of an assertion (RFC 7523).
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Request(NamedTuple):
    """A request to the token endpoint: its form, its Authorization header and its time (`time.monotonic`)."""

    form: Mapping[str, str]
    authorization: str | None
    at: float


class Provider:
    """The provider. After `stop` it may be started again, on the same port."""

    def __init__(self, tls: ssl.SSLContext, client_key: RSAKey) -> None:
        (self.port,) = draw_ports(1)
        self._tls = tls
        self._key = _signing_key()
        self._client_key = client_key
        self._server: ThreadingHTTPServer | None = None
        self.requests: list[Request] = []
        #: How long a token is valid, in seconds.
        self.lifetime_s = 3600.0
        #: If set, each response has this status and this JSON instead of a token.
        self.outage: tuple[int, Mapping[str, object]] | None = None
        #: Claims that replace the usual claims of tokens; None removes a claim.
        self.claims: dict[str, object] = {}

    @property
    def base_url(self) -> str:
        """The server's address; its host is in the server's certificate."""
        return f"https://localhost:{self.port}"

    @property
    def token_url(self) -> str:
        return f"{self.base_url}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.base_url}/jwks"

    def start(self) -> None:
        """Start the server, unless it is running."""
        if self._server is not None:
            return
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [provider._key.as_dict(private=False)]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                form = dict(parse_qsl(body.decode()))
                provider.requests.append(Request(form, self.headers.get("Authorization"), time.monotonic()))
                self._answer(*(provider.outage or provider.answer(form, self.headers.get("Authorization"))))

            def _answer(self, status: int, content: Mapping[str, object]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, self.port), Handler)
        self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop the server: connections are refused from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, form: Mapping[str, str], authorization: str | None) -> tuple[int, Mapping[str, object]]:
        """Return the status and the content of the response to a token request."""
        match form.get("grant_type"):
            case "client_credentials":
                expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                if authorization != f"Basic {expected}":
                    return 401, {"error": "invalid_client", "error_description": "Invalid client or secret"}
                subject = CLIENT
            case grant if grant == JWT_BEARER:
                try:
                    claims = jwt.decode(form["assertion"], self._client_key, algorithms=["RS256", "ES256"]).claims
                except (JoseError, ValueError):
                    return 400, {"error": "invalid_grant", "error_description": "Invalid assertion"}
                if claims.get("aud") != self.token_url or claims["exp"] < time.time():
                    return 400, {"error": "invalid_grant", "error_description": "Invalid audience or expired"}
                subject = str(claims["sub"])
            case other:
                return 400, {"error": "unsupported_grant_type", "error_description": f"{other}"}
        return 200, {"access_token": self.token(subject, form.get("scope")), "token_type": "Bearer"}

    def token(self, subject: str, scope: str | None = None) -> str:
        """Return a signed token."""
        now = time.time()
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": int(now), "exp": now + self.lifetime_s}
        if scope is not None:
            claims["scope"] = scope
        changed = {name: value for name, value in {**claims, **self.claims}.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": "one"}, changed, self._key)


@cache
def _signing_key() -> RSAKey:
    """Return the provider's key; cached, because its generation takes some time."""
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


@contextmanager
def identity_provider(made: Materials, folder: Path) -> Iterator[Provider]:
    """Run a provider whose certificate the run's authority has issued, and which accepts the client's assertions."""
    provider = Provider(server_context(made, folder), RSAKey.import_key(client_key(folder)))
    provider.start()
    try:
        yield provider
    finally:
        provider.stop()


def client_key(folder: Path) -> str:
    """Return the PEM of the private key with which the client signs its assertions; created once in this folder."""
    path = key_file(folder)
    if not path.exists():
        path.write_bytes(RSAKey.generate_key(2048).as_pem(private=True))
    return path.read_text()


def key_file(folder: Path) -> Path:
    """Return the path of the key that `client_key` creates."""
    return folder / "assertion-key.pem"


def oidc_config(provider: Provider, made: Materials) -> dict[str, object]:
    """Return the configuration of a client that gets its tokens with client credentials."""
    return {
        **_endpoint(provider, made),
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
    }


def assertion_config(provider: Provider, made: Materials, folder: Path) -> dict[str, object]:
    """Return the configuration of a client that gets its tokens with assertions, which it signs with a key in a file.

    `folder` is that of `identity_provider`.
    """
    client_key(folder)
    return {
        **_endpoint(provider, made),
        "sasl.oauthbearer.grant.type": JWT_BEARER,
        "sasl.oauthbearer.assertion.private.key.file": str(key_file(folder)),
        "sasl.oauthbearer.assertion.claim.sub": "signer",
        "sasl.oauthbearer.assertion.claim.aud": provider.token_url,
        "sasl.oauthbearer.assertion.claim.jti.include": "true",
    }


def _endpoint(provider: Provider, made: Materials) -> dict[str, object]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "https.ca.location": made.ca_file,
    }
