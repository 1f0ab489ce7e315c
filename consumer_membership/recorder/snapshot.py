"""A member's whole state as one line of a recording: the checkpoint from which a replay begins.

It is written on the membership's thread, in 1 ms for a member that owns 100 partitions, 0.1 s for 10,000 and 1.5 s for
100,000. A file gets the same line.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from types import MappingProxyType

from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.values import PACKAGE, Json, RecordingError, decoded, encoded

_CORE = f"{PACKAGE}membership."


def taken(
    member: GroupMember, settings: MemberSettings, protocols: ProtocolSettings, chance: object, seal: bytes
) -> bytes:
    """The member's state, compressed; what it shares with others (settings, assignors, chance, tables) is named.

    Raises:
        RecordingError: it contains a value that cannot be recorded.
    """
    shared = {**_tables(), **_shared_objects(settings, protocols), "chance": chance}
    state = encoded(member, seal, {id(one): name for name, one in shared.items()})
    return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)


def line_of(snapshot: bytes) -> bytes:
    """The line of a file with this state."""
    return zlib.decompress(snapshot)


def restored(
    state: Json, settings: MemberSettings, protocols: ProtocolSettings, chance: Mapping[str, object]
) -> GroupMember:
    """A member in this state; `chance` has the functions that draw for it, by the names that they have in `Chance`.

    Raises:
        RecordingError: this version of the package has no such state.
    """
    shared = _shared_objects(settings, protocols) | {f"chance.{name}": draw for name, draw in chance.items()}
    member = decoded(state, shared)
    if not isinstance(member, GroupMember):
        raise RecordingError("the checkpoint is not the state of a member")
    return member


def _shared_objects(settings: MemberSettings, protocols: ProtocolSettings) -> dict[str, object]:
    """The objects that the state refers to and that the head of the file has."""
    named: dict[str, object] = {"settings": settings, "protocols": protocols, "classic": protocols.classic}
    return named | {f"assignor {one.name}": one for one in protocols.classic.assignors}


def _tables() -> dict[str, object]:
    """The tables of the core's modules: each version of the package has its own, so a state refers to them by name."""
    return {
        f"{module_name.removeprefix(PACKAGE)}.{name}": value
        for module_name, module in tuple(sys.modules.items())
        if module_name.startswith(_CORE)
        for name, value in vars(module).items()
        if isinstance(value, MappingProxyType)
    }
