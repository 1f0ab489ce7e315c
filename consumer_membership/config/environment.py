"""Environment variables as a source of configuration.

`CONSUMER_MEMBERSHIP_GROUP_ID` is `group.id`: the prefix, then the dotted key in capitals with underscores. Any key can
be given this way, those that only librdkafka knows too; what the program itself gives wins.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

PREFIX = "CONSUMER_MEMBERSHIP_"
#: The one textual key of librdkafka that has an underscore of its own.
_UNDERSCORED = {"log.level": "log_level"}


def variable_of(key: str) -> str:
    """The environment variable that stands for a key."""
    return PREFIX + key.replace(".", "_").upper()


def is_from_environment(key: str, value: str) -> bool:
    """Whether the environment gives a key this value."""
    return os.environ.get(variable_of(key)) == value


def _key_of(variable: str) -> str:
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


class DottedEnvironment(PydanticBaseSettingsSource):
    """The environment variables with the prefix, under their dotted names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """One field's value, as the base class asks for it."""
        key = field.alias or field_name
        return os.environ.get(variable_of(key)), key, False

    def __call__(self) -> dict[str, Any]:
        """All of them at once: keys that no field knows are librdkafka's to judge."""
        return {
            _key_of(name): value
            for name, value in os.environ.items()
            if name.startswith(PREFIX) and len(name) > len(PREFIX)
        }
