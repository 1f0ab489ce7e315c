"""SASL: how a client proves to a broker who it is, one mechanism for one connection; bytes in, bytes out.

Kafka carries the mechanisms' messages in SaslAuthenticate (KIP-152); `authentication` does that. Standard library only.

PLAIN and OAUTHBEARER hand the secret itself to whoever answers, so they are for connections with TLS. SCRAM hands out
a proof of it and has the broker prove that it holds the user's keys. User names and passwords are sent as they are, in
UTF-8: the RFCs want them through SASLprep first (RFC 4013), but neither Kafka's clients and brokers nor librdkafka do
that, and a client that did could not log in with what those stored.

No error's text and no `repr` has a secret in it, and neither repeats a broker's message: that could be an echo.
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
    """One authentication under way."""

    @property
    def name(self) -> str:
        """The mechanism's registered name, such as SCRAM-SHA-256."""

    def begin(self) -> bytes:
        """The first message to send."""

    def answer(self, challenge: bytes) -> bytes | None:
        """What to send next; None: nothing, and the broker is who it says, as far as the mechanism can tell.

        Raises:
            AuthenticationError: the challenge is not what an honest broker would send.
        """


#: Kafka's error codes UNSUPPORTED_SASL_MECHANISM and ILLEGAL_SASL_STATE.
_NOT_TAKEN, _NOT_EXPECTED = 33, 34


def judge_handshake(name: str, code: int, offered: Iterable[str]) -> None:
    """Let pass that the broker takes the mechanism of this name.

    Raises:
        AuthenticationError: SaslHandshake was answered with another code; with the remedy.
    """
    if code == _NOT_TAKEN:
        words = ", ".join(offered) or "none"
        raise AuthenticationError(f"the broker does not take {name}, but {words}; set sasl.mechanism to one")
    if code == _NOT_EXPECTED:
        raise AuthenticationError(
            "this listener of the broker asks nobody who they are; set security.protocol to plaintext or ssl, or "
            "use the port of its SASL listener"
        )
    if code != 0:
        raise AuthenticationError(f"the broker refuses {name} with error code {code}")


def judge_reply(name: str, code: int, words: str | None) -> None:
    """Let pass that the broker goes on with the mechanism of this name.

    Raises:
        AuthenticationError: SaslAuthenticate was answered with another code; with the broker's words.
    """
    if code != 0:
        raise AuthenticationError(f"the broker refuses the credentials for {name}: {words or f'error code {code}'}")


class Plain:
    """User name and password as they are (RFC 4616); no authorization id, for which Kafka takes the user's name.

    Raises:
        ValueError: the user name or the password cannot be sent.
    """

    __slots__ = ("_first", "name")

    def __init__(self, username: str, password: str) -> None:
        self.name: Final = "PLAIN"
        self._first = b"\0" + _encoded("user name", username) + b"\0" + _encoded("password", password)

    def begin(self) -> bytes:
        """The only message."""
        return self._first

    def answer(self, challenge: bytes) -> None:
        """Nothing: the error code beside it was the answer. Java's client and librdkafka do not look at it either."""


# ---- SCRAM -----------------------------------------------------------------------------------------------------------

_DIGESTS: Final = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

#: "No channel binding, and no authorization id" (RFC 5802, section 7); Kafka has neither.
_GS2_HEADER = b"n,,"

#: Kafka's own least (ScramMechanism; its most is 16384). Whoever poses as a broker gets a proof to try passwords on,
#: and would have it made so that trying is quick.
_MIN_ITERATIONS = 4096

#: librdkafka's most. It takes up to a second, in which the network thread does nothing else; an int32, half an hour.
_MAX_ITERATIONS = 1_000_000

_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rb"(?:,[A-Za-z]+=[^,]+)*"
_SERVER_FIRST = re.compile(rb"r=(%b),s=(%b),i=([0-9]{1,10})%b" % (_NONCE, _BASE64, _EXTENSIONS))
_SERVER_FINAL = re.compile(rb"(?:v=(%b)|e=([^,=]+))%b" % (_BASE64, _EXTENSIONS))
_MANDATORY_EXTENSION = re.compile(rb"(?:\A|,)m=")


class Scram:
    """A proof of the password, and one of the broker's that it holds the user's keys (RFC 5802, RFC 7677, KIP-84).

    `nonce` is the caller's: printable ASCII without commas, unpredictable and never used before. None comes from
    `answer` for the broker's signature only.

    Raises:
        ValueError: the name is none of Kafka's two; the nonce, the user name or the password cannot be sent.
    """

    __slots__ = ("_digest", "_first", "_nonce", "_password", "_signature", "name")

    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        if name not in _DIGESTS:
            raise ValueError(f"{name!r} is none of {', '.join(_DIGESTS)}")
        self.name: Final = name
        self._digest = _DIGESTS[name]
        self._nonce = nonce.encode()
        if not re.fullmatch(_NONCE, self._nonce):
            raise ValueError(f"the nonce {nonce!r} is not printable ASCII without commas")
        self._password = _encoded("password", password)
        # "=" first: the escapes bring in new ones.
        saslname = _encoded("user name", username).replace(b"=", b"=3D").replace(b",", b"=2C")
        self._first = b"n=" + saslname + b",r=" + self._nonce
        #: What the broker will have to say; None until its first message is there.
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        """The user's name and the nonce."""
        return _GS2_HEADER + self._first

    def answer(self, challenge: bytes) -> bytes | None:
        """The proof, and then None for the broker's own."""
        if _MANDATORY_EXTENSION.search(challenge):
            raise AuthenticationError(f"the broker's {self.name} wants a mandatory extension (m=); none is known here")
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
            raise AuthenticationError(f"the broker's nonce for {self.name} does not go on from the one it was sent")
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} iterations, and not for {_MIN_ITERATIONS} to {_MAX_ITERATIONS}: "
                "fewer make the password easy to guess, more stop this client; store the user's password anew"
            )
        return self._proof(nonce, challenge, hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations))

    def _proof(self, nonce: bytes, challenge: bytes, salted_password: bytes) -> bytes:
        """The last message, by the formulas and names of RFC 5802, section 3."""
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
            words = _quoted(parts[2].decode(errors="replace"))
            raise AuthenticationError(f"the broker refuses the credentials for {self.name}: {words}")
        if not hmac.compare_digest(parts[1], signature):
            raise AuthenticationError(
                f"the broker's signature is wrong: it took the proof of {self.name} without holding the user's keys, "
                "so it is not the broker that it says it is"
            )


# ---- OAUTHBEARER -----------------------------------------------------------------------------------------------------

_B64TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_KEY = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")
_KVSEP = b"\x01"


class OAuthBearer:
    """A bearer token (RFC 6750), with what the broker is told beside it (RFC 7628, section 3.1; KIP-255, KIP-342).

    Raises:
        ValueError: the token, or the extension that the text names, has characters which the message cannot carry.
    """

    __slots__ = ("_first", "_status", "name")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        if not _B64TOKEN.fullmatch(token):
            raise ValueError("the token is not letters, digits, -._~+/ and then = (RFC 6750); is a line's end in it?")
        for key, value in extensions.items():
            if key == "auth" or not _EXTENSION_KEY.fullmatch(key):
                raise ValueError(f"the extension {key!r} needs another name: letters only, and not 'auth' (KIP-342)")
            if not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the extension {key!r} is empty or has other than printable ASCII in it (KIP-342)")
        self.name: Final = "OAUTHBEARER"
        pairs = (f"auth=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items()))
        self._first = _KVSEP.join((_GS2_HEADER, *map(str.encode, pairs), b"", b""))
        #: Why the broker refuses; None while it does not.
        self._status: str | None = None

    def begin(self) -> bytes:
        """The token and the extensions."""
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        """None for success; one byte for an error, which has the broker go on and refuse (section 3.2.3)."""
        if self._status is not None:
            raise AuthenticationError(f"the broker refuses the token: {self._status}")
        if not challenge:
            return None
        self._status = _status(challenge)
        return _KVSEP


def _status(challenge: bytes) -> str:
    """The `status` of an error in JSON (RFC 7628, section 3.2.2), to be read by people."""
    try:
        error = json.loads(challenge.decode())
    except (ValueError, RecursionError):
        error = None
    status = error.get("status") if isinstance(error, dict) else None
    return _quoted(status) if status and isinstance(status, str) else "no status that can be read"


#: RFC 5802's longest error has 35 characters; a token that comes back as a status loses its signature.
_MAX_QUOTED = 100

_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")


def _quoted(words: str) -> str:
    """A broker's words on one line."""
    return repr(words[:_MAX_QUOTED])


def _encoded(what: str, text: str) -> bytes:
    """The text in UTF-8; checked before, because the error that `encode` raises would carry it."""
    if not text:
        raise ValueError(f"the {what} is empty")
    if _NO_TEXT.search(text):
        raise ValueError(f"the {what} has a NUL in it, or half of a surrogate pair; no message can carry those")
    return text.encode()
