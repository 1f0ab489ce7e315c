"""This package's tables against Kafka's message definitions in the newest broker's jar, field by field."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

import pytest

from consumer_membership.devbroker.java import classpath
from consumer_membership.translation.group_records import TABLES
from consumer_membership.wire.messages import ASSIGNMENT, LAYOUTS, SUBSCRIPTION
from consumer_membership.wire.schema import Field, Table, has, layout_of
from consumer_membership.wire.versions import SUPPORTED, VERSIONS_FOR_ONE_BROKER, Api
from tests.support.versions import NEWEST

pytestmark = pytest.mark.integration

CASES = [(table, version) for api, tables in LAYOUTS.items() for version in SUPPORTED[api] for table in tables]
CASES += [(table, VERSIONS_FOR_ONE_BROKER) for table in LAYOUTS[Api.API_VERSIONS]]
CASES += [(table, version) for table in (SUBSCRIPTION, ASSIGNMENT) for version in range(4)]
RECORDS = [(kind, table, version) for kind, table, newest in TABLES for version in range(newest + 1)]


@cache
def definitions(jar: str) -> zipfile.ZipFile:
    """Return a jar of the broker."""
    path = next(one for one in classpath(NEWEST).split(":") if re.search(rf"{jar}-[0-9][^/]*\.jar$", one))
    return zipfile.ZipFile(path)


def definition_of(table: Table, jar: str = "kafka-clients") -> dict[str, Any]:
    """Return Kafka's definition: JSON with comment lines."""
    text = definitions(jar).read(f"common/message/{table.name}.json").decode()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def expected(one: dict[str, Any], structures: dict[str, Any], version: int) -> Field:
    """Return Kafka's field in this package's form."""
    base = one["type"].removeprefix("[]")
    inside = one.get("fields") or structures.get(base)
    return Field(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", one["name"]).lower(),
        type="struct" if inside else base,
        is_array=one["type"].startswith("[]"),
        is_nullable=has(one.get("nullableVersions", "none"), version),
        tag=one.get("tag"),
        default=None if (default := one.get("default")) is None else str(default),
        fields=of_version(inside or [], structures, version),
    )


def of_version(fields: list[dict[str, Any]], structures: dict[str, Any], version: int) -> tuple[Field, ...]:
    """Return the fields of this version."""
    return tuple(expected(one, structures, version) for one in fields if has(one["versions"], version))


@pytest.mark.parametrize(("table", "version"), CASES, ids=[f"{table.name}-v{version}" for table, version in CASES])
def test_message_table_equals_kafkas_definition(table: Table, version: int) -> None:
    """Names, order, types, nulls, tags, defaults and flexible versions are equal."""
    assert_same(definition_of(table), table, version)


@pytest.mark.parametrize(("kind", "table", "version"), RECORDS, ids=lambda one: getattr(one, "name", str(one)))
def test_record_table_equals_kafkas_definition(kind: int, table: Table, version: int) -> None:
    """The records of `__consumer_offsets` and their key numbers are equal, and there is no later version."""
    theirs = definition_of(table, "kafka-group-coordinator")
    assert_same(theirs, table, version)
    assert theirs["apiKey"] == kind
    newest = max(number for one, of_table, number in RECORDS if (one, of_table) == (kind, table))
    assert not has(theirs["validVersions"], newest + 1)


def assert_same(theirs: dict[str, Any], table: Table, version: int) -> None:
    """Compare both definitions in this version."""
    structures = {one["name"]: one["fields"] for one in theirs.get("commonStructs", ())}
    ours = layout_of(table, version)
    assert ours.fields == of_version(theirs["fields"], structures, version)
    assert ours.is_flexible is has(theirs["flexibleVersions"], version)
    assert has(theirs["validVersions"], version)


def test_api_keys_equal_kafkas_definitions() -> None:
    """Each API has the key of its request and response definitions."""
    for api, (request, answer) in LAYOUTS.items():
        assert [definition_of(one)["apiKey"] for one in (request, answer)] == [api.value] * 2
