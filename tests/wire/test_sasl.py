"""The mechanisms' messages byte by byte, and what a broker that is not honest gets to hear of the secrets: nothing."""

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

#: What a hostile or broken peer may make of a message: a piece of it, with something put in.
PLACES = st.integers(min_value=0, max_value=len(FIRST))
JUNK = st.one_of(st.binary(max_size=6), st.sampled_from([b",", b"=", b"m=", b",m=x", b"e=x", b"\xff", b"e=" + PROOF]))

#: Text with many of the characters that SCRAM escapes, and of what the escapes are made of.
NAMES = st.text(st.sampled_from(",=2CD3") | st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
NONCES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1)


def rfc7677() -> Scram:
    """The client of the RFC's example."""
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def proven() -> Scram:
    """The same, once it has sent its proof."""
    scram = rfc7677()
    scram.answer(FIRST)
    return scram


def refusal(mechanism: Mechanism, challenge: bytes) -> str:
    """The text of the error that this challenge leads to."""
    with pytest.raises(AuthenticationError) as caught:
        mechanism.answer(challenge)
    return str(caught.value)


def outcome(mechanism: Mechanism, challenge: bytes) -> tuple[bytes | None, str]:
    """What is answered, or the error's text."""
    try:
        return mechanism.answer(challenge), ""
    except AuthenticationError as error:
        return None, str(error)


def holds_a_secret(text: str) -> bool:
    """Whether the password of the RFC's example, or what is made of it, can be read in the text."""
    shapes = (str(SALTED), SALTED.hex(), b64encode(SALTED).decode(), PROOF.decode(), b64decode(PROOF).hex())
    return any(secret in text for secret in ("pencil", *shapes))


# ---- PLAIN -----------------------------------------------------------------------------------------------------------


def test_plain_says_user_and_password_and_no_authorization_id() -> None:
    """RFC 4616: [authzid] NUL authcid NUL passwd, in UTF-8; Kafka takes the first to be the second."""
    plain = Plain("jürgen", "p=,a ß")
    assert (plain.name, plain.begin()) == ("PLAIN", "\0jürgen\0p=,a ß".encode())


@pytest.mark.parametrize("challenge", [b"", b"welcome"])
def test_plain_is_over_with_the_answer(challenge: bytes) -> None:
    """What a broker says beside its error code proves nothing; Java's client and librdkafka look away, too."""
    plain: Mechanism = Plain("user", "pencil")
    assert plain.answer(challenge) is None


@pytest.mark.parametrize("junk", [pytest.param("\0", id="NUL"), pytest.param("\udc80", id="surrogate")])
def test_credentials_that_no_message_can_carry_are_refused_by_name(junk: str) -> None:
    """A NUL would move the border between user and password; half a surrogate pair is not text in UTF-8."""
    for make in (Plain, lambda user, password: Scram("SCRAM-SHA-512", user, password, NONCE)):
        with pytest.raises(ValueError, match=r"^the user name has"):
            make("us" + junk + "er", "pencil")
        with pytest.raises(ValueError, match=r"^the password has") as caught:
            make("user", "pencil" + junk)
        assert "pencil" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["PLAIN", *DIGESTS])
def test_credentials_that_are_not_there_are_missed_by_name(name: str) -> None:
    """Both RFCs want a character at least; Kafka refuses PLAIN without, and cannot store SCRAM's."""

    def make(user: str, password: str) -> Mechanism:
        return Plain(user, password) if name == "PLAIN" else Scram(name, user, password, NONCE)

    with pytest.raises(ValueError, match=r"^the user name is empty$"):
        make("", "pencil")
    with pytest.raises(ValueError, match=r"^the password is empty$"):
        make("user", "")


# ---- SCRAM -----------------------------------------------------------------------------------------------------------


def test_scram_speaks_as_rfc_7677_shows() -> None:
    """Section 3, to the byte."""
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
def test_scram_and_a_server_believe_each_other(
    name: str, username: str, password: str, nonces: tuple[str, str], salt: bytes
) -> None:
    """Whatever user, password, nonces and salt are: the server gets the name, the proof holds, the signature too."""
    scram, server = Scram(name, username, password, nonces[0]), Server(name, password, salt)
    proof = scram.answer(server.first(scram.begin(), nonces[1].encode()))
    assert (server.username, server.nonce) == (username, "".join(nonces).encode())
    assert proof is not None
    final = server.final(proof)
    assert final.startswith(b"v=")
    assert scram.answer(final) is None


@pytest.mark.parametrize("name", DIGESTS)
def test_scram_with_another_password_is_told_the_servers_words(name: str) -> None:
    """RFC 5802, section 7: `e=` and a word; the error says it."""
    scram, server = Scram(name, "user", "pen", NONCE), Server(name, "pencil", b"salt")
    proof = scram.answer(server.first(scram.begin(), b"x"))
    assert proof is not None
    assert refusal(scram, server.final(proof)) == f"the broker refuses the credentials for {name}: 'invalid-proof'"


@pytest.mark.parametrize("name", DIGESTS)
def test_scram_does_not_believe_a_broker_that_lacks_the_users_keys(name: str) -> None:
    """The server's signature is what makes the broker known: one that takes any proof cannot make it."""
    scram, server = Scram(name, "user", "pencil", NONCE), Server(name, "pencil", b"salt")
    proof = scram.answer(server.first(scram.begin(), b"x"))
    assert proof is not None
    server.server_key = bytes(len(server.server_key))
    assert "signature is wrong" in refusal(scram, server.final(proof))


def test_scram_proves_nothing_twice() -> None:
    """Behind the proof only a signature counts; the first message once more is no signature."""
    assert "last message" in refusal(proven(), FIRST)
    assert "first message" in refusal(rfc7677(), FINAL)


@pytest.mark.parametrize(
    "nonce",
    [pytest.param(NONCE, id="ours only"), pytest.param("X" + NONCE, id="another"), pytest.param(NONCE[:-1], id="cut")],
)
def test_scram_refuses_a_nonce_that_does_not_go_on_from_its_own(nonce: str) -> None:
    """RFC 5802, section 5.1: else an old exchange could be played again, from either side."""
    text = refusal(rfc7677(), FIRST.replace(FIRST.partition(b",")[0], b"r=" + nonce.encode()))
    assert "nonce" in text


@pytest.mark.parametrize("count", [0, 1, 4095, 1_000_001, 2_147_483_647])
def test_scram_refuses_iterations_that_are_too_few_or_too_many(count: int) -> None:
    """Few let a false broker guess the password from the proof; many are a way to stop the client."""
    text = refusal(rfc7677(), FIRST.replace(b"i=4096", b"i=%d" % count))
    assert text.startswith(f"the broker asks for {count} iterations, and not for 4096 to 1000000: ")


@pytest.mark.slow
@pytest.mark.parametrize("count", [4096, 1_000_000])
def test_scram_takes_the_bounds_of_the_iterations(count: int) -> None:
    """Both ends belong to what is allowed."""
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
def test_scram_refuses_a_first_message_of_another_shape(challenge: bytes) -> None:
    """RFC 5802, section 7, has one shape; the text tells how much came, and not what."""
    text = f"the broker's first message of SCRAM-SHA-256 ({len(challenge)} bytes) is not r=nonce,s=salt,i=iterations"
    assert refusal(rfc7677(), challenge) == text


@pytest.mark.parametrize(
    "challenge",
    [b"", b"v=", b"v", FINAL[:-1], FINAL + b"=", FINAL[2:], b"V" + FINAL[1:], b"e=", b"e=" + PROOF, FINAL + b","],
)
def test_scram_refuses_a_last_message_that_holds_no_signature(challenge: bytes) -> None:
    """Nothing but the whole signature will do, and what came is not repeated: it could be the proof."""
    text = refusal(proven(), challenge)
    assert text.startswith(("the broker's last message of SCRAM-SHA-256 (", "the broker's signature is wrong"))
    assert not holds_a_secret(text)


def test_scram_compares_signatures_as_text() -> None:
    """Base64 leaves bits unused, so other texts decode to the same bytes; no broker writes those."""
    other = FINAL.replace(b"G4=", b"G5=")
    assert b64decode(other[2:]) == b64decode(FINAL[2:])
    assert "signature is wrong" in refusal(proven(), other)


def test_scram_quotes_what_a_broker_says_and_not_all_of_it() -> None:
    """A line's end would write lines of the broker's choice into a log."""
    text = refusal(proven(), b"e=no\nWARN " + b"\xff" + b"x" * 1000 + b",tried=3")
    assert text == "the broker refuses the credentials for SCRAM-SHA-256: 'no\\nWARN \ufffd" + "x" * 91 + "'"


@pytest.mark.parametrize("of_first", [b"m=x," + FIRST, FIRST + b",m=x", FIRST + b",x=y,m="])
def test_scram_refuses_mandatory_extensions_of_the_first_message(of_first: bytes) -> None:
    """RFC 5802, section 5.1: whoever reads `m` and does not know what it asks for must fail."""
    assert "mandatory extension" in refusal(rfc7677(), of_first)


def test_scram_refuses_mandatory_extensions_of_the_last_message() -> None:
    """Even behind the right signature."""
    assert "mandatory extension" in refusal(proven(), FINAL + b",m=x")


def test_scram_ignores_optional_extensions_but_signs_them() -> None:
    """RFC 5802, section 5.1: unknown ones are ignored; they are part of what both sides sign (section 3)."""
    scram, server = rfc7677(), Server("SCRAM-SHA-256", "pencil", b"salt")
    server.first(scram.begin(), b"x")
    server.said += b",tokenauth=true,x=m=1"
    proof = scram.answer(server.said)
    assert proof is not None
    assert scram.answer(server.final(proof) + b",x=y") is None


@pytest.mark.slow
@given(start=PLACES, end=PLACES, junk=JUNK, place=PLACES)
def test_scram_answers_nonsense_with_its_own_error_only(start: int, end: int, junk: bytes, place: int) -> None:
    """However a message is cut and garbled: an answer, or AuthenticationError without a secret; never belief."""

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
def test_scram_believes_no_random_bytes(message: bytes) -> None:
    """Neither as the first message nor as the last."""
    refusal(rfc7677(), message)
    refusal(proven(), message)


def test_scram_asked_again_gives_the_same_first_message() -> None:
    """The proof is made over it, so it cannot change."""
    scram = rfc7677()
    assert scram.begin() == scram.begin()


@pytest.mark.parametrize("nonce", ["", "a,b", "a b", "é", "a\n"])
def test_scram_takes_no_nonce_that_the_message_cannot_carry(nonce: str) -> None:
    """RFC 5802, section 7: printable ASCII without a comma; without any nonce there is no freshness."""
    with pytest.raises(ValueError, match="nonce"):
        Scram("SCRAM-SHA-256", "user", "pencil", nonce)


def test_scram_takes_kafkas_two_names_only() -> None:
    """KIP-84: SHA-1 is not among them."""
    with pytest.raises(ValueError, match=r"^'SCRAM-SHA-1' is none of SCRAM-SHA-256, SCRAM-SHA-512"):
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
def test_bearer_says_token_and_extensions(extensions: dict[str, str], expected: bytes) -> None:
    """RFC 7628, section 3.1, and KIP-342, to the byte."""
    bearer = OAuthBearer("aB9-._~+/==", extensions)
    assert (bearer.name, bearer.begin()) == ("OAUTHBEARER", expected)


def test_bearer_is_over_with_an_empty_challenge() -> None:
    """RFC 7628, section 3.2: success has no words."""
    assert OAuthBearer("t", {}).answer(b"") is None


def test_bearer_lets_the_broker_say_its_refusal() -> None:
    """RFC 7628, section 3.2.3: the error is answered with one byte; Kafka's broker then refuses with its code."""
    assert OAuthBearer("t", {}).answer(REFUSAL) == b"\x01"


@pytest.mark.parametrize("challenge", [b"", REFUSAL, b"more"])
def test_bearer_does_not_believe_a_broker_that_goes_on_after_a_refusal(challenge: bytes) -> None:
    """No success follows an error, and the first error's status is what is told."""
    bearer = OAuthBearer("t", {})
    bearer.answer(REFUSAL)
    assert refusal(bearer, challenge) == "the broker refuses the token: 'invalid_token'"


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
def test_bearer_tells_of_a_refusal_that_it_cannot_read(challenge: bytes) -> None:
    """The status is the broker's duty, and its lack no reason to fall over."""
    bearer = OAuthBearer("t", {})
    assert bearer.answer(challenge) == b"\x01"
    assert refusal(bearer, b"") == "the broker refuses the token: no status that can be read"


@given(challenge=st.one_of(st.binary(min_size=1), st.text(min_size=1).map(str.encode)), more=st.binary())
def test_bearer_answers_nonsense_with_its_own_error_only(challenge: bytes, more: bytes) -> None:
    """Any first challenge gets the one byte, any second one the error."""
    bearer = OAuthBearer("t", {})
    assert bearer.answer(challenge) == b"\x01"
    refusal(bearer, more)


def test_bearer_quotes_a_status_and_not_all_of_it() -> None:
    """A long one may be the token itself, of which the end must not be told."""
    token = "eyJ" + "h" * 200 + ".signature"
    bearer = OAuthBearer(token, {})
    bearer.answer(b'{"status":"\\n%b"}' % token.encode())
    assert refusal(bearer, b"") == "the broker refuses the token: '\\n" + token[:99] + "'"


@pytest.mark.parametrize("key", ["auth", "", "a1", "a-b", "a=b", "é", "a\n", "a\x01"])
def test_bearer_refuses_extensions_whose_key_kafka_would_refuse(key: str) -> None:
    """KIP-342: letters; `auth` is the token's own."""
    with pytest.raises(ValueError, match="extension") as caught:
        OAuthBearer("t", {"fine": "1", key: "value"})
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("value", ["", "a\x01auth=Bearer x", "é", "\0", "\x7f"])
def test_bearer_refuses_extensions_whose_value_kafka_would_refuse(value: str) -> None:
    """KIP-342: printable ASCII and white space; a separator would begin another extension."""
    with pytest.raises(ValueError, match="extension 'broken'"):
        OAuthBearer("t", {"fine": "1", "broken": value})


@pytest.mark.parametrize("token", ["", "pencil\n", "pen cil", "pencil\x01", "=", "pen=cil", "pencilé"])
def test_bearer_refuses_a_token_that_is_none_without_saying_it(token: str) -> None:
    """RFC 6750, section 2.1."""
    with pytest.raises(ValueError, match="token") as caught:
        OAuthBearer(token, {})
    assert "cil" not in str(caught.value)


# ---- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [Plain("user", "pencil"), rfc7677(), proven(), OAuthBearer("pencil", {"key": "pencil"})],
    ids=["plain", "scram", "scram proven", "bearer"],
)
def test_no_mechanism_shows_its_secret(mechanism: Mechanism) -> None:
    """They stand in tracebacks and in the representations of whatever holds them."""
    for text in (repr(mechanism), str(mechanism), f"{mechanism}"):
        assert type(mechanism).__name__ in text
        assert not holds_a_secret(text)
    assert not hasattr(mechanism, "__dict__")


def test_salted_password_of_the_example_is_what_the_tests_look_for() -> None:
    """SALTED is made by RFC 5802's own formula, not by the code under test."""
    server = Server("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert server.stored_key == sha256(hmac.digest(SALTED, b"Client Key", "sha256")).digest()
