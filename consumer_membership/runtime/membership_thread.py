"""The handle of a member's thread, and what the thread is made from.

The thread owns the state machine and the sockets (`network.thread`). The application gets it from a `ThreadFactory`, so
that it does not import the network's side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.recorder.dumps import RecorderSettings
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.log_lines import ConsumerLines
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from consumer_membership.wire.traffic import TrafficSnapshot

if TYPE_CHECKING:  # it imports more than a consumer needs
    from os import PathLike
    from pathlib import Path


class KnownCommit(NamedTuple):
    """What the coordinator said is committed of a partition (None: nothing), and when (monotonic clock)."""

    offset: OffsetAndMetadata | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTraffic:
    """What went over the connections for one purpose to one broker; `is_of_group`: to it as the coordinator."""

    is_of_group: bool
    host: str
    port: int
    counts: TrafficSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFigures:
    """What statistics tell of a member beside its view.

    Attributes:
        coordinator_since: When the present coordinator was found, or the former one lost (monotonic clock).
        committed: What the member has heard of each partition: when it was assigned, and since then by its commits.
        traffic: What went over its connections.
    """

    coordinator_since: float | None = None
    committed: Mapping[TopicPartition, KnownCommit] = field(default_factory=dict)
    traffic: tuple[BrokerTraffic, ...] = ()


class MembershipThread(Protocol):
    """The thread at the network's end, as the line knows it; each method may be called from any thread."""

    def start(self) -> None:
        """Start it if it does not run; nothing connects before a post needs it."""

    def ring(self) -> None:
        """Have it take what is posted, if it runs; returns at once."""

    def figures(self) -> MemberFigures:
        """What statistics tell beside the view, as it is now."""

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write a file with what is recorded of the member (`recorder.dumps.Dumps.write`)."""

    def dump_by_itself(self, kind: str, cause: str) -> None:
        """The same where nobody asked, if that is wanted, and not too often (`Dumps.write_by_itself`)."""

    def stop(self, timeout_s: float) -> None:
        """End it and its connections; wait so long for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """What a member's thread is made from.

    `lines` gets what it logs, beside Python's loggers; `ledger` counts what it does. `pushes_metrics`: to brokers that
    want them.
    """

    member: MemberSettings
    protocols: ProtocolSettings
    connection: ConnectionSettings
    start: StartSettings
    lines: ConsumerLines | None = None
    recorder: RecorderSettings = RecorderSettings()
    pushes_metrics: bool = False
    ledger: MembershipLedger = field(default_factory=MembershipLedger)


#: Makes a member's thread at the end of this line, with the first view shown, and does not start it.
ThreadFactory: TypeAlias = Callable[[Line, ThreadSettings], MembershipThread]
