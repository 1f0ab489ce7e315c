"""The latest events of one member in memory: the recorder's only cost while nothing fails.

Events and effects are immutable, so the ring keeps references to them and copies nothing until a file is written. The
ring has two segments. When the newer one is full, the older one is dropped, and a new one begins with a checkpoint: the
core's state at that moment, from which a replay begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from consumer_membership.membership import events as ev
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.chance import Chance, Draw
from consumer_membership.shared_deque import SharedDeque
from consumer_membership.types import Instant

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.health.handlers import HandlerFact

#: The capacity of a segment. An event with its effects has the weight 1 (about half a kilobyte), and every two
#: partitions that it names add 1. Two segments have two megabytes at most; an idle member fills one in an hour, a
#: member whose records flow in three minutes.
SEGMENT_WEIGHT = 2_000
PARTITIONS_OF_A_WEIGHT = 2
#: How many facts about handlers are kept: a fact has a third of a kilobyte.
MOST_HANDLER_FACTS = 500

#: The events that may name many partitions or members.
_LARGE: Mapping[type[GroupEvent], Callable[[GroupEvent], object]] = MappingProxyType(
    {
        ev.StepFinished: attrgetter("offsets"),
        ev.PositionsReported: attrgetter("offsets"),
        ev.CommitRequested: attrgetter("offsets"),
        ev.HeartbeatAnswered: attrgetter("assignment"),
        ev.StartOffsetsFetched: attrgetter("offsets"),
        ev.CommitAnswered: attrgetter("errors"),
        ev.TopicsLookedUp: attrgetter("names"),
        ex.JoinAnswered: attrgetter("members"),
        ex.SyncAnswered: attrgetter("assignment"),
        ex.TopicsDescribed: attrgetter("topics.partitions"),
        ex.AssignmentComputed: attrgetter("assignments"),
    }
)


class Entry(NamedTuple):
    """One event with the draws since the previous one, and its effects, or the `error` that the core raised."""

    at: Instant
    event: GroupEvent
    draws: tuple[Draw, ...]
    effects: tuple[GroupEffect, ...]
    error: str | None = None


class HandlerEntry(NamedTuple):
    """A fact about the handlers of the member's records; a replay shows it and does not need it."""

    at: Instant
    fact: HandlerFact


class Segment(NamedTuple):
    """Consecutive events, the number of the first, and the member's state before it; None: the member was just created.

    `draws` are those of its creation. The list of entries grows; any thread may copy it.
    """

    first: int
    state: bytes | None
    draws: tuple[Draw, ...]
    entries: list[Entry]


class RingContents(NamedTuple):
    """A ring's contents at one moment; `view` is the member's latest view, after `view_after` entries of its life."""

    settings: MemberSettings
    protocols: ProtocolSettings
    seal: bytes
    first: int
    state: bytes | None
    draws: tuple[Draw, ...]
    entries: tuple[Entry, ...]
    view_after: int
    view: MembershipView | None
    handlers: tuple[HandlerEntry, ...] = ()


class Recorder:
    """A member with the ring of its latest events.

    `handle` and `record_view` belong to the member's thread; any thread may call `note_handlers` and `contents`.
    Without `is_on`, nothing is kept.
    """

    def __init__(
        self,
        settings: MemberSettings,
        protocols: ProtocolSettings,
        *,
        new_member_id: Callable[[], str],
        jitter: Jitter,
        segment_weight: int = SEGMENT_WEIGHT,
        is_on: bool = True,
    ) -> None:
        self.settings = settings
        self._protocols = protocols
        self._chance = Chance(jitter, new_member_id)
        self.member = MemberCore(
            settings, protocols, new_member_id=self._chance.new_member_id, jitter=self._chance.jitter
        )
        #: The key of the hashes that replace the application's data; it is never written.
        self._seal = os.urandom(16)
        self._full_at = self._segment_weight = segment_weight
        self._weight = 0
        self._count = 0
        self._seen: tuple[int, MembershipView | None] = (0, None)
        #: The older and the growing segment; replaced as a whole, so that other threads can read it.
        self._segments: tuple[Segment, ...] = (Segment(0, None, self._chance.take(), []),)
        self._entries = self._segments[0].entries
        self._handlers: SharedDeque[HandlerEntry] = SharedDeque(maxlen=MOST_HANDLER_FACTS)
        self._is_on = is_on
        #: Why recording has stopped; "": it continues.
        self.failure = ""
        if not is_on:
            self._stop_recording()

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Call the member's `handle` and record the event; an exception of the core is also recorded."""
        kind = type(event)
        if self._weight >= self._full_at and (kind is ev.Polled or kind is ev.TimePassed):
            self._begin_segment()
        try:
            effects = self.member.handle(event, now)
        except Exception as error:
            self._note(Entry(now, event, self._chance.take(), (), f"{type(error).__name__}: {error}"))
            raise
        self._note(Entry(now, event, self._chance.take(), effects))
        large = _LARGE.get(kind)
        if large is not None:
            self._weigh(large(event))
        return effects

    def record_view(self, view: MembershipView) -> None:
        """Keep the member's view after the latest event."""
        self._seen = (self._count, view)

    def note_handlers(self, fact: HandlerFact, now: Instant) -> None:
        """Keep a fact about the handlers of the member's records."""
        if self._is_on:
            self._handlers.append(HandlerEntry(now, fact))

    def contents(self) -> RingContents:
        """Return the ring's contents at this moment."""
        segments, (view_after, view) = self._segments, self._seen
        entries = tuple(entry for segment in segments for entry in tuple(segment.entries))
        base = segments[0]
        return RingContents(
            settings=self.settings,
            protocols=self._protocols,
            seal=self._seal,
            first=base.first,
            state=base.state,
            draws=base.draws,
            entries=entries,
            view_after=view_after,
            view=view,
            handlers=tuple(self._handlers.items()),
        )

    def _stop_recording(self) -> None:
        self.handle = self.member.handle  # type: ignore[method-assign]  # so that it costs nothing
        self.record_view = lambda view: None  # type: ignore[method-assign]  # noqa: ARG005

    def _note(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._weight += 1
        self._count += 1

    def _weigh(self, large: object) -> None:
        if large is not None:
            self._weight += len(large) // PARTITIONS_OF_A_WEIGHT  # type: ignore[arg-type]  # of the table: all are sized

    def _begin_segment(self) -> None:
        from consumer_membership.recorder.snapshot import taken  # most members end before the first checkpoint

        try:
            state = taken(self.member, self.settings, self._protocols, self._chance, self._seal)
        except Exception as error:  # noqa: BLE001 - the member continues without a recording
            self.failure = f"{type(error).__name__}: {error}"
            self._stop_recording()
            return
        begun = Segment(self._count, state, self._chance.take(), [])
        self._segments, self._entries = (self._segments[-1], begun), begun.entries
        self._weight = 0
        # The state of a large group is large; a checkpoint must stay a small part of the recorded data.
        self._full_at = max(self._segment_weight, len(state) // 256)
