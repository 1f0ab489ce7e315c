"""The keys of OIDC (`sasl.oauthbearer.method=oidc`): the request that fetches a token from a token endpoint.

librdkafka has its own requests for them. This package makes the requests for both kinds of connections, so that each
token is fetched once, and gives librdkafka the token. librdkafka's errors about contradictions are raised here, before
anything is opened; librdkafka itself checks ranges of numbers and lists of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from importlib.util import find_spec

from consumer_membership.light_dataclasses import dataclass

METHOD = "sasl.oauthbearer.method"
_KEY = "sasl.oauthbearer."
_ASSERTION = f"{_KEY}assertion."
#: The two names of a key; librdkafka sets both in order, so the later one applies.
_CLIENT_ID = (f"{_KEY}client.id", f"{_KEY}client.credentials.client.id")
_CLIENT_SECRET = (f"{_KEY}client.secret", f"{_KEY}client.credentials.client.secret")
_URL = f"{_KEY}token.endpoint.url"
_GRANT = f"{_KEY}grant.type"
_METADATA = f"{_KEY}metadata.authentication.type"
_SUBJECT_CLAIM = f"{_KEY}sub.claim.name"
_UNSECURE = "enable.sasl.oauthbearer.unsecure.jwt"
_PRIVATE_KEYS = (f"{_ASSERTION}private.key.file", f"{_ASSERTION}private.key.pem")
#: The keys of an assertion to create, which a file with a finished assertion excludes; in librdkafka's order.
_CREATED = (
    *_PRIVATE_KEYS,
    f"{_ASSERTION}private.key.passphrase",
    f"{_ASSERTION}jwt.template.file",
    f"{_ASSERTION}claim.sub",
    f"{_ASSERTION}claim.aud",
    f"{_ASSERTION}claim.iss",
    f"{_ASSERTION}claim.jti.include",
    f"{_ASSERTION}claim.exp.seconds",
    f"{_ASSERTION}claim.nbf.seconds",
)
#: librdkafka's defaults of `claim.exp.seconds` and `claim.nbf.seconds`.
_VALID_S, _BEFORE_S = 300, 60
#: Where a virtual machine of Azure gets its tokens (Azure's Instance Metadata Service), as in librdkafka.
_AZURE_URL = "http://169.254.169.254/metadata/identity/oauth2/token"
_WITH_OIDC = f"when `{METHOD}=oidc` is set"
_BLANKS = " \t\n\v\f\r"
_TRUE = frozenset({"true", "t", "1"})
_INSTEAD = "or set an oauth_cb that fetches the token and remove this key"
_AWS = (
    "aws_iam is not supported; set an oauth_cb that returns AWS's token (examples/msk_iam.py for the access control of "
    "MSK), and remove this key"
)


class Grant(Enum):
    """How the client proves its identity to the token endpoint: two values of `sasl.oauthbearer.grant.type`, and Azure.

    `METADATA` is `sasl.oauthbearer.metadata.authentication.type=azure_imds`: the endpoint identifies the machine.
    """

    CLIENT_CREDENTIALS = "client_credentials"
    JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    METADATA = "azure_imds"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionSettings:
    """A signed statement about this client (RFC 7523): a file that has it, or a key and the claims to sign.

    Attributes:
        file: The file with a finished assertion; None: one is created for each request.
        algorithm: RS256 or ES256.
        key_file: The file with the private key in PEM.
        key_pem: The private key as text.
        passphrase: The password of the private key.
        template_file: A JSON file with the objects `header` and `payload`, which the other settings complete.
        claims: The claims `sub`, `aud` and `iss`, as far as they are set.
        has_id: Whether each assertion has a random `jti`.
        valid_s: Seconds from its creation to its end.
        before_s: Seconds before its creation from which it is valid, for clocks that are behind.
    """

    file: str | None = None
    algorithm: str = "RS256"
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    template_file: str | None = None
    claims: tuple[tuple[str, str], ...] = ()
    has_id: bool = False
    valid_s: int = _VALID_S
    before_s: int = _BEFORE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The request for a token; all values can be pickled, because tasks of Spark fetch their own tokens.

    Attributes:
        url: The token endpoint, with the query of Azure's metadata service.
        grant: How the client proves its identity.
        client_id: For client credentials; with a secret also for an assertion, if the provider authenticates clients.
        client_secret: For client credentials; with an id also for an assertion.
        scope: The scope to request; None: the provider's default.
        extensions: SASL extensions that brokers receive with the token.
        subject_claim: The claim of the token that is the principal.
        assertion: For the grant of assertions.
        ca_location: The authorities that certify the endpoint, as in `ssl.ca.location`.
        ca_pem: The authorities as text.
    """

    url: str
    grant: Grant = Grant.CLIENT_CREDENTIALS
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    subject_claim: str = "sub"
    assertion: AssertionSettings = field(default_factory=AssertionSettings)
    ca_location: str | None = None
    ca_pem: str | None = field(default=None, repr=False)


def uses_oidc(given: Mapping[str, object]) -> bool:
    """Return whether tokens come from a token endpoint; a callback of the application has precedence."""
    return "oauth_cb" not in given and _has_method(given)


def oidc_settings(given: Mapping[str, object]) -> OidcSettings:
    """Return the request for tokens; values that `refusals` reports are replaced by defaults."""
    grant = _grant(given)
    url = _text(given, _URL) or ""
    if grant is Grant.METADATA:
        query = dict(_pairs(_text(given, f"{_KEY}config"))).get("query")
        url = url or _AZURE_URL
        url = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
    return OidcSettings(
        url=url,
        grant=grant,
        client_id=_text(given, _last(given, _CLIENT_ID)) or "",
        client_secret=_text(given, _last(given, _CLIENT_SECRET)) or "",
        scope=_text(given, f"{_KEY}scope"),
        extensions=tuple(_pairs(_text(given, f"{_KEY}extensions"))),
        subject_claim=_text(given, _SUBJECT_CLAIM) or "sub",
        assertion=AssertionSettings(
            file=_text(given, f"{_ASSERTION}file"),
            algorithm=_text(given, f"{_ASSERTION}algorithm") or "RS256",
            key_file=_text(given, _PRIVATE_KEYS[0]),
            key_pem=_text(given, _PRIVATE_KEYS[1]),
            passphrase=_text(given, f"{_ASSERTION}private.key.passphrase"),
            template_file=_text(given, f"{_ASSERTION}jwt.template.file"),
            claims=tuple(
                (claim, text) for claim in ("sub", "aud", "iss") if (text := _text(given, f"{_ASSERTION}claim.{claim}"))
            ),
            has_id=_is_true(given, f"{_ASSERTION}claim.jti.include"),
            valid_s=_seconds(given, f"{_ASSERTION}claim.exp.seconds", _VALID_S),
            before_s=_seconds(given, f"{_ASSERTION}claim.nbf.seconds", _BEFORE_S),
        ),
        ca_location=_text(given, "https.ca.location"),
        ca_pem=_text(given, "https.ca.pem"),
    )


def refusals(given: Mapping[str, object], *, has_callback: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys of OIDC that cannot be honored, each with the fix.

    librdkafka also checks the keys of a client whose tokens come from a callback.
    """
    if not _has_method(given):
        return
    if not has_callback:
        yield from _missing_libraries(given)
    kind = (_text(given, _METADATA) or "none").lower()
    if kind == "aws_iam":
        if not has_callback:
            yield _METADATA, _AWS
        return
    has_query = kind == Grant.METADATA.value and "query" in dict(_pairs(_text(given, f"{_KEY}config")))
    if _text(given, _URL) is None and not has_query:
        why = "for Azure IMDS authentication when `query` isn't set" if kind == Grant.METADATA.value else _WITH_OIDC
        yield _URL, f"Failed to create consumer: `{_URL}` is mandatory {why}; set it to the provider's token endpoint"
    if kind == "none":
        yield from _contradictions_of_grant(given)
    if _SUBJECT_CLAIM in given and not str(given[_SUBJECT_CLAIM]).strip():
        yield (
            _SUBJECT_CLAIM,
            f"Failed to create consumer: `{_SUBJECT_CLAIM}` must be non-empty and not contain only whitespace",
        )
    if _text(given, "https.ca.location") and _text(given, "https.ca.pem"):
        yield "https.ca.pem", "`https.ca.location` and `https.ca.pem` are mutually exclusive; set only one of them"


def _contradictions_of_grant(given: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    grant = _grant(given)
    if grant is Grant.CLIENT_CREDENTIALS:
        for names in (_CLIENT_ID, _CLIENT_SECRET):
            if _text(given, _last(given, names)) is None:
                yield names[0], f"Failed to create consumer: `{names[0]}` is mandatory {_WITH_OIDC}; set it"
        return
    beside = (
        "Failed to create consumer: Mutually exclusive properties set. `{}` and `{}` cannot both be set; remove one"
    )
    if _text(given, f"{_ASSERTION}file") is not None:
        for key in _CREATED:
            if _text(given, key) is not None:
                yield key, beside.format(f"{_ASSERTION}file", key)
    elif all(_text(given, key) is not None for key in _PRIVATE_KEYS):
        yield _PRIVATE_KEYS[1], beside.format(*_PRIVATE_KEYS)
    elif not any(_text(given, key) is not None for key in _PRIVATE_KEYS):
        why = (
            f"Failed to create consumer: `{_PRIVATE_KEYS[0]}` or `{_PRIVATE_KEYS[1]}` is mandatory when `{_GRANT}` is "
            f"set to `{Grant.JWT_BEARER.value}`; set one of them, or {_ASSERTION}file"
        )
        yield _PRIVATE_KEYS[0], why


def _missing_libraries(given: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the method if the packages of the extra are missing."""
    signs = _grant(given) is Grant.JWT_BEARER and _text(given, f"{_ASSERTION}file") is None
    for library in ("httpx", *(("joserfc",) if signs else ())):
        if find_spec(library) is None:
            from consumer_membership.installation import install_command

            missing = f"tokens are fetched with the package {library}, which is not installed"
            yield METHOD, f"{missing}: {install_command('oidc')}, {_INSTEAD}"


def _has_method(given: Mapping[str, object]) -> bool:
    return (_text(given, METHOD) or "").lower() == "oidc"


def _grant(given: Mapping[str, object]) -> Grant:
    if (_text(given, _METADATA) or "none").lower() == Grant.METADATA.value:
        return Grant.METADATA
    is_assertion = (_text(given, _GRANT) or "").lower() == Grant.JWT_BEARER.value
    return Grant.JWT_BEARER if is_assertion else Grant.CLIENT_CREDENTIALS


def _last(given: Mapping[str, object], names: tuple[str, ...]) -> str:
    found = [key for key in given if key in names]
    return found[-1] if found else names[0]


def _text(given: Mapping[str, object], key: str) -> str | None:
    """Return a text value as librdkafka reads it: without leading blanks; empty text is unset."""
    value = given.get(key)
    return None if value is None else str(value).lstrip(_BLANKS) or None


def _is_true(given: Mapping[str, object], key: str) -> bool:
    return (_text(given, key) or "").lower() in _TRUE


def _seconds(given: Mapping[str, object], key: str, default: int) -> int:
    try:
        return int(_text(given, key) or default)
    except ValueError:
        return default


def _pairs(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a comma-separated list of key=value; a backslash before a comma keeps the comma."""
    for part in (text or "").replace("\\,", "\0").split(","):
        key, _, value = part.strip().replace("\0", ",").partition("=")
        if key:
            yield key, value
