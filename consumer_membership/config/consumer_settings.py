"""Typed settings of a consumer, for applications that use pydantic-settings.

The fields are generated from the table of keys (`model.READERS`), so that both have the same keys, values and error
messages. Type checkers read them from `typed_settings.pyi`, which is generated. Only this module imports pydantic; a
consumer that is created from a dict does not need it.
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
    """The behavior of `ConsumerSettings`; its fields are added below."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=False, extra="allow", frozen=True, hide_input_in_errors=True
    )

    def as_config(self) -> dict[str, object]:
        """Return the values that were set, under librdkafka's keys; the consumer itself reads the environment.

        Passwords are in plain text.
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
        """Show every key that was set, secrets as `***`."""
        values = ", ".join(f"{key}={shown(key, value)!r}" for key, value in self.as_config().items())
        return f"{type(self).__name__}({values})"

    __str__ = __repr__


def _key_of(name: str) -> str:
    return _KEYS.get(name, name.replace("_", "."))


def _plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _checked(key: str, value: object) -> object:
    """Return the value if the table's reader accepts it, or raise the reader's error."""
    if value is None or key not in READERS:
        return value
    try:
        read = READERS[key][1](key, value)
    except ValueError as refused:
        raise ConfigurationError(key, shown(key, value), str(refused)) from None
    return read if isinstance(read, bool | int) and not isinstance(value, bool | int) else value


def _type_of(key: str, annotations: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type
    """Return the type of a field: numbers and booleans as in librdkafka, else text or an object of the program."""
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


#: Field names with their keys: those of the table, and all others of librdkafka and confluent-kafka.
_KEYS = {key.replace(".", "_"): key for key in (*READERS, *KEYS)}

if TYPE_CHECKING:
    from consumer_membership.config.typed_settings import ConsumerSettings as ConsumerSettings  # noqa: PLC0414 - mypy reads it as an export
else:
    ConsumerSettings = _made()
ConsumerSettings.__doc__ = cleandoc(
    """A consumer's configuration as typed settings: `Consumer(ConsumerSettings())`.

    A field has the name of its key, with underscores for dots. Values come from keyword arguments, then from
    environment variables (`CONSUMER_MEMBERSHIP_GROUP_ID`), then from an `.env` file (`_env_file=".env"`), then from a
    folder of mounted secrets (`_secrets_dir="/run/secrets"`, one file per variable). Subclass it to set your own
    prefix (`model_config = SettingsConfigDict(env_prefix=...)`), or use it as a field of your application's settings.
    Keys without a field are also accepted. Passwords are `SecretStr`.

    Raises:
        ConfigurationError: as for a dict, with the key, the value and the fix.
    """
)
