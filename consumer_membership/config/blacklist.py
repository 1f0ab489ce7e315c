"""`topic.blacklist`: which topics a consumer does as if they did not exist, as librdkafka reads the key.

A list of patterns with commas between them. They are librdkafka's patterns, but need not begin with `^`: `orders-1`
keeps out every topic with that anywhere in its name. Nobody else hears of the list, neither brokers nor other members,
so that it is the member who must not ask for those topics.
"""

from __future__ import annotations

from consumer_membership.membership.patterns import NotPosixError, translate

KEY = "topic.blacklist"


def parse_blacklist(value: object) -> tuple[str, ...]:
    """The patterns as Python's `re` for whole names.

    Raises:
        ValueError: one of them is no pattern, or empty: librdkafka would keep out every topic.
    """
    # A comma at the end is nobody's pattern, there as well.
    texts = str(value).removesuffix(",").split(",")
    return tuple(_member_s(text) for text in texts) if str(value) else ()


def _member_s(text: str) -> str:
    if not text:
        raise ValueError("an empty pattern in the list is in every topic's name; remove the comma that is too many")
    try:
        pattern = translate(text)
    except NotPosixError as refused:
        words = f'Failed to parse pattern "{text}": {refused}; write POSIX extended regular expressions'
        raise ValueError(words) from refused
    return pattern.member or ""
