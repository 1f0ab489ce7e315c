"""The syntax of the message tables: the fields of a message, their versions, and their types.

A table is text with one line per field, with the terms of Kafka's message definitions; the fields of a structure are
indented below it::

    GroupId          string    0+
    InstanceId       string    0+  nullable=0+  default=null
    TopicPartitions  []struct  0+  nullable=0+  default=null
      TopicId        uuid      0+
      Partitions     []int32   0+
    Epoch            int64     3+  tag=1  default=-1

A type is `bool`, `int8`, `int16`, `int32`, `int64`, `uuid`, `string`, `bytes` or `struct`, or `[]` and one of them. A
range of versions is `0+`, `0-7` or `3`. A field with a tag is tagged in all of its versions. Nothing is parsed at
import: the table of a version is parsed for its first message, in about 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from consumer_membership.errors import InternalError

#: No version of the message has the field.
NEVER = "none"


class Field(NamedTuple):
    """One field in one version.

    Attributes:
        name: The name as attributes and keys have it: `member_id`.
        type: The type without the brackets of an array.
        is_array: Whether it is an array of that type.
        is_nullable: Whether it may be null in this version.
        tag: The tag; None: an untagged field.
        default: The value that is written if none is given, as in the table; None: the value is required.
        fields: The fields of a structure.
    """

    name: str
    type: str
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: str | None
    fields: tuple[Field, ...]


class Table(NamedTuple):
    """A message in all its versions.

    Attributes:
        name: The name in Kafka's documentation.
        flexible: The versions with compact lengths and tagged fields (KIP-482).
        text: The fields.
    """

    name: str
    flexible: str
    text: str


class Layout(NamedTuple):
    """A message in one version."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...]


def layout_of(table: Table, version: int) -> Layout:
    """Return the message in this version."""
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in table.text.splitlines() if line.strip()]
    fields = tuple(_fields(iter(_blocks(lines)), version))
    return Layout(f"{table.name} v{version}", has(table.flexible, version), fields)


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def has(versions: str, version: int) -> bool:
    """Return whether the version is in the range."""
    if versions == NEVER:
        return False
    first, dash, last = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(first) <= version <= int(last if dash else first)


class _Block(NamedTuple):
    """The line of a field, and those that are indented below it."""

    tokens: list[str]
    below: list[tuple[int, list[str]]]


def _blocks(lines: Iterable[tuple[int, list[str]]]) -> list[_Block]:
    blocks: list[_Block] = []
    margin = -1
    for indent, tokens in lines:
        if margin < 0:
            margin = indent
        if indent == margin:
            blocks.append(_Block(tokens, []))
        else:
            blocks[-1].below.append((indent, tokens))
    return blocks


def _fields(blocks: Iterator[_Block], version: int) -> Iterator[Field]:
    for (name, type_name, versions, *options), below in blocks:
        if not has(versions, version):
            continue
        given = dict(option.split("=") for option in options)
        tag, default = given.pop("tag", None), given.pop("default", None)
        is_nullable = has(given.pop("nullable", NEVER), version)
        if given:
            raise InternalError(f"the table of {name} has {given}, which is not an option of a field")
        yield Field(
            name=_snake_case(name),
            type=type_name.removeprefix("[]"),
            is_array=type_name.startswith("[]"),
            is_nullable=is_nullable,
            tag=None if tag is None else int(tag),
            default=default,
            fields=tuple(_fields(iter(_blocks(below)), version)),
        )
