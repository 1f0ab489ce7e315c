"""The command `consume`: join a group, print records on stdout and membership events on stderr."""

from __future__ import annotations

import base64
import json
import logging
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf
from threading import Event
from typing import TextIO

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaException, Message

from consumer_membership import Consumer
from consumer_membership.cli.narration import Narration, missing_of
from consumer_membership.config import ConsumerConfig
from consumer_membership.demo.screen import discard
from consumer_membership.errors import MembershipError
from consumer_membership.text import printable

#: The exit codes: success; a fatal error, a failed join or a missing topic; invalid arguments.
_DONE, _REFUSED, _MISUSED = 0, 1, 2

_POLL_S = 0.2
_UPDATE_S = 0.1
#: Long enough for a new topic, which brokers know within a second.
_NO_TOPIC_S = 3.0
_LEVELS = (logging.CRITICAL, logging.INFO, logging.DEBUG)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The topics and the limits; a limit of None means until Ctrl-C."""

    topics: tuple[str, ...]
    config: Mapping[str, object]
    is_json: bool = False
    max_records: int | None = None
    timeout_s: float | None = None
    verbosity: int = 0


def consume(options: ConsumeOptions, out: TextIO, err: TextIO) -> int:
    """Print records to `out` and membership events to `err` until a limit or a signal; return the exit code.

    Call it in the main thread: SIGINT or SIGTERM leaves the group, a second signal stops the process immediately.
    """
    narration = Narration(err)
    config = {**options.config, "error_cb": narration.error}
    try:
        ConsumerConfig.from_mapping(options.config).with_servers()
        consumer = Consumer(config, logger=_logger(options.verbosity, err))
    except (MembershipError, KafkaException, ValueError, TypeError) as error:
        err.write(f"consumer-membership consume: {printable(_message_of(error))}\n")
        return _MISUSED
    with _stop_signals(narration) as stop:
        printing = _Printing(consumer, options, narration, out, stop)
        try:
            consumer.subscribe(
                list(options.topics),
                on_assign=partial(narration.partitions, "assigned"),
                on_revoke=partial(narration.partitions, "revoked"),
                on_lost=partial(narration.partitions, "lost"),
            )
            code = printing.run()
        except (KafkaException, MembershipError) as error:
            narration.print(f"error: {_message_of(error)}")
            code = _MISUSED if not narration.has_joined else _REFUSED
        finally:
            consumer.close()
            narration.update(consumer.membership(), time.monotonic())
    return code


class _Printing:
    """The loop between subscribe and close."""

    def __init__(
        self, consumer: Consumer, options: ConsumeOptions, narration: Narration, out: TextIO, stop: Event
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._narration = narration
        self._out = out
        self._stop = stop
        self._line = json_line if options.is_json else text_line
        self._is_terminal = out.isatty()
        self._printed = 0
        self._is_fatal = False
        #: Since when none of the topics exists; inf while at least one exists.
        self._no_topic_since = inf

    def run(self) -> int:
        """Print records until a limit or a signal; return the exit code."""
        try:
            self._loop()
            self._out.flush()
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe. Python would report the closed pipe again at exit.
            discard(self._out)
            return _DONE
        except OSError as error:
            # Network errors are MembershipErrors, so this is an error of the output, such as a full disk.
            discard(self._out)
            self._narration.print(f"error: {error.strerror or error}")
            return _REFUSED
        if self._is_fatal:
            return _REFUSED
        if self._options.timeout_s is not None and not self._narration.has_joined and not self._stop.is_set():
            timeout_s = self._options.timeout_s
            self._narration.print(f"error: the member did not join the group within --timeout {timeout_s:g}")
            return _REFUSED
        if not self._printed and not self._stop.is_set() and self._has_no_topic:
            self._narration.print(f"error: {missing_of(self._options.topics)}")
            return _REFUSED
        return _DONE

    @property
    def _has_no_topic(self) -> bool:
        """Whether none of the topics exists, according to the member's metadata."""
        return frozenset(self._options.topics) <= self._consumer.membership().missing_topics

    def _loop(self) -> None:
        update_at = 0.0
        last_record_at = time.monotonic()
        while not self._is_over(time.monotonic() - last_record_at):
            message = self._consumer.poll(_POLL_S)
            now = time.monotonic()
            if message is not None and message.error() is None:
                last_record_at = now
            self._take(message)
            if now >= update_at:
                update_at = now + _UPDATE_S
                self._narration.update(self._consumer.membership(), now)
                self._no_topic_since = min(self._no_topic_since, now) if self._has_no_topic else inf

    def _is_over(self, silence_s: float) -> bool:
        limit, patience_s = self._options.max_records, self._options.timeout_s
        return (
            self._stop.is_set()
            or self._is_fatal
            or (not self._printed and time.monotonic() - self._no_topic_since >= _NO_TOPIC_S)
            or (limit is not None and self._printed >= limit)
            or (patience_s is not None and silence_s >= patience_s)
        )

    def _take(self, message: Message | None) -> None:
        if message is None:
            # No record is available, so this is a good time to flush.
            self._out.flush()
            return
        error = message.error()
        if error is not None:
            self._narration.error(error)
            self._is_fatal = error.fatal()
            return
        self._out.write(self._line(message) + "\n")
        self._printed += 1
        if self._is_terminal:
            self._out.flush()


@contextmanager
def _stop_signals(narration: Narration) -> Iterator[Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second signal has its default effect."""
    stop = Event()

    def stopped(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()
        narration.print("leaving the group; press Ctrl-C again to stop immediately")

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logger(verbosity: int, err: TextIO) -> logging.Logger:
    """Return the logger for librdkafka, and enable the package's log if `verbosity` is above 0."""
    package = logging.getLogger("consumer_membership")
    handler = logging.StreamHandler(err) if verbosity else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%H:%M:%S"))
    package.addHandler(handler)
    package.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
    return package.getChild("librdkafka")


def _message_of(error: Exception) -> str:
    """Return the text of an error; a KafkaException contains the error as its first argument."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = getattr(cause, "str", None)
    return text() if callable(text) else str(cause)


# ---- one record as one line ------------------------------------------------------------------------------------------


def text_line(message: Message) -> str:
    """Return a record as `TOPIC[PARTITION]@OFFSET TIME key=... value=...` with any headers.

    Bytes that are not UTF-8 and control characters are escaped as in Python, also in header names. A record is always
    one line and cannot control a terminal.
    """
    parts = [
        f"{message.topic()}[{message.partition()}]@{message.offset()}",
        _time_of(message) or "-",
        f"key={escaped(_raw(message.key()))}",
        f"value={escaped(_raw(message.value()))}",
    ]
    parts += [f"{printable(name)}:{escaped(_raw(value))}" for name, value in _headers(message)]
    return " ".join(parts)


def json_line(message: Message) -> str:
    """Return a record as one JSON object; bytes that are not UTF-8 are `{"base64": ...}`, a missing value is null."""
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _time_of(message),
        "key": for_json(_raw(message.key())),
        "value": for_json(_raw(message.value())),
        "headers": [{"key": name, "value": for_json(_raw(value))} for name, value in _headers(message)],
    }
    line = json.dumps(record, ensure_ascii=False)
    # JSON allows line separators and control characters in strings that a terminal or a line reader would interpret.
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _time_of(message: Message) -> str | None:
    kind, milliseconds = message.timestamp()
    return time_text(None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds)


def time_text(milliseconds: int | None) -> str | None:
    """Return a timestamp (milliseconds since 1970) in UTC; a year that Python does not have stays a number."""
    if milliseconds is None:
        return None
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escaped(value: bytes | None) -> str:
    """Return bytes as text with control characters escaped; bytes that are not UTF-8 as in Python, no value as null."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return repr(value)[2:-1]
    return printable(text)


def for_json(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text, as `{"base64": ...}` if they are not UTF-8, or None."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
