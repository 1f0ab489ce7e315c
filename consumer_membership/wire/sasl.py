"""SASL: authenticate a client to a broker with one mechanism on one connection; bytes in, bytes out.

Kafka carries the mechanisms' messages in SaslAuthenticate (KIP-152); see `authentication`. Standard library only.

PLAIN and OAUTHBEARER send the secret itself to the peer, so they need TLS. SCRAM sends a proof of it, and the broker
must prove that it has the user's keys. User names and passwords are sent unchanged in UTF-8: the RFCs require SASLprep
first (RFC 4013), but neither Kafka's clients and brokers nor librdkafka apply it, and a client that did could not log
in with credentials that they stored.

No error and no `repr` contains a secret or a broker's message, which could be an echo of it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from consumer_membership.errors import AuthenticationError


class Mechanism(Protocol):
    """One authentication in progress."""

    @property
    def name(self) -> str:
        """The mechanism's registered name, such as SCRAM-SHA-256."""

    def begin(self) -> bytes:
        """Return the first message to send."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the next message to send; None: done, and the broker's identity is proved as far as the mechanism can.

        Raises:
            AuthenticationError: the challenge is not one that a correct broker would send.
        """


#: Kafka's error codes UNSUPPORTED_SASL_MECHANISM and ILLEGAL_SASL_STATE.
_NOT_TAKEN, _NOT_EXPECTED = 33, 34


def judge_handshake(name: str, code: int, offered: Iterable[str]) -> None:
    """Return if the broker accepts the mechanism with this name.

    Raises:
        AuthenticationError: the response to SaslHandshake has an error code; the message has the fix.
    """
    if code == _NOT_TAKEN:
        mechanisms = ", ".join(offered) or "none"
        raise AuthenticationError(f"the broker does not support {name}; set sasl.mechanism to one of: {mechanisms}")
    if code == _NOT_EXPECTED:
        raise AuthenticationError(
            "SASL is not enabled on this listener; set security.protocol to plaintext or ssl, or use the port of "
            "the broker's SASL listener"
        )
    if code != 0:
        raise AuthenticationError(f"the broker rejected {name} with error code {code}")


def judge_reply(name: str, code: int, message: str | None) -> None:
    """Return if the broker continues with the mechanism of this name.

    Raises:
        AuthenticationError: the response to SaslAuthenticate has an error code; with the broker's message.
    """
    if code != 0:
        raise AuthenticationError(f"the broker rejected the credentials for {name}: {message or f'error code {code}'}")


class Plain:
    """User name and password in plain text (RFC 4616); no authorization id, for which Kafka uses the user name.

    Raises:
        ValueError: the user name or the password cannot be sent.
    """

    __slots__ = ("_first", "name")

    def __init__(self, username: str, password: str) -> None:
        self.name: Final = "PLAIN"
        self._first = b"\0" + _encoded("user name", username) + b"\0" + _encoded("password", password)

    def begin(self) -> bytes:
        """Return the only message."""
        return self._first

    def answer(self, challenge: bytes) -> None:
        """Return None: the error code of the response is the result. Other clients also ignore the message."""


# ---- SCRAM -----------------------------------------------------------------------------------------------------------

_DIGESTS: Final = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

#: "No channel binding, and no authorization id" (RFC 5802, section 7); Kafka supports neither.
_GS2_HEADER = b"n,,"

#: Kafka's own minimum (ScramMechanism; its maximum is 16384). A false broker that requests fewer iterations would
#: receive a proof with which passwords can be tried quickly.
_MIN_ITERATIONS = 4096

#: librdkafka's maximum. It takes up to a second, during which the network thread does nothing else; the maximum of an
#: int32 would take half an hour.
_MAX_ITERATIONS = 1_000_000

_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rb"(?:,[A-Za-z]+=[^,]+)*"
_SERVER_FIRST = re.compile(rb"r=(%b),s=(%b),i=([0-9]{1,10})%b" % (_NONCE, _BASE64, _EXTENSIONS))
_SERVER_FINAL = re.compile(rb"(?:v=(%b)|e=([^,=]+))%b" % (_BASE64, _EXTENSIONS))
_MANDATORY_EXTENSION = re.compile(rb"(?:\A|,)m=")


class Scram:
    """Prove the password, and verify the broker's proof that it has the user's keys (RFC 5802, RFC 7677, KIP-84).

    `nonce` comes from the caller: printable ASCII without commas, unpredictable and never used before. `answer` returns
    None only for the broker's signature.

    Raises:
        ValueError: the name is not one of Kafka's two; or the nonce, the user name or the password cannot be sent.
    """

    __slots__ = ("_digest", "_first", "_nonce", "_password", "_signature", "name")

    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        if name not in _DIGESTS:
            raise ValueError(f"{name!r} is not one of {', '.join(_DIGESTS)}")
        self.name: Final = name
        self._digest = _DIGESTS[name]
        self._nonce = nonce.encode()
        if not re.fullmatch(_NONCE, self._nonce):
            raise ValueError(f"the nonce {nonce!r} is not printable ASCII without commas")
        self._password = _encoded("password", password)
        # "=" first, because the escapes contain it.
        saslname = _encoded("user name", username).replace(b"=", b"=3D").replace(b",", b"=2C")
        self._first = b"n=" + saslname + b",r=" + self._nonce
        #: The signature that the broker must send; None before its first message.
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        """Return the user name and the nonce."""
        return _GS2_HEADER + self._first

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the proof, and then None for the broker's own proof."""
        if _MANDATORY_EXTENSION.search(challenge):
            raise AuthenticationError(
                f"the broker's {self.name} needs a mandatory extension (m=), which is not supported"
            )
        if self._signature is None:
            return self._prove(challenge)
        self._verify(challenge, self._signature)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        parts = _SERVER_FIRST.fullmatch(challenge)
        if parts is None:
            raise AuthenticationError(
                f"the broker's first message of {self.name} ({len(challenge)} bytes) is not r=nonce,s=salt,i=iterations"
            )
        nonce, salt, iterations = parts[1], b64decode(parts[2]), int(parts[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError(f"the broker's {self.name} nonce does not begin with the client's")
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker requests {iterations} iterations, outside {_MIN_ITERATIONS} to {_MAX_ITERATIONS}: fewer "
                "make the password easy to guess, more block this client; store the user's SCRAM credentials again"
            )
        return self._proof(nonce, challenge, hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations))

    def _proof(self, nonce: bytes, challenge: bytes, salted_password: bytes) -> bytes:
        """Return the last message, by the formulas and names of RFC 5802, section 3."""
        without_proof = b"c=" + b64encode(_GS2_HEADER) + b",r=" + nonce
        auth_message = b",".join((self._first, challenge, without_proof))
        mac = partial(hmac.digest, digest=self._digest)
        client_key = mac(salted_password, b"Client Key")
        client_signature = mac(hashlib.new(self._digest, client_key).digest(), auth_message)
        self._signature = b64encode(mac(mac(salted_password, b"Server Key"), auth_message))
        proof = bytes(left ^ right for left, right in zip(client_key, client_signature, strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def _verify(self, challenge: bytes, signature: bytes) -> None:
        parts = _SERVER_FINAL.fullmatch(challenge)
        if parts is None:
            raise AuthenticationError(
                f"the broker's last message of {self.name} ({len(challenge)} bytes) is neither v=signature nor e=error"
            )
        if parts[2] is not None:
            message = _quoted(parts[2].decode(errors="replace"))
            raise AuthenticationError(f"the broker rejected the credentials for {self.name}: {message}")
        if not hmac.compare_digest(parts[1], signature):
            raise AuthenticationError(
                f"the broker's signature is wrong ({self.name}): the peer does not have the user's keys, so it "
                "is not the broker that it claims to be"
            )


# ---- OAUTHBEARER -----------------------------------------------------------------------------------------------------

_B64TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_KEY = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")
_KVSEP = b"\x01"


class OAuthBearer:
    """A bearer token (RFC 6750) with extensions (RFC 7628, section 3.1; KIP-255, KIP-342).

    Raises:
        ValueError: the token, or the extension that the message names, has invalid characters.
    """

    __slots__ = ("_first", "_status", "name")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        if not _B64TOKEN.fullmatch(token):
            raise ValueError(
                "the token must consist of letters, digits, -._~+/ and trailing = (RFC 6750); check it for a line end"
            )
        for key, value in extensions.items():
            if key == "auth" or not _EXTENSION_KEY.fullmatch(key):
                raise ValueError(f"the extension name {key!r} must consist of letters and must not be 'auth' (KIP-342)")
            if not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the value of the extension {key!r} must be printable ASCII and not empty (KIP-342)")
        self.name: Final = "OAUTHBEARER"
        pairs = (f"auth=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items()))
        self._first = _KVSEP.join((_GS2_HEADER, *map(str.encode, pairs), b"", b""))
        #: Why the broker rejected the token; None: it did not.
        self._status: str | None = None

    def begin(self) -> bytes:
        """Return the token and the extensions."""
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None on success; on an error one byte, after which the broker rejects the client (section 3.2.3)."""
        if self._status is not None:
            raise AuthenticationError(f"the broker rejected the token: {self._status}")
        if not challenge:
            return None
        self._status = _status(challenge)
        return _KVSEP


def _status(challenge: bytes) -> str:
    """Return the `status` of an error in JSON (RFC 7628, section 3.2.2), for people."""
    try:
        error = json.loads(challenge.decode())
    except (ValueError, RecursionError):
        error = None
    status = error.get("status") if isinstance(error, dict) else None
    return _quoted(status) if status and isinstance(status, str) else "no readable status"


#: RFC 5802's longest error has 35 characters; if a broker returns the token as a status, this cuts off its signature.
_MAX_QUOTED = 100

_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")


def _quoted(text: str) -> str:
    """Return a broker's message in one line."""
    return repr(text[:_MAX_QUOTED])


def _encoded(what: str, text: str) -> bytes:
    """Return the text in UTF-8; it is checked first, because the error of `encode` would contain the text."""
    if not text:
        raise ValueError(f"the {what} is empty")
    if _NO_TEXT.search(text):
        raise ValueError(f"the {what} has a NUL or an unpaired surrogate, which cannot be sent")
    return text.encode()
