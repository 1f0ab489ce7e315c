"""Tokens of a token endpoint: requests, responses, failures, and the assertions of a client."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from consumer_membership.config.oidc_keys import AssertionSettings, Grant, OidcSettings, oidc_settings
from consumer_membership.config.token_endpoint import EndpointUnavailableError, TokenEndpoint, assertion
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.errors import AuthenticationError, ConfigurationError
from consumer_membership.light_dataclasses import replace
from tests.support.identity_provider import (
    CLIENT,
    JWT_BEARER,
    SECRET,
    Provider,
    client_key,
    identity_provider,
    oidc_config,
)
from tests.support.secured import Materials, materials

KEY_PASSWORD = "key-secret"  # noqa: S105 - protects a key that exists only during a test
WRONG = "wrong-secret"


class Clock:
    """A clock that the test sets."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for certificates and keys."""
    return tmp_path_factory.mktemp("oidc")


@pytest.fixture(scope="module")
def made(folder: Path) -> Materials:
    """The provider's certificate and its authority."""
    return materials(folder)


@pytest.fixture
def provider(made: Materials, folder: Path) -> Iterator[Provider]:
    """A running provider."""
    with identity_provider(made, folder) as running:
        yield running


def settings(provider: Provider, made: Materials, **keys: str) -> OidcSettings:
    """The settings of a client with these keys below `sasl.oauthbearer.`, underscores for dots."""
    more = {f"sasl.oauthbearer.{key.replace('_', '.')}": value for key, value in keys.items()}
    return oidc_settings({**oidc_config(provider, made), **more})


def claims_of(token: str) -> dict[str, object]:
    """The claims of a token, unverified."""
    part = token.split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert isinstance(found, dict)
    return found


# ---- requests --------------------------------------------------------------------------------------------------------


def test_client_credentials_return_a_token_with_its_end_principal_and_extensions(
    provider: Provider, made: Materials
) -> None:
    """The request has the client and its secret in the header, and the scope in the form."""
    endpoint = TokenEndpoint(settings(provider, made, scope="kafka read", extensions="tenant=blue, note=a\\,b"))
    token, expires_at, principal, extensions = endpoint()
    (request,) = provider.requests
    assert request.form == {"grant_type": "client_credentials", "scope": "kafka read"}
    assert base64.b64decode((request.authorization or "").removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"
    assert claims_of(token)["scope"] == "kafka read"
    assert (expires_at, principal) == (claims_of(token)["exp"], CLIENT)
    assert extensions == {"tenant": "blue", "note": "a,b"}


def test_principal_is_the_claim_of_sub_claim_name(provider: Provider, made: Materials) -> None:
    """sasl.oauthbearer.sub.claim.name selects another claim than `sub` as the principal."""
    provider.claims = {"azp": "another"}
    assert TokenEndpoint(settings(provider, made, sub_claim_name="azp"))()[2] == "another"


@pytest.mark.parametrize("source", ["file", "pem", "encrypted", "finished", "template"])
def test_assertion_grant_returns_a_token(provider: Provider, made: Materials, folder: Path, source: str) -> None:
    """The assertion is signed with a key in a file or in text, or is read from a file; no client id is needed."""
    key = client_key(folder)
    no_client = {"client_id": "", "client_secret": ""}
    claims = {"assertion_claim_sub": "signer", "assertion_claim_aud": provider.token_url}
    keys = {"grant_type": JWT_BEARER, "assertion_private_key_pem": key, **claims}
    if source == "file":
        del keys["assertion_private_key_pem"]
        keys["assertion_private_key_file"] = str(folder / "assertion-key.pem")
    elif source == "encrypted":
        keys["assertion_private_key_passphrase"] = KEY_PASSWORD
        keys["assertion_private_key_pem"] = RSAKey.import_key(key).as_pem(private=True, password=KEY_PASSWORD).decode()
    elif source == "finished":
        path = folder / "assertion.jwt"
        now = int(time.time())
        finished = {"sub": "signer", "aud": provider.token_url, "exp": now + 60}
        path.write_text(jwt.encode({"alg": "RS256"}, finished, RSAKey.import_key(key)) + "\n")
        keys = {"grant_type": JWT_BEARER, "assertion_file": str(path)}
    elif source == "template":
        path = folder / "template.json"
        path.write_text(json.dumps({"header": {"kid": "x"}, "payload": {"sub": "signer", "aud": provider.token_url}}))
        keys = {"grant_type": JWT_BEARER, "assertion_private_key_pem": key, "assertion_jwt_template_file": str(path)}
    assert TokenEndpoint(settings(provider, made, **keys, **no_client))()[2] == "signer"
    (request,) = provider.requests
    assert (request.form["grant_type"], request.authorization) == (JWT_BEARER, None)


@pytest.mark.parametrize("secret", [SECRET, ""])
def test_assertion_grant_authenticates_the_client_if_its_id_and_secret_are_set(
    provider: Provider, made: Materials, folder: Path, secret: str
) -> None:
    """RFC 7521, section 4.1: the client may also authenticate; Keycloak requires it."""
    claims = {"assertion_claim_sub": "signer", "assertion_claim_aud": provider.token_url}
    keys = {"grant_type": JWT_BEARER, "assertion_private_key_pem": client_key(folder), **claims}
    TokenEndpoint(settings(provider, made, **keys, client_secret=secret))()
    (request,) = provider.requests
    assert (request.authorization is None) == (not secret)


def test_assertion_grant_accepts_an_identity_token(provider: Provider, made: Materials, folder: Path) -> None:
    """Some providers respond to an assertion with an identity token only."""
    provider.outage = (200, {"id_token": provider.token("someone")})
    keys = {"grant_type": JWT_BEARER, "assertion_private_key_pem": client_key(folder)}
    assert TokenEndpoint(settings(provider, made, **keys))()[2] == "someone"


def test_metadata_service_of_azure_is_requested_with_its_query() -> None:
    """sasl.oauthbearer.config has the query, and the address is Azure's unless another is set."""
    keys = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
    query = {"sasl.oauthbearer.config": "query=api-version=2018-02-01&resource=x"}
    azure = oidc_settings({**keys, **query})
    assert azure.grant is Grant.METADATA
    assert azure.url == "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=x"
    own = oidc_settings({**keys, **query, "sasl.oauthbearer.token.endpoint.url": "http://here/?a=b"})
    assert own.url == "http://here/?a=b&api-version=2018-02-01&resource=x"


def test_endpoint_can_be_pickled_without_its_tokens(provider: Provider, made: Materials) -> None:
    """A task of Spark receives the configuration and fetches its own token."""
    tokens = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made)))
    first = tokens.token()
    copied = pickle.loads(pickle.dumps(tokens))  # noqa: S301 - just made
    assert copied.token().expires_at >= first.expires_at
    assert len(provider.requests) == 2


# ---- assertions ------------------------------------------------------------------------------------------------------


def test_assertion_has_the_claims_and_times_of_its_keys() -> None:
    """Times are relative to now; each assertion has its own id if the settings request an id."""
    key = ECKey.generate_key("P-256")
    made = AssertionSettings(
        algorithm="ES256",
        key_pem=key.as_pem(private=True).decode(),
        claims=(("sub", "me"), ("iss", "us")),
        has_id=True,
        valid_s=100,
        before_s=10,
    )
    found = [jwt.decode(assertion(made, lambda: 5000.0), key, algorithms=["ES256"]) for _ in range(2)]
    claims = found[0].claims
    assert found[0].header == {"alg": "ES256", "typ": "JWT"}
    assert {name: value for name, value in claims.items() if name != "jti"} == {
        "sub": "me",
        "iss": "us",
        "iat": 5000,
        "exp": 5100,
        "nbf": 4990,
    }
    assert claims["jti"] != found[1].claims["jti"]


def test_assertion_with_unreadable_input_raises_with_key_and_remedy(folder: Path) -> None:
    """The error has the key, and no part of a private key or passphrase."""
    pem = client_key(folder)
    encrypted = RSAKey.import_key(pem).as_pem(private=True, password=KEY_PASSWORD).decode()
    absent = str(folder / "absent")
    key = "sasl.oauthbearer.assertion."
    cases = {
        AssertionSettings(file=absent): f"{key}file",
        AssertionSettings(key_file=absent): f"{key}private.key.file",
        AssertionSettings(key_pem="nothing"): f"{key}private.key.pem",
        AssertionSettings(key_pem=pem, algorithm="ES256"): f"{key}private.key.pem",
        AssertionSettings(key_pem=encrypted, passphrase=WRONG): f"{key}private.key.pem",
        AssertionSettings(key_pem=encrypted): f"{key}private.key.pem",
        AssertionSettings(key_pem=pem, template_file=absent): f"{key}jwt.template.file",
        AssertionSettings(key_pem=pem, template_file=str(folder / "assertion-key.pem")): f"{key}jwt.template.file",
    }
    for given, name in cases.items():
        with pytest.raises(ConfigurationError) as caught:
            assertion(given)
        assert caught.value.key == name
        assert WRONG not in str(caught.value)
        assert "PRIVATE KEY" not in str(caught.value)


# ---- failures --------------------------------------------------------------------------------------------------------


def failure(endpoint: TokenEndpoint) -> AuthenticationError:
    """The error of a request that fails."""
    with pytest.raises(AuthenticationError) as caught:
        endpoint()
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "content", "is_passing", "words"),
    [
        (400, {"error": "invalid_scope"}, False, "status 400: invalid_scope; check sasl.oauthbearer.scope"),
        (403, {}, False, "check sasl.oauthbearer.client.id"),
        (404, {}, False, "check sasl.oauthbearer.token.endpoint.url"),
        (400, {"error": "unauthorized_client"}, False, "sasl.oauthbearer.grant.type"),
        # Keycloak: a wrong secret, and a client without an account.
        (401, {"error": "unauthorized_client"}, False, "sasl.oauthbearer.client.secret, and allow this grant"),
        (400, {"error": ["x"]}, False, "status 400; check sasl.oauthbearer.token.endpoint.url"),
        (429, {}, True, "status 429; it is requested again"),
        (503, {"error": "down\nfor you"}, True, "status 503: down\\nfor you"),
        (200, {}, False, 'Expected JSON response with "access_token" field'),
        (200, {"access_token": 5}, False, "Expected token as a string value"),
        (200, {"access_token": "opaque"}, False, "not a JSON Web Token"),
        (200, {"access_token": "a.e30.c"}, False, 'valid "exp" field'),
        (200, {"access_token": "a.eyJleHAiOjl9.c"}, False, 'valid "sub" field'),
    ],
)
def test_response_without_a_token_raises_with_its_remedy(
    provider: Provider,
    made: Materials,
    status: int,
    content: dict[str, object],
    is_passing: bool,  # noqa: FBT001
    words: str,
) -> None:
    """Server errors and rate limits are temporary; other errors name the key to check."""
    provider.outage = (status, content)
    error = failure(TokenEndpoint(settings(provider, made)))
    assert isinstance(error, EndpointUnavailableError) == is_passing
    assert words in str(error)
    assert provider.token_url in str(error)


def test_wrong_secret_raises_with_the_keys_to_check(provider: Provider, made: Materials) -> None:
    """The provider's error and description are in the message, and the secret is not."""
    error = failure(TokenEndpoint(settings(provider, made, client_secret=WRONG)))
    assert str(error) == (
        f"the token endpoint {provider.token_url} responded with status 401: invalid_client: Invalid client or secret; "
        "check sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
    )
    assert not isinstance(error, EndpointUnavailableError)


def test_url_in_errors_has_neither_user_nor_query(provider: Provider, made: Materials) -> None:
    """A URL may contain a password."""
    provider.stop()
    url = provider.token_url.replace("https://", "https://user:url-secret@") + "?key=url-secret"
    error = failure(TokenEndpoint(replace(settings(provider, made), url=url)))
    assert isinstance(error, EndpointUnavailableError)
    assert "url-secret" not in str(error)
    assert f"the token endpoint {provider.token_url} cannot be reached" in str(error)


def test_untrusted_certificate_of_the_endpoint_names_https_ca_location(provider: Provider, made: Materials) -> None:
    """The endpoint's authority has its own configuration keys, because it is rarely the authority of the brokers."""
    foreign = replace(settings(provider, made), ca_location=made.foreign_ca_file)
    assert "set https.ca.location to" in str(failure(TokenEndpoint(foreign)))
    TokenEndpoint(replace(foreign, ca_location=None, ca_pem=made.ca_pem))()
    with pytest.raises(ConfigurationError) as caught:
        TokenEndpoint(replace(foreign, ca_location="/no/such/file"))()
    assert caught.value.key == "https.ca.location"


def test_failed_request_is_repeated_after_a_growing_time(
    provider: Provider, made: Materials, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls in between raise the same error, so that reconnects do not flood a provider; one line is logged."""
    caplog.set_level(logging.INFO, "consumer_membership.tokens")
    clock = Clock()
    endpoint = TokenEndpoint(settings(provider, made), clock)
    provider.outage = (503, {})
    waits = []
    for _ in range(8):
        before = len(provider.requests)
        first = str(failure(endpoint))
        assert str(failure(endpoint)) == first
        assert len(provider.requests) == before + 1
        began = clock.now
        while len(provider.requests) == before + 1:
            clock.now += 0.05
            failure(endpoint)
        waits.append(clock.now - began)
        clock.now += 20
    # The first and the fifth failure; each wait is at least half of its limit.
    assert waits[0] <= 0.3 < waits[2]
    assert max(waits) <= 10.1
    provider.outage = None
    endpoint()
    warning, recovery = [record.getMessage() for record in caplog.records]
    assert warning.startswith("No new token; the last one is used until it expires: the token endpoint")
    assert recovery == f"Token endpoint {provider.token_url} responds again after 16 failed requests"


# ---- both kinds of connections ---------------------------------------------------------------------------------------


def test_one_token_serves_both_kinds_of_connections(provider: Provider, made: Materials) -> None:
    """Librdkafka's callback and the membership receive the token of one request, with an earlier end for librdkafka."""
    tokens = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made)))
    tokens.prepare()
    returned, own = tokens(None), tokens.token()
    assert isinstance(returned, tuple)
    assert (returned[0], len(provider.requests)) == (own.value, 1)
    left_s, shown_s = own.expires_at - time.time(), returned[1] - time.time()
    assert 0.7 * left_s < shown_s <= left_s


def test_tokens_continue_while_the_endpoint_is_unavailable(provider: Provider, made: Materials) -> None:
    """The last token is used until its end; librdkafka's callback raises, which its error callback reports."""
    clock = Clock(time.time())
    tokens = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made)), clock)
    first = tokens.token()
    provider.stop()
    clock.now = first.expires_at - 1
    assert tokens.token() == first
    assert "cannot be reached" in tokens.last_failure
    with pytest.raises(EndpointUnavailableError):
        tokens(None)
    clock.now = first.expires_at + 1
    with pytest.raises(EndpointUnavailableError):
        tokens.token()


def test_new_handle_receives_the_valid_token_with_its_real_end(provider: Provider, made: Materials) -> None:
    """Without the endpoint, a new handle receives the last token; its earlier end for librdkafka may be over."""
    clock = Clock(time.time())
    tokens = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made)), clock)
    first = tokens.token()
    provider.stop()
    clock.now = first.expires_at - 1
    tokens.prepare()
    returned = tokens.of_handle()(None)
    assert isinstance(returned, tuple)
    assert returned[:2] == (first.value, first.expires_at)


def test_first_token_is_requested_again_until_the_endpoint_responds(provider: Provider, made: Materials) -> None:
    """A provider may start together with the consumer, so it is requested again; a rejection is raised immediately."""
    tokens = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made)))
    answers: list[tuple[int, dict[str, object]] | None] = [(503, {}), (503, {}), None]
    original = provider.answer

    def answer(form: object, authorization: str | None) -> object:
        return answers.pop(0) or original(form, authorization)  # type: ignore[arg-type]

    provider.answer = answer  # type: ignore[method-assign,assignment]
    tokens.prepare()
    assert len(provider.requests) == 3
    rejected = SharedTokens.of_endpoint(TokenEndpoint(settings(provider, made, client_secret=WRONG)))
    answers.append(None)
    with pytest.raises(AuthenticationError, match="invalid_client"):
        rejected.prepare()
    assert len(provider.requests) == 4
