"""Checks text for Kafka's protocol and the C library below: UTF-8, no NUL, and a bounded length.

Python's text can contain what UTF-8 cannot: lone surrogates, which represent invalid bytes in arguments, the
environment and file names (PEP 383). Passed to C, such text ends the process; a NUL cuts the text there without an
error; text that is too long breaks the request that contains it. So invalid text is rejected on entry. This module
finds the problem; the caller names the key or the argument, and raises. The last functions prepare text for messages.
"""

from __future__ import annotations

#: A STRING of Kafka's protocol has its length in an int16. Brokers also write these texts so into __consumer_offsets,
#: whatever the request's version allows.
LONGEST_STRING = 2**15 - 1
#: The coordinator of a classic group makes a member's id of `client.id`, or of the instance id, a dash and a UUID
#: (GroupMetadataManager.classicGroupJoinNewMember), and writes that as a STRING: one byte more is UNKNOWN_SERVER_ERROR.
LONGEST_ID_PREFIX = LONGEST_STRING - 1 - 36
#: librdkafka's bound of a topic's name in bytes (rd_kafka_topic_new0): an assignment of a longer one crashes it.
#: Apache Kafka's own is 249; others that speak its protocol have more.
LONGEST_TOPIC = 512

#: The longest part of a text that a message shows.
_SHOWN = 40
#: UTF-8's longest character, in bytes: a text of a fourth of the bound needs no counting.
_WIDEST = 4

_OUTSIDE = "Python decodes invalid bytes in arguments, the environment and file names to such text; use UTF-8"


def problem_of(text: str, longest: int | None = LONGEST_STRING, *, is_secret: bool = False) -> str | None:
    """Return why Kafka cannot accept this text, with the fix; None if it can.

    Args:
        text: The text.
        longest: The limit in bytes of UTF-8; None: no limit.
        is_secret: Show no part of the text.
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
    """The number of bytes of UTF-8 of the text; lone surrogates count as the bytes that they represent."""
    return len(text.encode(errors="surrogatepass"))


def excerpt(text: str) -> str:
    """The beginning of a long text, the whole of a short one: for a message."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}..."


def printable(text: str) -> str:
    """The text on one line, without control characters for a terminal: these are escaped as in Python."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def speakable(text: str) -> str:
    """The text itself if UTF-8 and C accept it, else with escapes: for messages with text from outside."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def counted(count: int, noun: str) -> str:
    """The number with its noun in the singular or the plural."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def message_of(error: BaseException) -> str:
    """The message of an exception, which may be of any class of an application: its `__str__` may fail."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - of the application's class
        return "<exception str() failed>"


def error_text(error: BaseException) -> str:
    """An exception as text, `Class: message`; without a message, `Class`."""
    message, kind = message_of(error), type(error).__name__
    return f"{kind}: {message}" if message else kind
