"""Fetches bearer tokens from the token endpoint of an identity provider (OIDC; RFC 6749, RFC 7523).

The packages for requests and signatures are in the extra `oidc` and are imported with the first request. No error and
no log line contains a secret, an assertion or a token; a provider's own description of an error is quoted in part.
"""

from __future__ import annotations

import json
import logging
import random
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from consumer_membership.config.oidc_keys import AssertionSettings, Grant, OidcSettings
from consumer_membership.errors import AuthenticationError, ConfigurationError
from consumer_membership.text import excerpt, printable

if TYPE_CHECKING:
    import httpx

_logger = logging.getLogger("consumer_membership.tokens")

#: One request, from the look-up of the name to the end of the response.
_TIMEOUT_S = 10.0
#: After a failed request, the time without another one: twice as long after each failure, up to librdkafka's interval.
_BACKOFF_S, _BACKOFF_MAX_S = 0.25, 10.0
#: Status codes after which the same request may succeed later: timeout, too early, too many requests.
_PASSING = frozenset({408, 425, 429})
_SERVER_ERRORS = 500
_OK = 200
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_PARTS_OF_JWT = 3
_OF_CLIENT = "check sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
_ALLOW_GRANT = "allow this grant for the client at the provider"
_OF_ASSERTION = "check the keys sasl.oauthbearer.assertion.*, and the provider's trust in the assertion's issuer"
#: The fix for each error code (RFC 6749, section 5.2).
_REMEDIES: Mapping[str, str] = {
    "invalid_client": _OF_CLIENT,
    "invalid_grant": _OF_ASSERTION,
    "invalid_scope": "check sasl.oauthbearer.scope",
    "unauthorized_client": f"{_ALLOW_GRANT}, or check sasl.oauthbearer.grant.type",
    "unsupported_grant_type": "check sasl.oauthbearer.grant.type",
}


class EndpointUnavailableError(AuthenticationError):
    """The token endpoint cannot be reached or is overloaded: a later request may succeed."""


class TokenEndpoint:
    """A source of tokens that can be called like an `oauth_cb`; not thread-safe.

    A failed request is not repeated before a growing, random time has passed; a call in between raises the same error.
    """

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._client: httpx.Client | None = None
        self._failure: AuthenticationError | ConfigurationError | None = None
        self._failures = 0
        self._next_at = 0.0

    def __reduce__(self) -> tuple[type[TokenEndpoint], tuple[OidcSettings]]:
        """Pickle the settings: another process makes its own requests."""
        return type(self), (self._settings,)

    def __call__(self, _: str | None = None) -> tuple[str, float, str, dict[str, str]]:
        """Return the token, its end in seconds since 1970, its principal and the SASL extensions.

        Raises:
            EndpointUnavailableError: no usable response; a later request may succeed.
            AuthenticationError: the endpoint rejected the request, or its response has no valid token.
            ConfigurationError: a file cannot be read.
        """
        if self._failure is not None and self._clock() < self._next_at:
            raise self._failure.with_traceback(None)
        try:
            token = self._fetched()
        except (AuthenticationError, ConfigurationError) as error:
            self._note_failure(error)
            raise
        if self._failures:
            _logger.info("Token endpoint %s responds again after %d failed requests", self._shown, self._failures)
        self._failure, self._failures = None, 0
        return token

    def _note_failure(self, error: AuthenticationError | ConfigurationError) -> None:
        backoff_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(self._failures, 10))
        self._next_at = self._clock() + backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        if not self._failures:
            _logger.warning("No new token; the last one is used until it expires: %s", error)
        self._failures += 1
        self._failure = error

    @property
    def _shown(self) -> str:
        """The URL without a user, a password and a query."""
        scheme, _, rest = self._settings.url.partition("://")
        host, slash, path = rest.partition("?")[0].partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"

    def _fetched(self) -> tuple[str, float, str, dict[str, str]]:
        import httpx

        settings = self._settings
        try:
            response = self._sent()
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise self._unreachable(error) from error
        if response.status_code != _OK:
            raise self._rejection(response)
        found = _object(response.content)
        fields = ["access_token"]
        if settings.grant is Grant.JWT_BEARER:
            # Some providers return only an identity token for an assertion (Google's, with a target audience).
            fields.append("id_token")
        problems = []
        for name in fields:
            try:
                token, expires_at, subject = _token_in(found, name, settings.subject_claim)
            except ValueError as error:
                problems.append(str(error))
                continue
            return token, expires_at, subject, dict(settings.extensions)
        raise AuthenticationError(f"the token endpoint {self._shown} returned no valid token: {problems[-1]}")

    def _sent(self) -> httpx.Response:
        settings = self._settings
        if self._client is None:
            self._client = _client(settings)
        accept = {"Accept": "application/json"}
        if settings.grant is Grant.METADATA:
            return self._client.get(settings.url, headers={**accept, "Metadata": "true"})
        form = {"grant_type": settings.grant.value}
        if settings.scope is not None:
            form["scope"] = settings.scope
        user = (settings.client_id, settings.client_secret)
        if settings.grant is Grant.JWT_BEARER:
            form["assertion"] = assertion(settings.assertion)
            if not all(user):
                # RFC 7521, section 4.1: with an assertion, the authentication of the client is optional.
                return self._client.post(settings.url, data=form, headers=accept)
        return self._client.post(settings.url, data=form, headers=accept, auth=user)

    def _unreachable(self, error: Exception) -> AuthenticationError:
        import ssl

        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return AuthenticationError(
                f"the certificate of the token endpoint {self._shown} is not trusted ({cause.verify_message}); set "
                "https.ca.location to the certificate of its authority"
            )
        reason = str(error) or type(error).__name__
        return EndpointUnavailableError(
            f"the token endpoint {self._shown} cannot be reached ({reason}); check the provider and "
            "sasl.oauthbearer.token.endpoint.url"
        )

    def _rejection(self, response: httpx.Response) -> AuthenticationError:
        status = response.status_code
        found = _object(response.content)
        code, description = found.get("error"), found.get("error_description")
        parts = [
            f"status {status}",
            *(printable(excerpt(part)) for part in (code, description) if isinstance(part, str)),
        ]
        said = f"the token endpoint {self._shown} responded with {': '.join(parts)}"
        if status in _PASSING or status >= _SERVER_ERRORS:
            return EndpointUnavailableError(f"{said}; it is requested again")
        remedy = _REMEDIES.get(code) if isinstance(code, str) else None
        usual = _OF_ASSERTION if self._settings.grant is Grant.JWT_BEARER else _OF_CLIENT
        if code == "unauthorized_client" and status == _UNAUTHORIZED:
            # Keycloak reports a wrong secret by the code for a grant that the client may not use.
            remedy = f"{usual}, and {_ALLOW_GRANT}"
        if remedy is None:
            remedy = usual if status in {_UNAUTHORIZED, _FORBIDDEN} else "check sasl.oauthbearer.token.endpoint.url"
        return AuthenticationError(f"{said}; {remedy}")


def _client(settings: OidcSettings) -> httpx.Client:
    import ssl

    import httpx

    from consumer_membership.config.authorities import trust

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    trust(context, "https.ca", settings.ca_location, settings.ca_pem)
    # Without keep-alive connections: requests are minutes apart.
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(verify=context, timeout=_TIMEOUT_S, limits=limits)


def _object(content: bytes) -> Mapping[str, object]:
    """Return a JSON object; an empty one for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _token_in(found: Mapping[str, object], name: str, subject_claim: str) -> tuple[str, float, str]:
    """Return the JSON Web Token in this field, its end and its subject; only the broker verifies its signature.

    Raises:
        ValueError: there is no such token; with librdkafka's message.
    """
    token = found.get(name)
    if token is None:
        raise ValueError(f'Expected JSON response with "{name}" field')
    if not isinstance(token, str):
        raise ValueError("Expected token as a string value")  # noqa: TRY004 - the response's error, not the caller's
    parts = token.split(".")
    if len(parts) != _PARTS_OF_JWT:
        raise ValueError(f"it is not a JSON Web Token, which has {_PARTS_OF_JWT} parts: it has {len(parts)}")
    try:
        claims = _object(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        raise ValueError("Failed to decode JWT payload") from None
    expires_at, subject = claims.get("exp"), claims.get(subject_claim)
    if not isinstance(expires_at, int | float) or expires_at <= 0:
        raise ValueError('Expected JSON JWT response with valid "exp" field')
    if not isinstance(subject, str) or not subject:
        raise ValueError(
            f'Expected JSON JWT response with valid "{subject_claim}" field (non-empty value required); see '
            "sasl.oauthbearer.sub.claim.name"
        )
    return token, float(expires_at), subject


def assertion(settings: AssertionSettings, now: Callable[[], float] = time.time) -> str:
    """Return the assertion: the content of its file, or claims that are valid from now on, signed with the key.

    Raises:
        ConfigurationError: a file cannot be read, or is not what its key needs; the message has the key and the fix.
    """
    if settings.file is not None:
        return _read("sasl.oauthbearer.assertion.file", settings.file).strip()
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, RSAKey

    header, payload = _template(settings)
    issued_at = int(now())
    times = {"iat": issued_at, "exp": issued_at + settings.valid_s, "nbf": issued_at - settings.before_s}
    claims = {**payload, **times, **dict(settings.claims), **({"jti": str(uuid4())} if settings.has_id else {})}
    kind = ECKey if settings.algorithm == "ES256" else RSAKey
    key_name = "sasl.oauthbearer.assertion.private.key."
    if settings.key_pem is not None:
        key_name, shown, pem = f"{key_name}pem", "***", settings.key_pem
    else:
        shown = settings.key_file or ""
        key_name, pem = f"{key_name}file", _read(f"{key_name}file", shown)
    try:
        key = kind.import_key(pem, password=settings.passphrase)
    except (JoseError, ValueError, TypeError) as error:
        remedy = (
            f"the private key cannot be read; set it to an {'EC' if kind is ECKey else 'RSA'} key in PEM for "
            f"sasl.oauthbearer.assertion.algorithm={settings.algorithm}, and "
            "sasl.oauthbearer.assertion.private.key.passphrase if it is encrypted"
        )
        raise ConfigurationError(key_name, shown, remedy) from error
    signed = {**header, "alg": settings.algorithm, "typ": "JWT"}
    return jwt.encode(signed, claims, key, algorithms=[settings.algorithm])


def _template(settings: AssertionSettings) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the header and the payload of the template, which are empty without one."""
    if settings.template_file is None:
        return {}, {}
    key = "sasl.oauthbearer.assertion.jwt.template.file"
    found = _object(_read(key, settings.template_file).encode())
    header, payload = found.get("header"), found.get("payload")
    if not isinstance(header, dict) or not isinstance(payload, dict):
        remedy = 'JWT template must contain both "header" and "payload" objects in JSON'
        raise ConfigurationError(key, settings.template_file, remedy)
    return header, payload


def _read(key: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(key, path, f"{reason}; set it to a file that this process can read") from error
