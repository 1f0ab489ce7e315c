"""Mutations of JSON values: a changed byte rarely leaves valid JSON, so readers would reject it before its values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, TypeAlias

from tests.fuzzing.corpus import SEPARATOR

#: Returns a changed input. The arguments are the input, the largest size of the result, and a seed.
Mutator: TypeAlias = Callable[[bytes, int, int], bytes]
#: libFuzzer's own mutation, which changes the bytes of an input. The arguments are the input and the largest size.
ByteMutator: TypeAlias = Callable[[bytes, int], bytes]

#: Values that readers may not expect: of other types, at the ends of ranges, too long or nested too deeply.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308),
    *(float("inf"), float("-inf"), float("nan"), "", "a", "\0", "\ud800", "\u2028", "9" * 5000, "(a+)+$", [], {}),
    *([[]], [None, 1], {"": {}}, {"!": "list", "=": []}, {"^": -1}, {"^": 10**9}, {"!": "float", "=": "inf"}),
)
#: The ends of the parts that may be JSON: lines, of which the first byte may have another meaning, and files of a
#: checkpoint.
_ENDS = re.compile(rb"\n|" + re.escape(SEPARATOR))


def json_mutator(mutate_bytes: ByteMutator) -> Mutator:
    """Return a mutator that changes one value of one JSON text in an input; every third time, it changes bytes."""

    def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
        chance = Random(seed)  # noqa: S311 - no secret
        if chance.randrange(3) == 0:
            return mutate_bytes(data, most_bytes)
        places = [0, *(match.end() for match in _ENDS.finditer(data)), len(data) + 1]
        number = chance.randrange(len(places) - 1)
        start, end = places[number], places[number + 1] - 1
        first = data.find(b"{", start, end)
        if first < 0:
            return mutate_bytes(data, most_bytes)
        try:
            found, size = json.JSONDecoder().raw_decode(data[first:].decode(errors="replace"))
        except (ValueError, RecursionError):
            return mutate_bytes(data, most_bytes)
        text = json.dumps(_changed(found, chance), separators=(",", ":")).encode()
        if chance.randrange(50) == 0:
            text = b'{"":' * 5000 + text
        result = data[:first] + text + data[first + len(data[first:].decode(errors="replace")[:size].encode()) :]
        return result if len(result) <= most_bytes else mutate_bytes(data, most_bytes)

    return mutate


def _changed(value: Any, chance: Random) -> Any:
    """Return the value with one change somewhere in it."""
    inside = isinstance(value, dict | list) and value and chance.randrange(8)
    if not inside:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        match chance.randrange(10):
            case 0:
                return {name: one for name, one in value.items() if name != key}
            case 1:
                return {**value, chance.choice(["", "other", *value]): chance.choice(list(value.values()))}
            case _:
                return {**value, key: _changed(value[key], chance)}
    place = chance.randrange(len(value))
    match chance.randrange(10):
        case 0:
            return value[:place] + value[place + 1 :]
        case 1:
            return [*value, value[place]]
        case _:
            return [*value[:place], _changed(value[place], chance), *value[place + 1 :]]


#: The targets that read JSON.
MUTATED: Mapping[str, Callable[[ByteMutator], Mutator]] = MappingProxyType(
    dict.fromkeys(("recordings", "checkpoints", "spark-line", "spark-mailbox", "guardian-lines"), json_mutator)
)
