"""The successor in a hand-over: a new process that requests the instance id of a live holder (`hand_over`).

`InstanceClaim` sends its join, when the holder has released the id.

| state | meaning |
|---|---|
| IDLE | the member requests no hand-over: another policy, an older member, or no holder with partitions |
| WARMING | the application prepares for the partitions of the chosen holder |
| RAISED | on_warm raised; it is called again at the next poll |
| READING | the announcement to the holder is read, because another successor may have announced itself to it |
| WRITING | the announcement of this successor is written |
| ANNOUNCED | the announcement is written; the holder is expected to release its id |
| REFUSED | the brokers refuse the helper group: the member waits as with `wait` |

With a pool, a successor replaces the oldest process, whose age its member id shows (`member_ids`). So a deployment
replaces each old process once, and never one that the same deployment has just started. Of several successors that are
ready for the same holder, the first one announces itself, and the others prepare for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.consumer.hand_over import (
    READ_EVERY_S,
    HelperGroup,
    announcement_partition,
    is_present,
)
from consumer_membership.membership.effects import ReadAnnouncements, WarmPartitions, WriteAnnouncement
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    AnnouncementsRead,
    AnnouncementWritten,
    Warmed,
)
from consumer_membership.membership.member_ids import creation_time
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import StateMachine, TransitionRule, transitions_by_trigger
from consumer_membership.types import HandOverAnnouncement, Holder, Instant, TopicPartition

#: How often an announcement without effect is written again: another successor may have replaced it, and have ended.
REPEAT_ANNOUNCEMENT_S = 5.0


class SuccessorState(Enum):
    """The state of a successor's request; the module's table has the meanings."""

    IDLE = "IDLE"
    WARMING = "WARMING"
    RAISED = "RAISED"
    READING = "READING"
    WRITING = "WRITING"
    ANNOUNCED = "ANNOUNCED"
    REFUSED = "REFUSED"

    def __str__(self) -> str:
        """Return the bare name."""
        return self.value


class SuccessorTrigger(Enum):
    """The triggers of a successor's request; the value is the label in the diagram."""

    HOLDER_CHOSEN = "a holder with partitions is chosen, or its partitions grow"
    CALLBACK_RAISED = "on_warm raised"
    POLLED = "the application polls"
    WARMED = "on_warm has returned"
    HOLDER_FREE = "no other successor has announced itself to this holder"
    HOLDER_TAKEN = "another successor has announced itself to this holder"
    ANNOUNCEMENT_WRITTEN = "the announcement is written"
    ANNOUNCEMENT_OUTDATED = "the announcement has to be written again"
    HELPER_REFUSED = "the brokers refuse the helper group"
    ENDED = "the join has ended, or no holder is left"


_S, _T = SuccessorState, SuccessorTrigger

#: Every transition of a successor's request; the first row begins in the initial state.
SUCCESSOR_TRANSITIONS: tuple[TransitionRule[SuccessorState], ...] = (
    TransitionRule(
        (_S.IDLE, _S.WARMING, _S.RAISED, _S.READING, _S.WRITING, _S.ANNOUNCED),
        _T.HOLDER_CHOSEN,
        _S.WARMING,
        "ConsumerGroupDescribe shows its partitions",
    ),
    TransitionRule((_S.WARMING,), _T.CALLBACK_RAISED, _S.RAISED, "as on_assign"),
    TransitionRule((_S.RAISED,), _T.POLLED, _S.WARMING, "as on_assign"),
    TransitionRule((_S.WARMING,), _T.WARMED, _S.READING, "on_warm comes before the announcement"),
    TransitionRule((_S.READING,), _T.HOLDER_FREE, _S.WRITING, "OffsetFetch of the helper group"),
    TransitionRule((_S.READING,), _T.HOLDER_TAKEN, _S.IDLE, "a pool: another holder is chosen"),
    TransitionRule((_S.WRITING,), _T.ANNOUNCEMENT_WRITTEN, _S.ANNOUNCED, "OffsetCommit to the helper group"),
    TransitionRule(
        (_S.ANNOUNCED,), _T.ANNOUNCEMENT_OUTDATED, _S.WRITING, "the holder's partitions changed, or it had no effect"
    ),
    TransitionRule((_S.READING, _S.WRITING), _T.HELPER_REFUSED, _S.REFUSED, "the helper group needs READ"),
    TransitionRule(
        (_S.WARMING, _S.RAISED, _S.READING, _S.WRITING, _S.ANNOUNCED, _S.REFUSED), _T.ENDED, _S.IDLE, "the claim's join"
    ),
)
SUCCESSOR_TARGETS = transitions_by_trigger(SUCCESSOR_TRANSITIONS)


class Successor:
    """The request of one member to a holder; `begin` starts a join, `holders_described` handles a group description."""

    def __init__(self, event: EventContext, settings: MemberSettings, jitter: Jitter, helper: HelperGroup) -> None:
        self._event = event
        self._settings = settings
        self._helper = helper
        self._jitter = jitter
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self._machine = StateMachine("a successor", SUCCESSOR_TARGETS)
        #: The number of the latest order to prepare.
        self._attempt = 0
        self.instance_id: str | None = None
        self.holder: Holder | None = None
        #: Whether the application is ready for the holder's partitions, or there are none.
        self.is_warm = False
        #: With a fixed id, the member id of the first holder that this join found: later ones may be newer.
        self._first_holder: str | None = None
        #: With a pool, the member ids of holders whose id another member holds by now.
        self._replaced: set[str] = set()
        #: The member ids of holders to which another successor has announced itself, which may have ended since.
        self._requested_by_others: set[str] = set()
        #: The partition of the announcement to the holder.
        self._partition: TopicPartition | None = None
        self._awaited: int | None = None
        self._due_at: Instant = 0.0
        #: When the holder could read the first announcement; None: it cannot yet.
        self._announced_at: Instant | None = None

    # ---- questions ----

    @property
    def state(self) -> SuccessorState:
        """The state of the request."""
        return self._machine.state

    @property
    def is_active(self) -> bool:
        """Whether the member requests a hand-over."""
        return self.state not in (_S.IDLE, _S.REFUSED)

    @property
    def retries_at_poll(self) -> bool:
        """Whether on_warm raised; the next poll repeats it."""
        return self.state is _S.RAISED

    @property
    def expects_release_since(self) -> Instant | None:
        """Since when the holder may release its id at any moment; None: not yet, or its time is over."""
        limit_s = self._settings.drain_timeout_s + READ_EVERY_S
        since = self._announced_since
        return None if since is None or self._event.now >= since + limit_s else since

    @property
    def _announced_since(self) -> Instant | None:
        return self._announced_at if self.state in (_S.ANNOUNCED, _S.WRITING) else None

    def waits_for_release_since(self, since: Instant) -> Instant | None:
        """Return since when the holder should have released its id (None: not yet); the claim waits since `since`."""
        if not self.is_active:
            return since
        announced_at = self._announced_since
        return None if announced_at is None else max(since, announced_at + self._settings.drain_timeout_s)

    def next_deadline(self) -> Instant | None:
        """Return the moment when the next request is due."""
        is_due = self.state in (_S.READING, _S.WRITING) and self._awaited is None
        return self._due_at if is_due or self.state is _S.ANNOUNCED else None

    # ---- the request ----

    def _fire(self, trigger: SuccessorTrigger) -> None:
        self._machine.fire(trigger)
        self._awaited = None
        self._due_at = self._event.now

    def begin(self, *, joined_as: str | None = None) -> None:
        """Forget the holder: a join begins, or has ended; `joined_as`: the instance id that the member has now.

        An announcement without effect is withdrawn, so that the holder stays in the group.
        """
        if self._announced_since is not None and joined_as != self.instance_id and self._partition is not None:
            request_id = self._event.next_request_id()
            self._event.emit(WriteAnnouncement(request_id=request_id, partition=self._partition, announcement=None))
        self.holder = self.instance_id = self._partition = None
        self._first_holder = None
        self.is_warm = False
        self._replaced.clear()
        self._requested_by_others.clear()
        self._announced_at = None
        self._backoff.reset()
        if self.state is not _S.IDLE:
            self._fire(_T.ENDED)

    def holders_described(self, holders: Mapping[str, Holder], *, is_pool: bool) -> None:
        """Choose a holder of these instance ids, or follow the chosen holder; a hand-over may be requested."""
        if self.state is _S.REFUSED:
            return
        if self.holder is not None and self.instance_id is not None:
            found = holders.get(self.instance_id)
            if found is not None and found.member_id == self.holder.member_id and is_present(found):
                self._follow(found)
                return
            self._replaced.add(self.holder.member_id)
            self.holder = None
            self._announced_at = None
        self._choose(holders if is_pool else self._only_first(holders))

    def holder_reported(self, holder: Holder) -> None:
        """Remember the first holder of the fixed id in this join: only that one may receive a request."""
        self._first_holder = self._first_holder or holder.member_id

    def _only_first(self, holders: Mapping[str, Holder]) -> Mapping[str, Holder]:
        """Return the holder of the fixed id if it is the first one of this join."""
        for holder in holders.values():
            self.holder_reported(holder)
        return {i: one for i, one in holders.items() if one.member_id == self._first_holder}

    def _choose(self, holders: Mapping[str, Holder]) -> None:
        present = {i: one for i, one in sorted(holders.items()) if is_present(one)}
        usable = [i for i, one in present.items() if one.partitions and one.member_id not in self._replaced]
        candidates = [i for i in usable if present[i].member_id not in self._requested_by_others] or usable
        if candidates:
            candidates = self._oldest({i: creation_time(present[i].member_id) or 0 for i in candidates})
            self.instance_id = candidates[int(self._jitter() * len(candidates))]
            self._warm(present[self.instance_id])
            return
        # A holder without partitions reads no announcement, and the application need not prepare.
        self.is_warm |= bool(present) and not any(one.partitions for one in present.values())
        if self.state is not _S.IDLE:
            self._fire(_T.ENDED)

    def _oldest(self, created: Mapping[str, int]) -> list[str]:
        """Return the ids of the holders that were created first; `created`: when, in milliseconds."""
        first = min(created.values())
        return [i for i, created_at in created.items() if created_at == first]

    def _warm(self, holder: Holder) -> None:
        self.holder, self._partition = holder, announcement_partition(holder.partitions)
        self._attempt += 1
        self.is_warm = False
        self._fire(_T.HOLDER_CHOSEN)
        self._event.emit(WarmPartitions(attempt=self._attempt, partitions=holder.partitions))

    def _follow(self, found: Holder) -> None:
        """Follow the partitions of the chosen holder, which may have changed."""
        before = self.holder
        if before is None or found.partitions == before.partitions or not found.partitions:
            return
        if found.partitions - before.partitions:
            self._warm(found)
            return
        self.holder, partition = found, announcement_partition(found.partitions)
        if partition != self._partition:
            self._partition = partition
            if self.state is _S.ANNOUNCED:
                self._fire(_T.ANNOUNCEMENT_OUTDATED)

    def warmed(self, event: Warmed) -> None:
        """Continue after on_warm, which returned or raised."""
        if event.attempt != self._attempt or self.state is not _S.WARMING:
            return
        if event.failed:
            self._fire(_T.CALLBACK_RAISED)
        else:
            self.is_warm = True
            self._fire(_T.WARMED)

    def polled(self) -> None:
        """Call on_warm again after it raised: the application polls."""
        if self.retries_at_poll and self.holder is not None:
            self._attempt += 1
            self._fire(_T.POLLED)
            self._event.emit(WarmPartitions(attempt=self._attempt, partitions=self.holder.partitions))

    def send_due(self, own: str) -> None:
        """Send the due request; `own` is this member's id."""
        if self.holder is None or self.instance_id is None or self._partition is None or self._event.now < self._due_at:
            return
        if self.state is _S.ANNOUNCED:
            self._fire(_T.ANNOUNCEMENT_OUTDATED)
        if self._awaited is not None or self.state not in (_S.READING, _S.WRITING):
            return
        self._awaited = request_id = self._event.next_request_id()
        if self.state is _S.READING:
            self._event.emit(ReadAnnouncements(request_id=request_id, partitions=frozenset({self._partition})))
            return
        announcement = HandOverAnnouncement(
            predecessor=self.holder.member_id, successor=own, instance_id=self.instance_id
        )
        order = WriteAnnouncement(request_id=request_id, partition=self._partition, announcement=announcement)
        self._event.emit(order)

    # ---- responses ----

    def announcements_read(self, event: AnnouncementsRead, own: str, *, is_pool: bool) -> None:
        """Announce this member to the holder, or choose another one if another successor was faster.

        `own` is this member's id. A fixed id has no other holder, so the announcement of the newest process counts.
        """
        if event.request_id != self._awaited or self.state is not _S.READING or self.holder is None:
            return
        self._backoff.reset()
        holder = self.holder.member_id
        is_requested = any(one.predecessor == holder and one.successor != own for one in event.announcements.values())
        if is_requested and is_pool and holder not in self._requested_by_others:
            self._requested_by_others.add(holder)
            self._fire(_T.HOLDER_TAKEN)
            self.holder = self.instance_id = self._partition = None
        else:
            self._fire(_T.HOLDER_FREE)

    def announcement_written(self, event: AnnouncementWritten) -> None:
        """Wait for the holder, which can read the announcement now."""
        if event.request_id != self._awaited or self.state is not _S.WRITING:
            return
        self._backoff.reset()
        self._fire(_T.ANNOUNCEMENT_WRITTEN)
        self._due_at = self._event.now + REPEAT_ANNOUNCEMENT_S
        if self._announced_at is None:
            self._announced_at = self._event.now

    def not_done(self, event: AnnouncementsNotRead | AnnouncementNotWritten) -> None:
        """Repeat a failed request, or wait as with `wait` if the brokers refuse the helper group."""
        if event.request_id != self._awaited:
            return
        if event.is_refused:
            self._fire(_T.HELPER_REFUSED)
            self._helper.refused(event.error)
            return
        self._awaited = None
        self._due_at = self._event.now + self._backoff.next_delay()
