"""`group.instance.id.pool`: the ids from which each static member claims a free one.

The value is a list of names, or text with comma-separated names. `{0..7}` in a name stands for the numbers of that
range, with leading zeros if the bounds have them (`{00..15}`), as in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from consumer_membership.text import LONGEST_ID_PREFIX, excerpt, problem_of

#: A description of the group lists each holder, and each claim reads a description; a larger pool is a mistake in the
#: bounds.
LARGEST_POOL = 10_000

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMMA = re.compile(r",(?![^{}]*\})")


def parse_pool(value: object) -> tuple[str, ...]:
    """Return the ids in their order.

    Raises:
        ValueError: an id is empty, a duplicate or invalid; the pool has no id, or more than `LARGEST_POOL`; or a range
            is reversed.
    """
    names = _COMMA.split(value) if isinstance(value, str) else _names(value)
    ids: list[str] = []
    for name in names:
        if not name.strip():
            raise ValueError("an id is empty; use names, or a range such as orders-{0..7}")
        for instance_id in _expanded(name.strip()):
            problem = problem_of(instance_id, LONGEST_ID_PREFIX)
            if problem is not None:
                raise ValueError(f"the id {excerpt(instance_id)!a} is invalid: {problem}")
            ids.append(instance_id)
            if len(ids) > LARGEST_POOL:
                raise ValueError(f"the pool has more than {LARGEST_POOL} ids; use narrower bounds")
    if not ids:
        raise ValueError("the pool is empty; use names, or a range such as orders-{0..7}")
    twice = next((instance_id for instance_id in ids if ids.count(instance_id) > 1), None) if _repeats(ids) else None
    if twice is not None:
        raise ValueError(f"duplicate id {twice!r}; list each id once")
    return tuple(ids)


def _names(value: object) -> Sequence[str]:
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return value
    raise ValueError("expected a list of names, or text such as orders-{0..7}")


def _repeats(ids: Sequence[str]) -> bool:
    return len(set(ids)) < len(ids)


def _expanded(name: str) -> Iterator[str]:
    found = _RANGE.search(name)
    if found is None:
        if "{" in name or "}" in name:
            raise ValueError(f"{name!r} has braces that are not a range; write {{FIRST..LAST}}, as in orders-{{0..7}}")
        yield name
        return
    first, last = found[1], found[2]
    if int(first) > int(last):
        raise ValueError(f"the range in {name!r} is reversed; write the smaller number first")
    width = len(first) if first.startswith("0") and len(first) > 1 else 0
    for number in range(int(first), int(last) + 1):
        yield from _expanded(f"{name[: found.start()]}{number:0{width}d}{name[found.end() :]}")
