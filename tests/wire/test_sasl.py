"""The mechanisms' messages byte by byte; a dishonest broker never learns a secret."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer_membership.errors import AuthenticationError
from consumer_membership.wire.sasl import Mechanism, OAuthBearer, Plain, Scram
from tests.wire.scram import DIGESTS, Server

# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SALTED = bytes.fromhex("c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d")

#: A hostile or broken peer may send a part of a message with inserted bytes.
PLACES = st.integers(min_value=0, max_value=len(FIRST))
JUNK = st.one_of(st.binary(max_size=6), st.sampled_from([b",", b"=", b"m=", b",m=x", b"e=x", b"\xff", b"e=" + PROOF]))

#: Text with many of the characters that SCRAM escapes, and of the characters in the escapes.
NAMES = st.text(st.sampled_from(",=2CD3") | st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
NONCES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1)


def rfc7677() -> Scram:
    """Return the client of the RFC's example."""
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def proven() -> Scram:
    """Return the client of the RFC's example after it has sent its proof."""
    scram = rfc7677()
    scram.answer(FIRST)
    return scram


def refusal(mechanism: Mechanism, challenge: bytes) -> str:
    """Return the text of the error that this challenge raises."""
    with pytest.raises(AuthenticationError) as caught:
        mechanism.answer(challenge)
    return str(caught.value)


def outcome(mechanism: Mechanism, challenge: bytes) -> tuple[bytes | None, str]:
    """Return the message that is sent, or the error's text."""
    try:
        return mechanism.answer(challenge), ""
    except AuthenticationError as error:
        return None, str(error)


def holds_a_secret(text: str) -> bool:
    """Return whether the text contains the example's password or a value derived from it."""
    shapes = (str(SALTED), SALTED.hex(), b64encode(SALTED).decode(), PROOF.decode(), b64decode(PROOF).hex())
    return any(secret in text for secret in ("pencil", *shapes))


# ---- PLAIN -----------------------------------------------------------------------------------------------------------


def test_plain_sends_user_and_password_without_authorization_id() -> None:
    """RFC 4616: The message is [authzid] NUL authcid NUL passwd in UTF-8; Kafka uses authcid for both."""
    plain = Plain("jürgen", "p=,a ß")
    assert (plain.name, plain.begin()) == ("PLAIN", "\0jürgen\0p=,a ß".encode())


@pytest.mark.parametrize("challenge", [b"", b"welcome"])
def test_plain_ends_after_any_response(challenge: bytes) -> None:
    """Text beside the error code proves nothing; Java's client and librdkafka also ignore it."""
    plain: Mechanism = Plain("user", "pencil")
    assert plain.answer(challenge) is None


@pytest.mark.parametrize("junk", [pytest.param("\0", id="NUL"), pytest.param("\udc80", id="surrogate")])
def test_credentials_with_invalid_text_raise_error_that_names_them(junk: str) -> None:
    """A NUL would separate user and password, and an unpaired surrogate is not valid UTF-8."""
    for make in (Plain, lambda user, password: Scram("SCRAM-SHA-512", user, password, NONCE)):
        with pytest.raises(ValueError, match=r"^the user name has"):
            make("us" + junk + "er", "pencil")
        with pytest.raises(ValueError, match=r"^the password has") as caught:
            make("user", "pencil" + junk)
        assert "pencil" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["PLAIN", *DIGESTS])
def test_empty_credentials_raise_error_that_names_them(name: str) -> None:
    """Both RFCs require at least one character; Kafka rejects it for PLAIN and cannot store it for SCRAM."""

    def make(user: str, password: str) -> Mechanism:
        return Plain(user, password) if name == "PLAIN" else Scram(name, user, password, NONCE)

    with pytest.raises(ValueError, match=r"^the user name is empty$"):
        make("", "pencil")
    with pytest.raises(ValueError, match=r"^the password is empty$"):
        make("user", "")


# ---- SCRAM -----------------------------------------------------------------------------------------------------------


def test_scram_messages_equal_rfc_7677_example() -> None:
    """The messages equal section 3, byte for byte."""
    scram = rfc7677()
    assert (scram.name, scram.begin()) == ("SCRAM-SHA-256", b"n,,n=user,r=" + NONCE.encode())
    assert scram.answer(FIRST) == b"c=biws," + FIRST.partition(b",")[0] + b",p=" + PROOF
    assert scram.answer(FINAL) is None


@pytest.mark.slow
@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(DIGESTS)),
    username=NAMES,
    password=NAMES,
    nonces=st.tuples(NONCES, NONCES),
    salt=st.binary(max_size=40),
)
@example("SCRAM-SHA-512", "=2C,=3D=", "\u017f\u00ad", ("n", "="), b"")
def test_scram_and_server_authenticate_each_other(
    name: str, username: str, password: str, nonces: tuple[str, str], salt: bytes
) -> None:
    """For any user, password, nonces and salt, the server receives the name, and proof and signature are valid."""
    scram, server = Scram(name, username, password, nonces[0]), Server(name, password, salt)
    proof = scram.answer(server.first(scram.begin(), nonces[1].encode()))
    assert (server.username, server.nonce) == (username, "".join(nonces).encode())
    assert proof is not None
    final = server.final(proof)
    assert final.startswith(b"v=")
    assert scram.answer(final) is None


@pytest.mark.parametrize("name", DIGESTS)
def test_scram_with_wrong_password_raises_servers_error(name: str) -> None:
    """RFC 5802, section 7: The server sends `e=` and a value, which the error contains."""
    scram, server = Scram(name, "user", "pen", NONCE), Server(name, "pencil", b"salt")
    proof = scram.answer(server.first(scram.begin(), b"x"))
    assert proof is not None
    assert refusal(scram, server.final(proof)) == f"the broker rejected the credentials for {name}: 'invalid-proof'"


@pytest.mark.parametrize("name", DIGESTS)
def test_scram_rejects_broker_without_users_keys(name: str) -> None:
    """Only a broker with the user's keys can create the server signature, whatever proof it accepts."""
    scram, server = Scram(name, "user", "pencil", NONCE), Server(name, "pencil", b"salt")
    proof = scram.answer(server.first(scram.begin(), b"x"))
    assert proof is not None
    server.server_key = bytes(len(server.server_key))
    assert "signature is wrong" in refusal(scram, server.final(proof))


def test_scram_rejects_repeated_or_early_message() -> None:
    """After the proof only a signature is valid; the first message again is not a signature."""
    assert "last message" in refusal(proven(), FIRST)
    assert "first message" in refusal(rfc7677(), FINAL)


@pytest.mark.parametrize(
    "nonce",
    [pytest.param(NONCE, id="ours only"), pytest.param("X" + NONCE, id="another"), pytest.param(NONCE[:-1], id="cut")],
)
def test_scram_rejects_nonce_that_does_not_extend_its_own(nonce: str) -> None:
    """RFC 5802, section 5.1: The check prevents replays of an old exchange from either side."""
    text = refusal(rfc7677(), FIRST.replace(FIRST.partition(b",")[0], b"r=" + nonce.encode()))
    assert "nonce" in text


@pytest.mark.parametrize("count", [0, 1, 4095, 1_000_001, 2_147_483_647])
def test_scram_rejects_too_few_or_too_many_iterations(count: int) -> None:
    """With few, a false broker could guess the password from the proof; many would block the client."""
    text = refusal(rfc7677(), FIRST.replace(b"i=4096", b"i=%d" % count))
    assert text.startswith(f"the broker requests {count} iterations, outside 4096 to 1000000: ")


@pytest.mark.slow
@pytest.mark.parametrize("count", [4096, 1_000_000])
def test_scram_accepts_minimum_and_maximum_iterations(count: int) -> None:
    """Both limits are allowed values."""
    assert rfc7677().answer(FIRST.replace(b"i=4096", b"i=%d" % count)) is not None


@pytest.mark.parametrize(
    "challenge",
    [
        pytest.param(b"", id="empty"),
        pytest.param(FIRST[:-4], id="no iterations"),
        pytest.param(FIRST.replace(b"4096", b"-4096"), id="negative iterations"),
        pytest.param(FIRST.replace(b"4096", b"4_096"), id="what int() would take"),
        pytest.param(FIRST.replace(b"4096", "٤٠٩٦".encode()), id="digits of another script"),
        pytest.param(FIRST.replace(b"4096", b"9" * 5000), id="more digits than int() takes"),
        pytest.param(FIRST.replace(b"gQ==", b"gQ="), id="salt of a wrong length"),
        pytest.param(FIRST.replace(b"W22Z", b"W-2Z"), id="salt that is not base64"),
        pytest.param(FIRST.replace(b"%hv", b"\x00hv"), id="nonce that cannot be printed"),
        pytest.param(FIRST + b"\n", id="a line's end"),
        pytest.param(FIRST + b",x", id="half an extension"),
        pytest.param(b",".join(reversed(FIRST.split(b","))), id="another order"),
        pytest.param(b"e=no-resources", id="error before its time"),
    ],
)
def test_scram_rejects_malformed_first_message(challenge: bytes) -> None:
    """RFC 5802, section 7, defines one format; the error has the size of the message, but not its content."""
    text = f"the broker's first message of SCRAM-SHA-256 ({len(challenge)} bytes) is not r=nonce,s=salt,i=iterations"
    assert refusal(rfc7677(), challenge) == text


@pytest.mark.parametrize(
    "challenge",
    [b"", b"v=", b"v", FINAL[:-1], FINAL + b"=", FINAL[2:], b"V" + FINAL[1:], b"e=", b"e=" + PROOF, FINAL + b","],
)
def test_scram_rejects_last_message_without_signature(challenge: bytes) -> None:
    """Only the complete signature is valid; the error omits the message, which could contain the proof."""
    text = refusal(proven(), challenge)
    assert text.startswith(("the broker's last message of SCRAM-SHA-256 (", "the broker's signature is wrong"))
    assert not holds_a_secret(text)


def test_scram_compares_signatures_as_text() -> None:
    """Base64 leaves bits unused, so other texts decode to equal bytes; no broker sends those."""
    other = FINAL.replace(b"G4=", b"G5=")
    assert b64decode(other[2:]) == b64decode(FINAL[2:])
    assert "signature is wrong" in refusal(proven(), other)


def test_scram_error_quotes_and_shortens_brokers_text() -> None:
    """A line end would let the broker write its own lines into a log."""
    text = refusal(proven(), b"e=no\nWARN " + b"\xff" + b"x" * 1000 + b",tried=3")
    assert text == "the broker rejected the credentials for SCRAM-SHA-256: 'no\\nWARN \ufffd" + "x" * 91 + "'"


@pytest.mark.parametrize("of_first", [b"m=x," + FIRST, FIRST + b",m=x", FIRST + b",x=y,m="])
def test_scram_rejects_mandatory_extension_in_first_message(of_first: bytes) -> None:
    """RFC 5802, section 5.1: A client that does not support the extension in `m` must fail."""
    assert "mandatory extension" in refusal(rfc7677(), of_first)


def test_scram_rejects_mandatory_extension_in_last_message() -> None:
    """The extension is rejected even after a valid signature."""
    assert "mandatory extension" in refusal(proven(), FINAL + b",m=x")


def test_scram_ignores_optional_extensions_but_signs_them() -> None:
    """RFC 5802, section 5.1: Unknown extensions are ignored, but both sides sign them (section 3)."""
    scram, server = rfc7677(), Server("SCRAM-SHA-256", "pencil", b"salt")
    server.first(scram.begin(), b"x")
    server.first_message += b",tokenauth=true,x=m=1"
    proof = scram.answer(server.first_message)
    assert proof is not None
    assert scram.answer(server.final(proof) + b",x=y") is None


@pytest.mark.slow
@given(start=PLACES, end=PLACES, junk=JUNK, place=PLACES)
def test_scram_with_garbled_message_raises_only_authentication_error(
    start: int, end: int, junk: bytes, place: int
) -> None:
    """A truncated or garbled message never authenticates the broker, and the error reveals no secret."""

    def garbled(message: bytes) -> bytes:
        piece = message[start:] if start < end else message[:end]
        return piece[:place] + junk + piece[place:]

    answer, text = outcome(rfc7677(), garbled(FIRST))
    assert (answer is None) == bool(text)
    assert not holds_a_secret(text)
    answer, text = outcome(proven(), garbled(FINAL))
    assert answer is None
    assert text or garbled(FINAL).partition(b",")[0] == FINAL
    assert not holds_a_secret(text)


@pytest.mark.slow
@given(message=st.binary())
@example(b"\xff" * 100)
def test_scram_rejects_random_bytes(message: bytes) -> None:
    """Random bytes are neither a valid first message nor a valid last one."""
    refusal(rfc7677(), message)
    refusal(proven(), message)


def test_scram_begin_returns_same_message_each_time() -> None:
    """The proof covers the first message, so it must not change."""
    scram = rfc7677()
    assert scram.begin() == scram.begin()


@pytest.mark.parametrize("nonce", ["", "a,b", "a b", "é", "a\n"])
def test_scram_with_invalid_nonce_raises(nonce: str) -> None:
    """RFC 5802, section 7: A nonce is printable ASCII without a comma, and not empty."""
    with pytest.raises(ValueError, match="nonce"):
        Scram("SCRAM-SHA-256", "user", "pencil", nonce)


def test_scram_accepts_only_kafkas_two_mechanisms() -> None:
    """KIP-84: SHA-1 is not supported."""
    with pytest.raises(ValueError, match=r"^'SCRAM-SHA-1' is not one of SCRAM-SHA-256, SCRAM-SHA-512"):
        Scram("SCRAM-SHA-1", "user", "pencil", NONCE)


# ---- OAUTHBEARER -----------------------------------------------------------------------------------------------------

REFUSAL = b'{"status":"invalid_token", "scope":"kafka"}'


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ({}, b"n,,\x01auth=Bearer aB9-._~+/==\x01\x01"),
        (
            {"logicalCluster": "lkc-1 =,~", "b": "\t\r\n"},
            b"n,,\x01auth=Bearer aB9-._~+/==\x01logicalCluster=lkc-1 =,~\x01b=\t\r\n\x01\x01",
        ),
    ],
)
def test_bearer_sends_token_and_extensions(extensions: dict[str, str], expected: bytes) -> None:
    """The message equals RFC 7628, section 3.1, and KIP-342, byte for byte."""
    bearer = OAuthBearer("aB9-._~+/==", extensions)
    assert (bearer.name, bearer.begin()) == ("OAUTHBEARER", expected)


def test_bearer_ends_with_empty_challenge() -> None:
    """RFC 7628, section 3.2: A success has an empty message."""
    assert OAuthBearer("t", {}).answer(b"") is None


def test_bearer_acknowledges_error_with_one_byte() -> None:
    """RFC 7628, section 3.2.3: The client sends one byte; then Kafka's broker returns its error code."""
    assert OAuthBearer("t", {}).answer(REFUSAL) == b"\x01"


@pytest.mark.parametrize("challenge", [b"", REFUSAL, b"more"])
def test_bearer_raises_first_error_whatever_follows(challenge: bytes) -> None:
    """No success follows an error, and the exception has the first error's status."""
    bearer = OAuthBearer("t", {})
    bearer.answer(REFUSAL)
    assert refusal(bearer, challenge) == "the broker rejected the token: 'invalid_token'"


@pytest.mark.parametrize(
    "challenge",
    [
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"1" * 5000,
        b"7",
        b'["status"]',
        b"{}",
        b'{"status":1}',
        b'{"status":null}',
        b'{"status":""}',
    ],
)
def test_bearer_reports_error_without_readable_status(challenge: bytes) -> None:
    """The broker must send a status; a missing status still raises AuthenticationError."""
    bearer = OAuthBearer("t", {})
    assert bearer.answer(challenge) == b"\x01"
    assert refusal(bearer, b"") == "the broker rejected the token: no readable status"


@given(challenge=st.one_of(st.binary(min_size=1), st.text(min_size=1).map(str.encode)), more=st.binary())
def test_bearer_with_garbled_challenge_raises_only_authentication_error(challenge: bytes, more: bytes) -> None:
    """Any first challenge is answered with one byte, and any second challenge raises the error."""
    bearer = OAuthBearer("t", {})
    assert bearer.answer(challenge) == b"\x01"
    refusal(bearer, more)


def test_bearer_error_quotes_and_shortens_status() -> None:
    """A long status may be the token itself, whose end must not be revealed."""
    token = "eyJ" + "h" * 200 + ".signature"
    bearer = OAuthBearer(token, {})
    bearer.answer(b'{"status":"\\n%b"}' % token.encode())
    assert refusal(bearer, b"") == "the broker rejected the token: '\\n" + token[:99] + "'"


@pytest.mark.parametrize("key", ["auth", "", "a1", "a-b", "a=b", "é", "a\n", "a\x01"])
def test_bearer_with_invalid_extension_key_raises(key: str) -> None:
    """KIP-342: A key consists of letters; `auth` is reserved for the token."""
    with pytest.raises(ValueError, match="extension") as caught:
        OAuthBearer("t", {"fine": "1", key: "value"})
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("value", ["", "a\x01auth=Bearer x", "é", "\0", "\x7f"])
def test_bearer_with_invalid_extension_value_raises(value: str) -> None:
    """KIP-342: A value is printable ASCII and white space; a separator would start another extension."""
    with pytest.raises(ValueError, match="extension 'broken'"):
        OAuthBearer("t", {"fine": "1", "broken": value})


@pytest.mark.parametrize("token", ["", "pencil\n", "pen cil", "pencil\x01", "=", "pen=cil", "pencilé"])
def test_bearer_with_invalid_token_raises_error_that_hides_it(token: str) -> None:
    """RFC 6750, section 2.1, defines the valid characters."""
    with pytest.raises(ValueError, match="token") as caught:
        OAuthBearer(token, {})
    assert "cil" not in str(caught.value)


# ---- all mechanisms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [Plain("user", "pencil"), rfc7677(), proven(), OAuthBearer("pencil", {"key": "pencil"})],
    ids=["plain", "scram", "scram proven", "bearer"],
)
def test_mechanism_repr_hides_secret(mechanism: Mechanism) -> None:
    """Mechanisms appear in tracebacks and in the repr of objects that contain them."""
    for text in (repr(mechanism), str(mechanism), f"{mechanism}"):
        assert type(mechanism).__name__ in text
        assert not holds_a_secret(text)
    assert not hasattr(mechanism, "__dict__")


def test_salted_password_constant_equals_rfc_5802_formula() -> None:
    """SALTED comes from RFC 5802's formula, not from the code under test."""
    server = Server("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert server.stored_key == sha256(hmac.digest(SALTED, b"Client Key", "sha256")).digest()
