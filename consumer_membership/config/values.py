"""Read the text of configuration values by librdkafka's rules, with librdkafka's error messages.

confluent-kafka converts every value with `str()` first, so `True`, `1` and `"TRUE"` are the same boolean, and `6000.0`
is an integer. These readers receive the key and its value and raise `ValueError`; the key's name is in the message
where librdkafka has it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TypeVar

from consumer_membership.assignors.assignor import Assignor
from consumer_membership.config.instance_pool import parse_pool
from consumer_membership.config.settings import (
    AddressFamily,
    ByDuration,
    ListenAddress,
    MembershipThreads,
    OffsetReset,
    RebalanceCallbacks,
    SecurityProtocol,
)
from consumer_membership.config.strategies import parse_strategies
from consumer_membership.text import LONGEST_STRING
from consumer_membership.types import ConflictPolicy, GroupProtocol

T = TypeVar("T")
#: Return the value of a key, or raise ValueError.
Reader = Callable[[str, object], T]

_TRUE = frozenset({"true", "t", "1"})
_FALSE = frozenset({"false", "f", "0"})
_MAX_INT = 2**31 - 1
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
#: librdkafka reads integers by `strtol` with base 0 (so 0x10 is 16, and 010 is 8) and ignores a fraction; other
#: trailing text is an error.
_INTEGER = re.compile(r"(?P<hex>[+-]?0[xX][0-9a-fA-F]+)|(?P<octal>[+-]?0[0-7]+)|(?P<decimal>[+-]?(0|[1-9]\d*))(\.\d*)?")
_BASES = {"hex": 16, "octal": 8, "decimal": 10}
#: The syntax of Java's `Duration.parse`, in which weeks, months and years have no fixed length.
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?[0-9]{1,18})D)?"
    r"(?:T(?P<time>(?:(?P<hours>[+-]?[0-9]{1,18})H)?(?:(?P<minutes>[+-]?[0-9]{1,18})M)?"
    r"(?:(?P<seconds>[+-]?[0-9]{1,18})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?))?",
    re.IGNORECASE,
)
_SECONDS_OF = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
#: librdkafka's default port.
DEFAULT_PORT = 9092
_HIGHEST_PORT = 65535
_ENDPOINT = re.compile(
    r"(?:(?P<protocol>[A-Za-z_]+)://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:,/\[\]]+))(?::(?P<port>\d+))?"
    # The path of a URL is ignored. A colon in it would be a port in the wrong place.
    r"(?:/[^:]*)?"
)

_LISTEN_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:,/\[\]@?#]+)):(?P<port>[0-9]{1,5})"
)


def parse_endpoints(text: str, protocol: SecurityProtocol) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of `bootstrap.servers` in their order without duplicates.

    librdkafka reads a comma-separated list of `[PROTOCOL://]HOST[:PORT][/PATH]`.

    Raises:
        ValueError: an element is not an endpoint, or has another protocol than `protocol`. librdkafka uses only the
            elements before such an element, and only logs it.
    """
    found: dict[tuple[str, int], None] = {}
    for element in filter(None, map(str.strip, text.split(","))):
        match = _ENDPOINT.fullmatch(element)
        if match is None:
            raise ValueError(f"{element!r} is not HOST:PORT")
        if (match["protocol"] or protocol.value).lower() != protocol.value:
            raise ValueError(
                f"{element!r} requires {match['protocol']}, but security.protocol is {protocol.value}; set "
                "security.protocol to the protocol of this listener, or remove the prefix"
            )
        port = int(match["port"] or DEFAULT_PORT)
        if not 0 < port <= _HIGHEST_PORT:
            raise ValueError(f"{element!r} has no valid port; expected 1..{_HIGHEST_PORT}")
        found[match["v6"] or match["host"], port] = None
    return tuple(found)


def parse_blacklist(value: object) -> tuple[str, ...]:
    """Return the patterns of `topic.blacklist` as Python's `re` for whole names.

    The consumer treats topics that match as if they did not exist.

    They are librdkafka's patterns, separated by commas, and need not begin with `^`: `orders-1` excludes every topic
    with this text anywhere in its name. Neither brokers nor other members know the list, so the member must not request
    these topics.

    Raises:
        ValueError: a pattern is invalid, or empty: librdkafka would exclude every topic.
    """
    # A comma at the end adds no pattern, as in librdkafka.
    texts = str(value).removesuffix(",").split(",")
    return tuple(_for_members(text) for text in texts) if str(value) else ()


def _for_members(text: str) -> str:
    if not text:
        raise ValueError("an empty pattern matches every topic; remove the extra comma")
    # imported here because only a blacklist needs it
    from consumer_membership.config.patterns import NotPosixError, translate

    try:
        pattern = translate(text)
    except NotPosixError as refused:
        message = f'Failed to parse pattern "{text}": {refused}; use POSIX extended regular expressions'
        raise ValueError(message) from refused
    return pattern.member or ""


def parse_duration(text: str) -> int:
    """Return the whole milliseconds of an ISO-8601 duration, as Java's `Duration.parse` reads it: a day has 24 hours.

    Raises:
        ValueError: the text is not a duration, or is negative.
    """
    match = _DURATION.fullmatch(text)
    if match is None or match["time"] == "" or not (match["days"] or match["time"]):
        raise ValueError(f"{text!r} is not a duration" if text else "the duration is missing")
    nanoseconds = 10**9 * sum(int(match[name] or 0) * seconds for name, seconds in _SECONDS_OF.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    nanoseconds += -fraction if (match["seconds"] or "").startswith("-") else fraction
    if match["sign"] == "-":
        nanoseconds = -nanoseconds
    if nanoseconds < 0:
        raise ValueError("a negative duration would be in the future")
    return nanoseconds // 10**6


def boolean(key: str, value: object) -> bool:
    """Return true or false."""
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if not text:
        raise ValueError(f'Bool configuration property "{key}" cannot be set to empty value: true or false')
    raise ValueError(f'Expected bool value for "{key}": true or false')


def guardian(key: str, value: object) -> bool:
    """Return a boolean that cannot be true on every platform."""
    is_wanted = boolean(key, value)
    if is_wanted and sys.platform == "win32":
        raise ValueError(
            "the guardian needs Unix sockets between processes, which this platform does not have; remove the key"
        )
    return is_wanted


def _integer(minimum: int, maximum: int) -> Reader[int]:
    def read(key: str, value: object) -> int:
        text = str(value).strip()
        match = _INTEGER.fullmatch(text)
        if match is None:
            raise ValueError(f'Invalid value "{text}" for configuration property "{key}": expected an integer')
        number = next(int(match[name], base) for name, base in _BASES.items() if match[name])
        if not minimum <= number <= maximum:
            raise ValueError(
                f'Configuration property "{key}" value {number} is outside allowed range {minimum}..{maximum}'
            )
        return number

    return read


def _choice(choices: dict[str, T]) -> Reader[T]:
    def read(key: str, value: object) -> T:
        text = str(value).strip().lower()
        if text in choices:
            return choices[text]
        known = f"expected one of {', '.join(choices)}"
        if not text:
            raise ValueError(f'Configuration property "{key}" cannot be set to empty value: {known}')
        raise ValueError(f'Invalid value "{value}" for configuration property "{key}": {known}')

    return read


def _without_key(parse: Callable[[object], T]) -> Reader[T]:
    return lambda _key, value: parse(value)


text = _without_key(str)
#: max.poll.interval.ms and heartbeat.interval.ms of librdkafka: 0 is not an interval.
positive_ms = _integer(1, _DAY_MS)
duration_ms = _integer(0, _DAY_MS)
session_ms = _integer(1, _HOUR_MS)
#: topic.metadata.refresh.interval.ms: -1 and 0 mean "never".
refresh_ms = _integer(-1, _HOUR_MS)
socket_timeout_ms = _integer(10, 300_000)
setup_timeout_ms = _integer(1000, _MAX_INT)
reconnect_ms = _integer(0, 3_600_000)
retry_ms = _integer(1, 300_000)
buffer_bytes = _integer(0, 100_000_000)
receive_bytes = _integer(1000, _MAX_INT)
idle_ms = _integer(0, _MAX_INT)
#: A commit's metadata is a STRING of Kafka's protocol, which C ends with a zero.
metadata_bytes = _integer(0, LONGEST_STRING - 1)
message_bytes = _integer(1000, 1_000_000_000)
rebootstraps = _choice({"rebootstrap": True, "none": False})
canonical = _choice({"use_all_dns_ips": False, "resolve_canonical_bootstrap_servers_only": True})
family = _choice({family.value: family for family in AddressFamily})
security = _choice({protocol.value: protocol for protocol in SecurityProtocol})
#: Whether the broker's certificate must match its host name.
identification = _choice({"https": True, "none": False})
_reset_by_word = _choice(
    {
        "smallest": OffsetReset.EARLIEST,
        "earliest": OffsetReset.EARLIEST,
        "beginning": OffsetReset.EARLIEST,
        "largest": OffsetReset.LATEST,
        "latest": OffsetReset.LATEST,
        "end": OffsetReset.LATEST,
        "error": OffsetReset.ERROR,
    }
)


def reset(key: str, value: object) -> OffsetReset | ByDuration:
    """Return librdkafka's reset policies, or Java's `by_duration:<ISO-8601 duration>` (KIP-1106)."""
    text = str(value).strip()
    word, _, duration = text.partition(":")
    if word.lower() != "by_duration":
        return _reset_by_word(key, value)
    try:
        return ByDuration(milliseconds=parse_duration(duration))
    except ValueError as refused:
        raise ValueError(
            f'Invalid value "{text}" for configuration property "{key}": {refused}; use an ISO-8601 duration of days, '
            "hours, minutes and seconds, such as by_duration:P1D, by_duration:PT36H or by_duration:P2DT12H30M"
        ) from refused


def listen_address(key: str, value: object) -> ListenAddress:
    """Return the address of the probes: HOST:PORT, or [V6]:PORT."""
    text = str(value).strip()
    match = _LISTEN_ADDRESS.fullmatch(text)
    example = "expected HOST:PORT, such as 0.0.0.0:8080, [::]:8080, or 127.0.0.1:0 for any free port"
    if match is None:
        missing = "it is empty" if not text else f"{text!r} is not HOST:PORT"
        raise ValueError(f'Invalid value for configuration property "{key}": {missing}; {example}, or remove the key')
    port = int(match["port"])
    if port > _HIGHEST_PORT:
        raise ValueError(f'Configuration property "{key}" has port {port}, outside 0..{_HIGHEST_PORT}; {example}')
    return ListenAddress(host=match["v6"] or match["host"], port=port)


def file_path(key: str, value: object) -> str:
    """Return the path of a file, which need not exist."""
    text = str(value)
    if not text.strip():
        raise ValueError(f'Configuration property "{key}" cannot be empty: set the path of a file, or remove the key')
    if text.endswith(("/", os.sep)) or text.rpartition("/")[2] in {".", ".."}:
        raise ValueError(f'Configuration property "{key}" is a folder; set the path of a file in it')
    return text


#: The group protocols that a member may use, the preferred one first.
protocols: Reader[tuple[GroupProtocol, ...]] = _choice(
    {
        "auto": (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC),
        "consumer": (GroupProtocol.CONSUMER,),
        "classic": (GroupProtocol.CLASSIC,),
    }
)
strategies: Reader[tuple[Assignor, ...]] = _without_key(parse_strategies)
#: Ids from which each static member claims a free one.
pool = _without_key(parse_pool)
#: Patterns of topics that do not exist for this consumer.
blacklist = _without_key(parse_blacklist)
policy = _choice({policy.value: policy for policy in ConflictPolicy})
callbacks = _choice({one.value: one for one in RebalanceCallbacks})
threads = _choice({one.value: one for one in MembershipThreads})
#: Whether only records of committed transactions are read.
read_committed = _choice({"read_committed": True, "read_uncommitted": False})
