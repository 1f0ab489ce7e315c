"""One record as one line: for people, or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

_NO_VALUE = "null"


def text_line(message: Message) -> str:
    """`TOPIC[PARTITION]@OFFSET TIME key=... value=...`, and headers where there are some.

    Bytes that are not UTF-8, and control characters, are escaped as in Python: a record is always one line, and
    cannot play tricks on a terminal.
    """
    parts = [
        f"{message.topic()}[{message.partition()}]@{message.offset()}",
        _time(message) or "-",
        f"key={_escaped(_raw(message.key()))}",
        f"value={_escaped(_raw(message.value()))}",
    ]
    parts += [f"{name}:{_escaped(_raw(value))}" for name, value in _headers(message)]
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


def line_writer(*, is_json: bool) -> Callable[[Message], str]:
    """The function that makes the lines."""
    return json_line if is_json else text_line


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
        return _NO_VALUE
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return repr(value)[2:-1]
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _for_json(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
