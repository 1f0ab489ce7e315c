"""`consume`: be a member of a group, print what comes, and say what happens to the membership."""

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

#: The exit codes: all went well; the group refused the member for good, or never took it in, or there is no topic; the
#: arguments are wrong.
_DONE, _REFUSED, _MISUSED = 0, 1, 2

_POLL_S = 0.2
_LOOK_S = 0.1
#: Brokers know a topic that was just made within a second.
_NO_TOPIC_S = 3.0
_LEVELS = (logging.CRITICAL, logging.INFO, logging.DEBUG)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What to print and when to stop; None: until Ctrl-C."""

    topics: tuple[str, ...]
    config: Mapping[str, object]
    is_json: bool = False
    max_records: int | None = None
    timeout_s: float | None = None
    verbosity: int = 0


def consume(options: ConsumeOptions, out: TextIO, err: TextIO) -> int:
    """Print records on `out` and the membership on `err` until there is a reason to stop; the exit code.

    To be called in the main thread: SIGINT and SIGTERM make it leave the group, a second one ends it at once.
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
            narration.tell(f"error: {_message_of(error)}")
            code = _MISUSED if not narration.has_joined else _REFUSED
        finally:
            consumer.close()
            narration.look(consumer.membership(), time.monotonic())
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
        #: Since when none of the topics exists; inf while one does.
        self._no_topic_since = inf

    def run(self) -> int:
        """Print until there is a reason to stop; the exit code."""
        try:
            self._loop()
            self._out.flush()
        except BrokenPipeError:
            # `| head` has seen enough. Python would complain about the same pipe once more at its exit.
            discard(self._out)
            return _DONE
        except OSError as error:
            # The network's are translated: it is the output's, as of a full disk.
            discard(self._out)
            self._narration.tell(f"error: {error.strerror or error}")
            return _REFUSED
        if self._is_fatal:
            return _REFUSED
        if self._options.timeout_s is not None and not self._narration.has_joined and not self._stop.is_set():
            self._narration.tell("the group did not take the member in")
            return _REFUSED
        if not self._printed and not self._stop.is_set() and self._has_no_topic:
            self._narration.tell(f"nothing to consume: {missing_of(self._options.topics)}")
            return _REFUSED
        return _DONE

    @property
    def _has_no_topic(self) -> bool:
        """Whether none of the topics exists, as far as the member knows."""
        return frozenset(self._options.topics) <= self._consumer.membership().missing_topics

    def _loop(self) -> None:
        look_at = 0.0
        last_record_at = time.monotonic()
        while not self._is_over(time.monotonic() - last_record_at):
            message = self._consumer.poll(_POLL_S)
            now = time.monotonic()
            if message is not None and message.error() is None:
                last_record_at = now
            self._take(message)
            if now >= look_at:
                look_at = now + _LOOK_S
                self._narration.look(self._consumer.membership(), now)
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
            # Nothing more to come for now: what was printed should be seen.
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
    """An event that is set by the first SIGINT or SIGTERM; the second one has its usual effect."""
    stop = Event()

    def stopped(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()
        narration.tell("leaving the group; once more ends this at once")

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logger(verbosity: int, err: TextIO) -> logging.Logger:
    """The package's log, silent unless it is asked for: what matters is narrated."""
    package = logging.getLogger("consumer_membership")
    handler = logging.StreamHandler(err) if verbosity else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%H:%M:%S"))
    package.addHandler(handler)
    package.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
    return package.getChild("librdkafka")


def _message_of(error: Exception) -> str:
    """The error's text without the wrapping of confluent-kafka's exceptions."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = getattr(cause, "str", None)
    return text() if callable(text) else str(cause)


# ---- one record as one line ------------------------------------------------------------------------------------------


def text_line(message: Message) -> str:
    """`TOPIC[PARTITION]@OFFSET TIME key=... value=...`, and headers where there are some.

    Bytes that are not UTF-8, and control characters, are escaped as in Python, also in header names: a record is always
    one line, and cannot control a terminal.
    """
    parts = [
        f"{message.topic()}[{message.partition()}]@{message.offset()}",
        _time(message) or "-",
        f"key={_escaped(_raw(message.key()))}",
        f"value={_escaped(_raw(message.value()))}",
    ]
    parts += [f"{printable(name)}:{_escaped(_raw(value))}" for name, value in _headers(message)]
    return " ".join(parts)


def json_line(message: Message) -> str:
    """One JSON object; bytes are a string where they are UTF-8, else `{"base64": ...}`; no key or value is null."""
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _time(message),
        "key": _for_json(_raw(message.key())),
        "value": _for_json(_raw(message.value())),
        "headers": [{"key": name, "value": _for_json(_raw(value))} for name, value in _headers(message)],
    }
    line = json.dumps(record, ensure_ascii=False)
    # JSON allows some line ends and control characters inside strings that a terminal or a line reader would honour.
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _time(message: Message) -> str | None:
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escaped(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return repr(value)[2:-1]
    return printable(text)


def _for_json(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
