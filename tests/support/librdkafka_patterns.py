"""librdkafka's pattern matching: the C library's regular expressions, called as in librdkafka's `rdregex.c`.

The wheels of confluent-kafka for Linux import `regcomp` and `regexec` from the C library (`nm -D` shows it), with
REG_EXTENDED and REG_NOSUB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_EXTENDED, _NO_SUB = 1, 8
#: Larger than regex_t of any C library, in bytes.
_SIZE = 512
_LIBC = ctypes.CDLL(None)


@contextmanager
def _compiled(pattern: str) -> Iterator[ctypes.Array[ctypes.c_char] | None]:
    compiled = ctypes.create_string_buffer(_SIZE)
    if _LIBC.regcomp(compiled, pattern.encode(), _EXTENDED | _NO_SUB) != 0:
        yield None
        return
    try:
        yield compiled
    finally:
        _LIBC.regfree(compiled)


def matches(pattern: str, names: list[str]) -> list[bool] | None:
    """Return for each name whether it matches the pattern in librdkafka; None if librdkafka rejects the pattern."""
    with _compiled(pattern) as compiled:
        if compiled is None:
            return None
        return [_LIBC.regexec(compiled, name.encode(), 0, None, 0) == 0 for name in names]
