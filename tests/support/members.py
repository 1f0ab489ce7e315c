"""Members of one protocol whose parts are accessible as attributes and can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.effects import ProtocolChosen
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.types import GroupProtocol, Instant
from tests.support.protocols import CONSUMER_ONLY


class _OpenMember(MemberCore):
    """A member that exposes the attributes of its protocol and its parts."""

    #: For each part, by name, the class that replaces its usual class; `protocol` is the name of the protocol object.
    replaced: ClassVar[Mapping[str, type]] = {}

    def __init__(
        self,
        settings: MemberSettings,
        protocols: ProtocolSettings,
        *,
        new_member_id: Callable[[], str],
        jitter: Jitter,
    ) -> None:
        super().__init__(settings, protocols, new_member_id=new_member_id, jitter=jitter)
        for name, part in self.replaced.items():
            (self._protocol if name == "protocol" else getattr(self, name)).__class__ = part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_protocol" not in self.__dict__:
            raise AttributeError(name)
        owner = self._protocol if hasattr(self._protocol, name) else self.context
        return getattr(owner, name)

    @property
    def coordinator(self) -> Coordinator:  # type: ignore[override] # returns the part, not only its address
        """The part of the member that stores what is known about its coordinator."""
        return self.context.coordinator

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Handle an event; the result has no `ProtocolChosen` effects."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, ProtocolChosen))


class Member(_OpenMember):
    """A member of the consumer protocol."""

    def __init__(self, settings: MemberSettings, *, new_member_id: Callable[[], str], jitter: Jitter) -> None:
        super().__init__(settings, CONSUMER_ONLY, new_member_id=new_member_id, jitter=jitter)


def _no_member_id() -> str:
    raise AssertionError("the coordinator creates the id of a classic member")


class ClassicMember(_OpenMember):
    """A member of the classic protocol."""

    def __init__(self, settings: MemberSettings, classic: ClassicSettings, *, jitter: Jitter) -> None:
        protocols = ProtocolSettings(classic=classic, protocols=(GroupProtocol.CLASSIC,))
        super().__init__(settings, protocols, new_member_id=_no_member_id, jitter=jitter)
