"""What the application's side of the line asks of the other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.membership.events import Event
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.log_lines import ConsumerLines
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.network.connections import BrokerTraffic
from consumer_membership.types import CommittedOffsets, OffsetAndMetadata, TopicPartition


class Heard(NamedTuple):
    """What the coordinator said is committed of a partition (None: nothing), and when (monotonic clock)."""

    offset: OffsetAndMetadata | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFigures:
    """What statistics tell of a member beside its picture.

    Attributes:
        coordinator_since: When the present coordinator was found, or the former one lost; on the clock of `monotonic`.
        committed: What the member has heard of each partition: when it was assigned, and since then by its commits.
        traffic: What went over its connections.
    """

    coordinator_since: float | None = None
    committed: Mapping[TopicPartition, Heard] = field(default_factory=dict)
    traffic: tuple[BrokerTraffic, ...] = ()


class MemberPort(Protocol):
    """One member on its own thread: takes events, puts effects into the application's mailbox."""

    def start(self) -> None:
        """Start the thread if it does not run; nothing connects before an event needs it."""

    def post(self, *events: Event) -> None:
        """Give the member these events, from any thread; returns at once."""

    def fetch_committed(self, partitions: frozenset[TopicPartition], timeout_s: float) -> Future[CommittedOffsets]:
        """Ask what the group has committed of these partitions, from any thread; starts the member's thread.

        The answer fails with `RefusedError` or `UnansweredError`, the latter after `timeout_s`. It is cancelled where
        the thread ends first, or never comes where the thread has just ended. Cancelling it ends the question.
        """

    def set_credentials(self, username: str, password: str) -> None:
        """Have later authentications say this, from any thread; connections that stand are left as they are."""

    @property
    def view(self) -> MembershipView:
        """The member's latest picture."""

    def figures(self) -> MemberFigures:
        """What statistics tell beside the picture, as it is now; from any thread."""

    def stop(self, timeout_s: float) -> None:
        """End the thread and its connections."""


class PortFactory(Protocol):
    """Makes the member of one session."""

    def __call__(
        self,
        *,
        member: MemberSettings,
        protocols: ProtocolSettings,
        connection: ConnectionSettings,
        start: StartSettings,
        to_application: Mailbox[ApplicationEffect],
        progress: Callable[[], tuple[int, int]],
        lines: ConsumerLines | None,
    ) -> MemberPort:
        """A member that is not started yet.

        `progress` is called on the member's thread: signs that the application polls, and records handed to it. `lines`
        gets what it logs, beside Python's loggers.
        """
