"""Which group protocol a member uses: the consumer protocol (KIP-848), the classic one, or the first that is accepted.

If the coordinator does not accept a protocol's join, and the settings allow another protocol, the member continues with
that one. This happens before it owns partitions of its group, so it loses no partitions.

| error of a join | protocol | reason |
|---|---|---|
| UNSUPPORTED_VERSION, or the API is not offered | consumer | the broker is too old, or has it switched off |
| GROUP_ID_NOT_FOUND | consumer | a classic group cannot be converted (group.consumer.migration.policy) |
| none: the join is not sent (`CONFLICT_CODE`) | consumer | a classic group has members; no conversion was requested |
| INCONSISTENT_GROUP_PROTOCOL | classic | a consumer group accepts no classic member, or the members share no assignor |

Each protocol is tried once until a join succeeds; the refusal of the last one is fatal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.membership.effects import ProtocolChosen
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.types import (
    CONFLICT_CODE,
    GROUP_NOT_FOUND_CODE,
    INCONSISTENT_PROTOCOL_CODE,
    UNSUPPORTED_VERSION_CODE,
    BrokerError,
    GroupProtocol,
)

_CONSUMER, _CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC

#: The errors of a join whose protocol the coordinator does not accept.
REFUSALS: Mapping[GroupProtocol, frozenset[int]] = MappingProxyType(
    {
        _CONSUMER: frozenset({UNSUPPORTED_VERSION_CODE, GROUP_NOT_FOUND_CODE, CONFLICT_CODE}),
        _CLASSIC: frozenset({INCONSISTENT_PROTOCOL_CODE}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSettings:
    """The protocols that a member may use, the preferred one first, and the settings of the classic one.

    `reason` explains the order, for people. `notes` has, for each protocol, the configured keys that it does not use.
    `alternative` is the change that would also allow the other protocol; "" if it is allowed. `refuse_conversion`: a
    classic group that has members is not converted.
    """

    classic: ClassicSettings
    protocols: tuple[GroupProtocol, ...] = (_CONSUMER, _CLASSIC)
    reason: str = "group.protocol=auto"
    notes: Mapping[GroupProtocol, tuple[str, ...]] = field(default_factory=dict)
    alternative: str = ""
    refuse_conversion: bool = False


class ProtocolChoice:
    """The protocol that one member uses, why, and which ones were refused since the last join that succeeded."""

    def __init__(self, settings: ProtocolSettings) -> None:
        self.settings = settings
        self.protocol = settings.protocols[0]
        self.reason = settings.reason
        self._refused: set[GroupProtocol] = set()
        self._is_settled = False

    def is_refused_by(self, error: BrokerError) -> bool:
        """Return whether this response to a join is about its protocol."""
        return error.code in REFUSALS[self.protocol]

    def change(self, refusal: BrokerError) -> ProtocolChosen | None:
        """Continue with the next protocol; None: no other protocol is left."""
        self._refused.add(self.protocol)
        following = next((one for one in self.settings.protocols if one not in self._refused), None)
        if following is None:
            return None
        why = refusal.message if refusal.code == CONFLICT_CODE else f"{self.protocol.value} was refused: {refusal}"
        self.reason = f"{self.settings.reason}; {why}"
        self.protocol, self._is_settled = following, False
        return ProtocolChosen(protocol=following, reason=self.reason)

    def with_alternative(self, refusal: BrokerError) -> BrokerError:
        """Return the refusal of the only allowed protocol, with the change that also allows the other protocol."""
        remedies = "; or ".join(remedy for remedy in (refusal.remedy, self.settings.alternative) if remedy)
        return replace(refusal, remedy=remedies)

    def confirm(self) -> ProtocolChosen | None:
        """Keep the protocol, with which the coordinator accepted the member; each may be tried again afterwards.

        None: nothing changed.
        """
        if self._is_settled:
            return None
        self._is_settled = True
        self._refused.clear()
        notes = self.settings.notes.get(self.protocol, ())
        return ProtocolChosen(protocol=self.protocol, reason=self.reason, notes=notes)
