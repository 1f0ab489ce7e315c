"""What text Kafka's protocol and the C library below can carry: UTF-8, no NUL, and no longer than its place.

Python's text can hold what UTF-8 cannot: lone surrogates, which stand for stray bytes wherever Python decodes what the
system hands it (arguments, the environment, names of files: PEP 383). Handed on to C, such text ends the process; a NUL
ends the text there, and the rest is lost without a word; text that is too long for its place breaks the request that
carries it. So all of it is refused where it comes in. This module finds what is wrong; whoever asks names the key or
the argument, and raises.
"""

from __future__ import annotations

#: A STRING of Kafka's protocol has its length in an int16. Brokers write these texts so into __consumer_offsets, too,
#: whatever the request's version allows.
LONGEST_STRING = 2**15 - 1
#: The coordinator of a classic group makes a member's id of `client.id`, or of the instance id, a dash and a UUID
#: (GroupMetadataManager.classicGroupJoinNewMember), and writes that as a STRING: one byte more is UNKNOWN_SERVER_ERROR.
LONGEST_ID_PREFIX = LONGEST_STRING - 1 - 36
#: librdkafka's bound of a topic's name in bytes (rd_kafka_topic_new0): an assignment of a longer one crashes it.
#: Apache Kafka's own is 249; others that speak its protocol have more.
LONGEST_TOPIC = 512

#: So much of a text is shown in a message.
_SHOWN = 40
#: UTF-8's longest character, in bytes: a text of a fourth of the bound needs no counting.
_WIDEST = 4

_OUTSIDE = "Python decodes invalid bytes in arguments, the environment and file names to such text; use UTF-8"


def problem_of(text: str, longest: int | None = LONGEST_STRING, *, is_secret: bool = False) -> str | None:
    """Why this text cannot be told to Kafka, and what to do; None if it can.

    Args:
        text: What somebody wants to say.
        longest: How many bytes of UTF-8 its place has; None: as many as you like.
        is_secret: Tell nothing of what stands in it.
    """
    if longest is not None and len(text) * _WIDEST > longest and (size := size_of(text)) > longest:
        return f"it has {size} bytes of UTF-8, and Kafka accepts at most {longest}; use a shorter text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = "" if is_secret else f" ({text[error.start]!a} at position {error.start})"
        return f"it is not UTF-8{where}: {_OUTSIDE}"
    if "\0" in text:
        where = "" if is_secret else f" at position {text.index(chr(0))}"
        return f"it has a NUL character{where}, at which C libraries cut a text; remove it"
    return None


def size_of(text: str) -> int:
    """How many bytes of UTF-8 the text has; what UTF-8 cannot express counts as the bytes that it stands for."""
    return len(text.encode(errors="surrogatepass"))


def excerpt(text: str) -> str:
    """The beginning of a long text, the whole of a short one: for a message."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}..."


def printable(text: str) -> str:
    """The text on one line, without control of a terminal: other signs are escaped as in Python."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def speakable(text: str) -> str:
    """The same text where UTF-8 and C can take it, else with escapes: for messages made of strangers' words."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
