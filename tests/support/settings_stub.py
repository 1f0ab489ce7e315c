"""Generate the stub of `ConsumerSettings` for type checkers, because its fields are created at run time.

`python -m tests.support.settings_stub` writes `config/typed_settings.pyi`; a test checks that the file is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any

from pydantic import SecretStr

import consumer_membership
from consumer_membership import ConsumerSettings

STUB = Path(consumer_membership.__file__).parent / "config" / "typed_settings.pyi"
#: For each type of a field: the type of its values, and the accepted types, which include texts from the environment.
_TYPES: dict[UnionType | Any, tuple[str, str]] = {
    int | None: ("int | None", "int | str | None"),
    bool | None: ("bool | None", "bool | str | None"),
    SecretStr | None: ("SecretStr | None", "SecretStr | str | None"),
    Any: ("object", "object"),
}


def stub() -> str:
    """Return the text of the stub."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    types = {name: _TYPES[field.annotation] for name, field in ConsumerSettings.model_fields.items()}
    yield "# Written by `python -m tests.support.settings_stub`."
    yield "from pydantic import SecretStr"
    yield ""
    yield "from consumer_membership.config.consumer_settings import SettingsBase"
    yield ""
    yield "class ConsumerSettings(SettingsBase):"
    for name, (value, _) in types.items():
        yield f"    {name}: {value} = ..."
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    for name, (_, accepted) in types.items():
        yield f"        {name}: {accepted} = ...,"
    yield "        **others: object,"
    yield "    ) -> None: ..."


if __name__ == "__main__":
    STUB.write_text(stub())
