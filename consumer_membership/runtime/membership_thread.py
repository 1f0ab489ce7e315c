"""The handle of a member's thread: the application's requests to the thread that do not use the line.

The thread owns the state machine and the sockets (`network.thread`). The application gets it from a `ThreadFactory` and
so does not import the network's side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.recorder.dumps import RecorderSettings
from consumer_membership.runtime.line import Line, Receiver
from consumer_membership.runtime.log_lines import ConsumerLines
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from consumer_membership.wire.traffic import TrafficSnapshot

if TYPE_CHECKING:  # it imports more than a consumer needs
    from os import PathLike
    from pathlib import Path

    from consumer_membership.health.handlers import HandlerFact
    from consumer_membership.wire.otlp import Point


class KnownCommit(NamedTuple):
    """A committed offset in the coordinator's last answer (None: none); `at`: its time (monotonic clock)."""

    offset: OffsetAndMetadata | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTraffic:
    """The traffic of the connections for one purpose to one broker; `is_of_group`: they are to the coordinator."""

    is_of_group: bool
    host: str
    port: int
    counts: TrafficSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFigures:
    """Figures of a member for statistics, in addition to its view.

    Attributes:
        coordinator_since: When the present coordinator was found, or the former one lost (monotonic clock).
        committed: The known committed offset of each partition: from its assignment, and from the member's commits
            since then.
        traffic: The traffic of its connections.
    """

    coordinator_since: float | None = None
    committed: Mapping[TopicPartition, KnownCommit] = field(default_factory=dict)
    traffic: tuple[BrokerTraffic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """The inputs of a member's thread.

    Attributes:
        progress: Returns two growing counts: signs that the application polls, and records returned to it. The thread
            calls it at any time, without a lock.
        lines: Receives the thread's log lines, in addition to Python's loggers.
        measure: Returns the counts of the consumer, for brokers that collect metrics (KIP-714); None: nothing is
            pushed. Called on the thread; must not wait.
        ledger: Counts the member's events.
        shares_thread: Whether the member may run on the thread that members of this process share.
        lock_directory: Where processes prove that they live (`takeover-when-dead`); None: a directory of the user.
    """

    member: MemberSettings
    protocols: ProtocolSettings
    connection: ConnectionSettings
    start: StartSettings
    progress: Callable[[], tuple[int, int]]
    lines: ConsumerLines | None = None
    recorder: RecorderSettings = RecorderSettings()
    measure: Callable[[], tuple[Point, ...]] | None = None
    ledger: MembershipLedger = field(default_factory=MembershipLedger)
    shares_thread: bool = False
    lock_directory: str | None = None


#: Receives the effects of one event and the view after it, on the membership thread; must be quick and must not raise.
Watcher: TypeAlias = Callable[[tuple[GroupEffect, ...], MembershipView], None]


class MembershipThread(Receiver, Protocol):
    """The thread of one member; each method may be called from any thread."""

    @property
    def is_calm(self) -> bool:
        """Whether the thread samples `progress` at long intervals, because no record has come for a while."""

    def sample_soon(self) -> None:
        """End the calm, because records come again: sample `progress` at the usual pace."""

    def watch(self, watcher: Watcher) -> MembershipView:
        """Call this with each event's outcome from now on, in order, before the application gets the effects.

        Returns:
            The view before the first of these events.
        """

    def set_credentials(self, username: str, password: str) -> None:
        """Use these for each later authentication; open connections stay as they are."""

    def figures(self) -> MemberFigures:
        """Return the figures for statistics in addition to the view."""

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write a recording of the member in the calling thread (`recorder.dumps.Dumps.write`)."""

    def dump_automatically(self, kind: str, cause: str) -> None:
        """Write a recording if the settings want one and the last one is not too recent (`Dumps`)."""

    def note_handlers(self, fact: HandlerFact) -> None:
        """Include a fact about the handlers of the member's records in recordings."""

    def stop(self, timeout_s: float) -> None:
        """End the member and its connections, and wait for the end no longer than this; unsent requests stay unsent."""


#: Creates a member's thread, connects it to this line, and does not start it.
ThreadFactory: TypeAlias = Callable[[Line, ThreadSettings], MembershipThread]
