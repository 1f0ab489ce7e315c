"""Typed settings of a consumer for applications that have theirs from pydantic-settings.

The fields are made from the table of keys (`model.READERS`), so that both know the same keys, values and texts of
errors; type checkers read them from `typed_settings.pyi`, which is generated. This module alone knows pydantic: a
consumer that is made from a dict does without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, SecretStr, create_model, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from consumer_membership.config import values
from consumer_membership.config.environment import PREFIX, is_from_environment
from consumer_membership.config.keys import KEYS, is_secret, shown
from consumer_membership.config.model import READERS, ConsumerConfig
from consumer_membership.errors import ConfigurationError

_BOOLEANS = (values.boolean, values.guardian)


class SettingsBase(BaseSettings):
    """What `ConsumerSettings` does; its fields are made below."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=False, extra="allow", frozen=True, hide_input_in_errors=True
    )

    def as_config(self) -> dict[str, object]:
        """What was set, under librdkafka's keys; what the environment says the consumer reads there itself.

        Passwords are in it in the clear.
        """
        given = {**self.__dict__, **(self.model_extra or {})}
        return {
            key: _plain(value)
            for name, value in given.items()
            if name in self.model_fields_set and not is_from_environment(key := _key_of(name), str(_plain(value)))
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        ConsumerConfig.from_mapping(self.as_config())
        return self

    def __repr__(self) -> str:
        """Every key that was set, secrets as `***`."""
        said = ", ".join(f"{key}={shown(key, value)!r}" for key, value in self.as_config().items())
        return f"{type(self).__name__}({said})"

    __str__ = __repr__


def _key_of(name: str) -> str:
    return _KEYS.get(name, name.replace("_", "."))


def _plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _checked(key: str, value: object) -> object:
    """The value, which the table's reader takes, with the table's words where it does not."""
    if value is None or key not in READERS:
        return value
    try:
        read = READERS[key][1](key, value)
    except ValueError as refused:
        raise ConfigurationError(key, shown(key, value), str(refused)) from None
    return read if isinstance(read, bool | int) and not isinstance(value, bool | int) else value


def _type_of(key: str, annotations: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type
    """What a field takes: numbers and yes or no where librdkafka has those, else text or an object of the program's."""
    if is_secret(key):
        return SecretStr | None
    if key not in READERS:
        return Any
    name, read = READERS[key]
    if read in _BOOLEANS:
        return bool | None
    if str(annotations[name]).startswith("int"):
        return int | None
    return Any


def _made() -> type[SettingsBase]:
    annotations = {entry.name: entry.type for entry in fields(ConsumerConfig)}
    made: dict[str, Any] = {
        name: (
            Annotated[_type_of(key, annotations), BeforeValidator(partial(_checked, key))],
            Field(default=None, description=key),
        )
        for name, key in _KEYS.items()
    }
    return create_model("ConsumerSettings", __base__=SettingsBase, __module__=__name__, **made)


#: Names of fields, with their keys: those of the table, and all that librdkafka and confluent-kafka have beside them.
_KEYS = {key.replace(".", "_"): key for key in (*READERS, *KEYS)}

if TYPE_CHECKING:
    from consumer_membership.config.typed_settings import ConsumerSettings as ConsumerSettings  # noqa: PLC0414 - mypy reads it as an export
else:
    ConsumerSettings = _made()
ConsumerSettings.__doc__ = cleandoc(
    """A consumer's configuration as typed settings: `Consumer(ConsumerSettings())`.

    A field is named like its key, with underscores. Values come from the program's keyword arguments, then from
    environment variables (`CONSUMER_MEMBERSHIP_GROUP_ID`), then from an `.env` file (`_env_file=".env"`), then from a
    folder of mounted secrets (`_secrets_dir="/run/secrets"`, a file for each variable's name). Subclass it for a prefix
    of your own (`model_config = SettingsConfigDict(env_prefix=...)`), or have it as a field of your application's
    settings. Keys that are no field may be given, too. Passwords are `SecretStr`.

    Raises:
        ConfigurationError: as for a dict, with key, value and remedy.
    """
)
