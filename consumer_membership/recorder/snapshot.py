"""A member's complete state as one line of a recording: the checkpoint from which a replay begins.

It is written on the membership's thread, in 1 ms for a member that owns 100 partitions, 0.1 s for 10,000 and 1.5 s for
100,000. The file has the same line.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from types import MappingProxyType

from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.values import PACKAGE, Json, RecordingError, decoded, encoded

_CORE = f"{PACKAGE}membership."


def taken(
    member: MemberCore, settings: MemberSettings, protocols: ProtocolSettings, chance: object, seal: bytes
) -> bytes:
    """Return the member's state, compressed; shared objects (settings, assignors, chance, tables) are written as names.

    Raises:
        RecordingError: the state contains a value that cannot be recorded.
    """
    shared = {**_tables(), **_shared_objects(settings, protocols), "chance": chance}
    state = encoded(member, seal, {id(one): name for name, one in shared.items()})
    return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)


def line_of(snapshot: bytes) -> bytes:
    """Return the line of a file with this state."""
    return zlib.decompress(snapshot)


def restored(
    state: Json, settings: MemberSettings, protocols: ProtocolSettings, chance: Mapping[str, object]
) -> MemberCore:
    """Return a member in this state; `chance` has the functions that draw for it, by their names in `Chance`.

    Raises:
        RecordingError: this version of the package has no such state.
    """
    shared = _shared_objects(settings, protocols) | {f"chance.{name}": draw for name, draw in chance.items()}
    member = decoded(state, shared)
    if not isinstance(member, MemberCore):
        raise RecordingError("the checkpoint is not the state of a member")
    return member


def _shared_objects(settings: MemberSettings, protocols: ProtocolSettings) -> dict[str, object]:
    """Return the objects that the state refers to and that the head of the file has."""
    named: dict[str, object] = {"settings": settings, "protocols": protocols, "classic": protocols.classic}
    return named | {f"assignor {one.name}": one for one in protocols.classic.assignors}


def _tables() -> dict[str, object]:
    """Return the tables of the core's modules; a state refers to them by name, because each version has its own."""
    return {
        f"{module_name.removeprefix(PACKAGE)}.{name}": value
        for module_name, module in tuple(sys.modules.items())
        if module_name.startswith(_CORE)
        for name, value in vars(module).items()
        if isinstance(value, MappingProxyType)
    }
