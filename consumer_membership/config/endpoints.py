"""`bootstrap.servers` as librdkafka reads it: a comma-separated list of `[PROTOCOL://]HOST[:PORT][/PATH]`."""

from __future__ import annotations

import re

from consumer_membership.config.settings import SecurityProtocol

#: The port that librdkafka takes where none is given.
DEFAULT_PORT = 9092
_HIGHEST_PORT = 65535
_ENDPOINT = re.compile(
    r"(?:(?P<protocol>[A-Za-z_]+)://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:,/\[\]]+))(?::(?P<port>\d+))?"
    # What a URL has behind it says nothing. A colon in there would be a port in the wrong place.
    r"(?:/[^:]*)?"
)


def parse_endpoints(text: str, protocol: SecurityProtocol) -> tuple[tuple[str, int], ...]:
    """The hosts and ports of such a list, in its order and without repetition.

    Raises ValueError for an element that is no endpoint, and for one that asks for another protocol than this one: of
    such a list librdkafka takes what stands before that element, and says so in its log only.
    """
    found: dict[tuple[str, int], None] = {}
    for element in filter(None, map(str.strip, text.split(","))):
        match = _ENDPOINT.fullmatch(element)
        if match is None:
            raise ValueError(f"{element!r} is not HOST:PORT")
        if (match["protocol"] or protocol.value).lower() != protocol.value:
            raise ValueError(
                f"{element!r} asks for {match['protocol']}, and security.protocol is {protocol.value}; set that to "
                "what this listener speaks, or leave the prefix out"
            )
        port = int(match["port"] or DEFAULT_PORT)
        if not 0 < port <= _HIGHEST_PORT:
            raise ValueError(f"{element!r} has no valid port; give one of 1..{_HIGHEST_PORT}")
        found[match["v6"] or match["host"], port] = None
    return tuple(found)
