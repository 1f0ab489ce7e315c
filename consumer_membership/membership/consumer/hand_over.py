"""The hand-over of an instance id from its holder, the predecessor, to a new process, the successor.

With `group.instance.id.conflict.policy=hand-over` a new process does not take the id of a live holder. It prepares for
the holder's partitions, which the description of the group shows (`WarmPartitions`), and then writes a note for the
holder. The holder reads its note about once a second. If the note names it, it releases its partitions as in a leave,
and leaves with epoch -2. Then the id is free, and the successor receives the same partitions at the same epoch, without
a rebalance of other members.

A note is committed metadata of the helper group `<group.id>.hand-over`, at the first partition that the predecessor
owns, so that notes to several holders never collide. Notes are hints, and the coordinator decides which member holds
an id: a lost, late or wrong note costs time and never a partition. A crash therefore ends as it does with `wait`.

- If the successor ends before its note, nothing has happened. If it ends after its note, the id stays free for
  `RESERVED_S`; then the predecessor joins with its id again, keeps the same partitions, and ignores this successor.
- If the leave of the predecessor is lost, it releases its id again as soon as a description shows that it still has it.
- If the predecessor ends, its id is released by its leave, or at the end of its session, and the successor joins.

Only a member that the application just made join requests a hand-over, so two processes never take an id from each
other in turns. With a fixed id it makes its request to one holder in each such join; with a pool, to one holder after
the other, if other members were faster. A predecessor makes no request: with a fixed id it ends as soon as its
successor holds the id, with a pool it waits for another id.

The states of the successor; `InstanceClaim` sends its join:

| state | meaning |
|---|---|
| IDLE | the member requests no hand-over: another policy, an older member, or no holder with partitions |
| WARMING | the application prepares for the partitions |
| RAISED | on_warm raised; it is called again at the next poll |
| READING | the holder's note is read, because another successor may have asked this holder |
| WRITING | the successor's note is written |
| ANNOUNCED | the note is written; the holder is expected to release its id |
| REFUSED | the brokers refuse the helper group: the member waits as with `wait` |

The states of the predecessor:

| state | meaning |
|---|---|
| HOLDING | the member reads its note while it holds partitions |
| RELEASING | the member releases its partitions and its id |
| RELEASED | the id is free; the member claims no id until its successor had time to join |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import ReadNotes, WarmPartitions, Warned, WriteNote
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import NoteNotWritten, NotesNotRead, NotesRead, NoteWritten, Warmed
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import StateMachine, TransitionRule, transitions_by_trigger
from consumer_membership.types import LEAVE_STATIC_EPOCH, BrokerError, HandOverNote, Holder, Instant, TopicPartition

#: The helper group of a group is named after it, with this suffix.
HELPER_SUFFIX = ".hand-over"
#: The interval at which a predecessor reads its note; nothing stalls meanwhile, because the predecessor goes on.
READ_EVERY_S = 1.0
#: The interval after the brokers refused the helper group: the right may be granted later.
READ_REFUSED_EVERY_S = 60.0
#: How long a released id is reserved for the successor. A successor describes the group every few milliseconds, so it
#: needs this time only if its process pauses or its connection is lost.
RESERVED_S = 3.0
#: How often a predecessor describes the group to find its successor; the successor itself does so more often.
DESCRIBE_EVERY_S = 0.25
#: How often a note without effect is written again: another successor may have replaced it, and may have ended.
REPEAT_NOTE_S = 5.0


class SuccessorState(Enum):
    """The state of a successor's request; the module's first table has the meanings."""

    IDLE = "IDLE"
    WARMING = "WARMING"
    RAISED = "RAISED"
    READING = "READING"
    WRITING = "WRITING"
    ANNOUNCED = "ANNOUNCED"
    REFUSED = "REFUSED"

    def __str__(self) -> str:
        """The bare name."""
        return self.value


class SuccessorTrigger(Enum):
    """The triggers of a successor's request; the value is the label in the diagram."""

    HOLDER_CHOSEN = "a holder with partitions is chosen"
    CALLBACK_RAISED = "on_warm raised"
    POLLED = "the application polls"
    WARMED = "on_warm has returned"
    HOLDER_FREE = "no other successor has asked this holder"
    HOLDER_TAKEN = "another successor has asked this holder"
    NOTE_WRITTEN = "the note is written"
    NOTE_OUTDATED = "the note has to be written again"
    HELPER_REFUSED = "the brokers refuse the helper group"
    ENDED = "the join has ended, or no holder is left"


class PredecessorState(Enum):
    """The state of a holder that may hand its id over; the module's second table has the meanings."""

    HOLDING = "HOLDING"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"

    def __str__(self) -> str:
        """The bare name."""
        return self.value


class PredecessorTrigger(Enum):
    """The triggers of a predecessor; the value is the label in the diagram."""

    REQUESTED = "a note names this member"
    RELEASED = "the place is released"
    CANCELED = "the application leaves"
    JOINED = "the coordinator lets the member in"


_S, _T = SuccessorState, SuccessorTrigger
_P, _PT = PredecessorState, PredecessorTrigger

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
    TransitionRule((_S.WARMING,), _T.WARMED, _S.READING, "on_warm comes before the note"),
    TransitionRule((_S.READING,), _T.HOLDER_FREE, _S.WRITING, "OffsetFetch of the helper group"),
    TransitionRule((_S.READING,), _T.HOLDER_TAKEN, _S.IDLE, "a pool: another holder is chosen"),
    TransitionRule((_S.WRITING,), _T.NOTE_WRITTEN, _S.ANNOUNCED, "OffsetCommit to the helper group"),
    TransitionRule((_S.ANNOUNCED,), _T.NOTE_OUTDATED, _S.WRITING, "its partitions changed, or it had no effect"),
    TransitionRule((_S.READING, _S.WRITING), _T.HELPER_REFUSED, _S.REFUSED, "the group needs READ"),
    TransitionRule(
        (_S.WARMING, _S.RAISED, _S.READING, _S.WRITING, _S.ANNOUNCED, _S.REFUSED), _T.ENDED, _S.IDLE, "the claim's join"
    ),
)
#: Every transition of a predecessor.
PREDECESSOR_TRANSITIONS: tuple[TransitionRule[PredecessorState], ...] = (
    TransitionRule((_P.HOLDING,), _PT.REQUESTED, _P.RELEASING, "OffsetFetch of the helper group"),
    TransitionRule((_P.RELEASING,), _PT.RELEASED, _P.RELEASED, "epoch -2, a fence, or a missed poll"),
    TransitionRule((_P.RELEASING, _P.RELEASED), _PT.CANCELED, _P.HOLDING, "the member leaves for its own reason"),
    TransitionRule((_P.RELEASED,), _PT.JOINED, _P.HOLDING, "no successor came, or another id was free"),
)

SUCCESSOR_TARGETS = transitions_by_trigger(SUCCESSOR_TRANSITIONS)
PREDECESSOR_TARGETS = transitions_by_trigger(PREDECESSOR_TRANSITIONS)


def note_partition(partitions: frozenset[TopicPartition]) -> TopicPartition | None:
    """Return the partition with the note for the owner of these partitions; None without partitions."""
    return min(partitions, default=None)


class Successor:
    """The request of one member to a holder; `begin` starts a join, `holders_described` handles a group description."""

    def __init__(self, event: EventContext, settings: MemberSettings, jitter: Jitter) -> None:
        self._event = event
        self._settings = settings
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
        #: The member ids of holders that another successor has asked, which may have ended since.
        self._asked_by_others: set[str] = set()
        #: The partition of the note to the holder.
        self._partition: TopicPartition | None = None
        self._awaited: int | None = None
        self._due_at: Instant = 0.0
        #: When the holder could read the first note; None: it was not asked yet.
        self._announced_at: Instant | None = None
        self._has_warned = False

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
    def expects_release_since(self) -> Instant | None:
        """Since when the holder may release its id at any moment; None: it was not asked, or its time is over."""
        limit_s = self._settings.drain_timeout_s + READ_EVERY_S
        since = self._announced_since
        return None if since is None or self._event.now >= since + limit_s else since

    @property
    def _announced_since(self) -> Instant | None:
        return self._announced_at if self.state in (_S.ANNOUNCED, _S.WRITING) else None

    def waits_for_release_since(self, since: Instant) -> Instant | None:
        """Since when the holder should have released its id; None: not yet. `since`: when the claim began to wait."""
        if not self.is_active:
            return since
        announced_at = self._announced_since
        return None if announced_at is None else max(since, announced_at + self._settings.drain_timeout_s)

    def next_deadline(self) -> Instant | None:
        """When the next request is due."""
        is_due = self.state in (_S.READING, _S.WRITING) and self._awaited is None
        return self._due_at if is_due or self.state is _S.ANNOUNCED else None

    # ---- the request ----

    def _fire(self, trigger: SuccessorTrigger) -> None:
        self._machine.fire(trigger)
        self._awaited = None
        self._due_at = self._event.now

    def begin(self, *, joined_as: str | None = None) -> None:
        """Forget the holder: a join begins, or has ended; `joined_as`: the instance id that the member has now.

        A note without effect is withdrawn, so that the holder keeps its place.
        """
        if self._announced_since is not None and joined_as != self.instance_id and self._partition is not None:
            self._event.emit(WriteNote(request_id=self._event.next_request_id(), partition=self._partition, note=None))
        self.holder = self.instance_id = self._partition = None
        self._first_holder = None
        self.is_warm = False
        self._replaced.clear()
        self._asked_by_others.clear()
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
        """This member holds the fixed id; the first one of a join may receive a request."""
        self._first_holder = self._first_holder or holder.member_id

    def _only_first(self, holders: Mapping[str, Holder]) -> Mapping[str, Holder]:
        """Return the holder of the fixed id if it is the first one of this join."""
        for holder in holders.values():
            self.holder_reported(holder)
        return {i: one for i, one in holders.items() if one.member_id == self._first_holder}

    def _choose(self, holders: Mapping[str, Holder]) -> None:
        present = {i: one for i, one in sorted(holders.items()) if is_present(one)}
        usable = [i for i, one in present.items() if one.partitions and one.member_id not in self._replaced]
        candidates = [i for i in usable if present[i].member_id not in self._asked_by_others] or usable
        if candidates:
            self.instance_id = candidates[int(self._jitter() * len(candidates))]
            self._warm(present[self.instance_id])
            return
        # A holder without partitions has no note, and the application need not prepare.
        self.is_warm |= bool(present) and not any(one.partitions for one in present.values())
        if self.state is not _S.IDLE:
            self._fire(_T.ENDED)

    def _warm(self, holder: Holder) -> None:
        self.holder, self._partition = holder, note_partition(holder.partitions)
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
        self.holder, partition = found, note_partition(found.partitions)
        if partition != self._partition:
            self._partition = partition
            if self.state is _S.ANNOUNCED:
                self._fire(_T.NOTE_OUTDATED)

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
        if self.state is _S.RAISED and self.holder is not None:
            self._attempt += 1
            self._fire(_T.POLLED)
            self._event.emit(WarmPartitions(attempt=self._attempt, partitions=self.holder.partitions))

    def send_due(self, own: str) -> None:
        """Send the due request; `own` is this member's id."""
        if self.holder is None or self.instance_id is None or self._partition is None or self._event.now < self._due_at:
            return
        if self.state is _S.ANNOUNCED:
            self._fire(_T.NOTE_OUTDATED)
        if self._awaited is not None or self.state not in (_S.READING, _S.WRITING):
            return
        self._awaited = request_id = self._event.next_request_id()
        if self.state is _S.READING:
            self._event.emit(ReadNotes(request_id=request_id, partitions=frozenset({self._partition})))
            return
        note = HandOverNote(predecessor=self.holder.member_id, successor=own, instance_id=self.instance_id)
        self._event.emit(WriteNote(request_id=request_id, partition=self._partition, note=note))

    # ---- responses ----

    def notes_read(self, event: NotesRead, own: str, *, is_pool: bool) -> None:
        """Continue with the holder's note, which shows whether another successor has asked this holder."""
        if event.request_id != self._awaited or self.state is not _S.READING or self.holder is None:
            return
        self._backoff.reset()
        asked = self.holder.member_id
        is_asked = any(note.predecessor == asked and note.successor != own for note in event.notes.values())
        if is_asked and is_pool and asked not in self._asked_by_others:
            self._asked_by_others.add(asked)
            self._fire(_T.HOLDER_TAKEN)
            self.holder = self.instance_id = self._partition = None
        else:
            self._fire(_T.HOLDER_FREE)

    def note_written(self, event: NoteWritten) -> None:
        """Wait for the holder, which can read the note now."""
        if event.request_id != self._awaited or self.state is not _S.WRITING:
            return
        self._backoff.reset()
        self._fire(_T.NOTE_WRITTEN)
        self._due_at = self._event.now + REPEAT_NOTE_S
        if self._announced_at is None:
            self._announced_at = self._event.now

    def not_done(self, event: NotesNotRead | NoteNotWritten, group_id: str) -> None:
        """Repeat a failed request, or wait as with `wait` if the brokers refuse the helper group."""
        if event.request_id != self._awaited:
            return
        if event.is_refused:
            self._fire(_T.HELPER_REFUSED)
            if not self._has_warned:
                self._has_warned = True
                self._event.emit(Warned(message=refusal(group_id, event.error)))
            return
        self._awaited = None
        self._due_at = self._event.now + self._backoff.next_delay()


class Predecessor:
    """A holder that may hand its id over, and the time after that in which the id is reserved for its successor."""

    def __init__(self, event: EventContext, settings: MemberSettings) -> None:
        self._event = event
        self._settings = settings
        self._machine = StateMachine("a predecessor", PREDECESSOR_TARGETS)
        #: The successor of the latest hand-over.
        self.successor: str | None = None
        #: The successors for which the id was released. If this member holds an id again, they did not join in time,
        #: and their notes, which stay in the helper group, have no effect any more.
        self._served: set[str] = set()
        self._released_at: Instant = 0.0
        self._read_at: Instant = 0.0
        #: The partition of its note, and the id that it is about.
        self._partition: TopicPartition | None = None
        self._released_id: str | None = None
        self._awaited: int | None = None
        self._has_warned = False

    # ---- questions ----

    @property
    def state(self) -> PredecessorState:
        """The state of the predecessor."""
        return self._machine.state

    @property
    def is_releasing(self) -> bool:
        """Whether the member releases its id for a successor."""
        return self.state is _P.RELEASING

    @property
    def has_released(self) -> bool:
        """Whether the member has released its id for a successor, and is not in the group."""
        return self.state is _P.RELEASED

    @property
    def waits_until(self) -> Instant:
        """Until when a released id is reserved for the successor."""
        return self._released_at + RESERVED_S

    def drops_released_id(self, instance_id: str | None) -> bool:
        """Return whether the next join takes this id instead of the released one; true once.

        The coordinator keeps the released id with its partitions under the member id. A join with the same member id
        and another instance id would replace that target, so no member would own the partitions.
        """
        if self.state is not _P.RELEASED or self._released_id in (None, instance_id):
            return False
        self._released_id = None
        return True

    def next_deadline(self) -> Instant | None:
        """When a member that holds partitions reads its note again."""
        return self._read_at if self.state is _P.HOLDING and self._awaited is None else None

    # ---- events ----

    def read_if_due(self, partitions: frozenset[TopicPartition]) -> None:
        """Read the note for the owner of these partitions, if that is due."""
        partition = note_partition(partitions)
        if self.state is not _P.HOLDING or self._awaited is not None or self._event.now < self._read_at:
            return
        self._read_at = self._event.now + READ_EVERY_S
        if partition is not None:
            self._awaited = self._event.next_request_id()
            self._event.emit(ReadNotes(request_id=self._awaited, partitions=frozenset({partition})))

    def notes_read(self, event: NotesRead, own: str, instance_id: str | None, *, may_release: bool) -> bool:
        """Return whether one of these notes begins a hand-over."""
        if event.request_id != self._awaited:
            return False
        self._awaited = None
        for partition, note in event.notes.items():
            is_for_this = note.predecessor == own and note.instance_id == instance_id
            if is_for_this and may_release and self.state is _P.HOLDING and note.successor not in {own, *self._served}:
                self.successor, self._partition, self._released_id = note.successor, partition, instance_id
                self._served.add(note.successor)
                self._machine.fire(_PT.REQUESTED)
                return True
        return False

    def notes_not_read(self, event: NotesNotRead, group_id: str) -> None:
        """Read the notes again at the usual interval, or rarely if the brokers refuse the helper group."""
        if event.request_id != self._awaited:
            return
        self._awaited = None
        if event.is_refused:
            self._read_at = self._event.now + READ_REFUSED_EVERY_S
            if not self._has_warned:
                self._has_warned = True
                self._event.emit(Warned(message=refusal(group_id, event.error)))

    def released(self) -> None:
        """Note that the member has left its group: the id is free, or will be at the end of the session."""
        if self.state is _P.RELEASING:
            self._released_at = self._event.now
            self._machine.fire(_PT.RELEASED)

    def released_again(self) -> None:
        """Note that the coordinator has released the id only now, because the leave was lost."""
        self._released_at = self._event.now

    def cancel(self) -> None:
        """End the hand-over: the application leaves, so the member does not join again."""
        if self.state is not _P.HOLDING:
            self._machine.fire(_PT.CANCELED)

    def joined(self, instance_id: str | None) -> None:
        """Note that the member is in its group again; if it has its released id again, withdraw the note."""
        if self.state is _P.RELEASED:
            if self._partition is not None and instance_id == self._released_id:
                self._event.emit(
                    WriteNote(request_id=self._event.next_request_id(), partition=self._partition, note=None)
                )
            self._machine.fire(_PT.JOINED)


def is_present(holder: Holder) -> bool:
    """Whether this member holds its id now."""
    return holder.member_epoch != LEAVE_STATIC_EPOCH


def refusal(group_id: str, error: BrokerError) -> str:
    """Return the warning for members that may not use the helper group."""
    return (
        f"The notes for hand-overs in group '{group_id}{HELPER_SUFFIX}' are refused ({error}); grant READ on it. "
        "Until then group.instance.id.conflict.policy=hand-over works like wait"
    )
