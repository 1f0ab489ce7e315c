"""All that crosses between a consumer's application threads and its membership thread.

There is one `Line` for each consumer. What crosses is immutable or copied, so that neither side needs a lock of the
other's, and neither side imports the other.

| what | given by | with | guarantee |
|---|---|---|---|
| events | application | `post`, `send` | taken in their order; they wait until the thread is started |
| credentials | application | `set_credentials` | likewise; good for each authentication after them |
| a question | application | `ask_committed`, `ask_ends` | likewise; answered, failed, or cancelled at the end |
| progress | application | `progress` | two growing counts that the network reads when it likes, without a lock |
| the end of a calm | application | `rouse` | the network, which reads those seldom while `is_calm`, reads them soon |
| orders | network | `order`, `show` | taken in their order; those of one call are seen all or none |
| the view | network | `show` | a version each time; whoever has an order sees the view that it came with, or a later |
| metrics | application | `measure` | made when the network pushes them, on its thread; waits for nothing |
| figures | network | `figures` | copied for statistics when the application asks |
| what happened | network | `happened` | shown to whoever watches, after each event of the member, in their order |
| a recording | network | `dump` | written by the thread that asks; the member's goes on |
| the wake-up | either side | `wake_up.set` | the next `poll` looks at all of this before it hands out a record |

Nothing blocks: a post rings the thread (`MembershipThread.ring`), an order rings whoever waits for one (`listen`).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from consumer_membership.errors import GroupError, TransportError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.membership.events import Event
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import CommittedOffsets, TopicPartition

if TYPE_CHECKING:  # it imports more than a consumer needs
    from os import PathLike
    from pathlib import Path

    from consumer_membership.runtime.membership_thread import MemberFigures, MembershipThread
    from consumer_membership.wire.otlp import Point

# ---- what the application gives -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsetsQuestion:
    """A question in which the core has no part: what the group has committed of these partitions.

    `answer` fails with `RefusedError` or `UnansweredError`, the latter after `timeout_s`; to cancel it ends the
    question.
    """

    partitions: frozenset[TopicPartition]
    timeout_s: float
    answer: Future[CommittedOffsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsets:
    """Where partitions end, as far as their leaders said: all of the log, and what readers of committed records get."""

    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    stable: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetsQuestion:
    """Another question beside the core: where these partitions end; fails with a `MembershipError`."""

    partitions: frozenset[TopicPartition]
    answer: Future[EndOffsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsChanged:
    """Later authentications are to say this; connections that stand are left as they are."""

    username: str
    password: str = field(repr=False)


Post: TypeAlias = Event | CommittedOffsetsQuestion | EndOffsetsQuestion | CredentialsChanged


class RefusedError(GroupError):
    """A broker refused what the application asked; `code` is Kafka's."""


class UnansweredError(TransportError):
    """Nobody answered what the application asked within its time; the text says why, as far as that is known."""


# ---- what the network gives -----------------------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """The member's latest view, and how many there were before it."""

    version: int
    view: MembershipView


# ---- the two ends ---------------------------------------------------------------------------------------------------

#: Is shown what the member ordered, and how it is then, on the membership thread: quick, and raises nothing.
Watcher: TypeAlias = Callable[[tuple[GroupEffect, ...], MembershipView], None]


class WakeUp:
    """Sends each `poll` the long way, through the session, as long as there is a reason to.

    The hot path reads nothing but `is_set`, which therefore obeys one law: **when a call returns, in any thread,
    `is_set` is true if an order waits or delivery has to stop.**

    | reason (`add_reason`) | owner | set by |
    |---|---|---|
    | an order is on the line | `Line` | `order`, `show` |
    | an order waits in the queue | `OrderQueue` | `add`; an order that was on the line keeps it set |
    | an error waits for `poll` | `Session` | the order that it came with keeps it set |
    | a report waits for its callback | `Session` | `Reports.note` |
    | the consumer closes | `Session` | `Lifetime.end` |
    | the lease is over | `Session` | `LeaseWatch`, and each `poll` that finds the lease over |

    The owner of a reason first makes it true and then calls `set`. Only `review` clears `is_set`, and only
    `OrderQueue.sort` calls it. Without a reason, `set` sends one `poll` the long way: a subscription that the next poll
    announces, a cancelled `AIOConsumer.poll`, a forked child.
    """

    __slots__ = ("_last_set", "_reasons", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._reasons: tuple[Callable[[], bool], ...] = ()
        self._last_set = object()

    def add_reason(self, is_true: Callable[[], bool]) -> None:
        """Keep this set while `is_true()`, which is quick, takes no lock and does not raise."""
        self._reasons += (is_true,)

    def set(self) -> None:
        """Send the next `poll` the long way."""
        self._last_set = object()
        self.is_set = True

    def review(self) -> None:
        """Send each `poll` the long way if there is a reason to; if not, let it take the hot path.

        An interrupt in here leaves this set. After the reasons were read, a `set` by another thread or by a signal
        handler wins: the interpreter switches threads and runs handlers only at calls and at jumps back, so not between
        the comparison and the assignment. There is no lock, because a forked child would inherit it locked.
        """
        last_set = self._last_set
        if any(is_true() for is_true in self._reasons):
            self.is_set = True
        elif self._last_set is last_set:
            self.is_set = False


class Line:
    """The line of one consumer.

    `progress` is called on the membership thread: signs that the application polls, and records handed to it.
    """

    def __init__(self, progress: Callable[[], tuple[int, int]]) -> None:
        self.progress = progress
        self.wake_up = WakeUp()
        #: The latest view; the network shows one before anybody reads it.
        self.snapshot: Snapshot
        #: Whether the application sent something that is worth connecting for.
        self.has_sent = False
        #: Whether the network reads `progress` seldom, since nothing has come for a while: a plain attribute, its own.
        self.is_calm = False
        self._thread: MembershipThread
        # Re-entrant: a signal handler may interrupt its own thread in here.
        self._lock = threading.RLock()
        self._posts: deque[Post] = deque()
        self._is_hung_up = False
        self._versions = itertools.count()
        self._orders: deque[ApplicationEffect] = deque()
        self.wake_up.add_reason(lambda: self.has_orders)
        self._on_order: Callable[[], None] = lambda: None
        self._watcher: Watcher | None = None
        #: What is counted of the consumer, for brokers (KIP-714); the application puts its own here.
        self.measure: Callable[[], tuple[Point, ...]] = tuple

    # ---- the application's end ----

    def connect(self, thread: MembershipThread) -> None:
        """Have this thread at the other end, for the line's whole life."""
        self._thread = thread

    def listen(self, on_order: Callable[[], None]) -> None:
        """Have this called after each order, on the membership thread."""
        self._on_order = on_order

    def watch(self, watcher: Watcher) -> None:
        """Have this shown what happens from now on, before it is ordered of the application."""
        self._watcher = watcher

    @property
    def view(self) -> MembershipView:
        """The member's latest view."""
        return self.snapshot.view

    def post(self, *events: Event) -> None:
        """Give the member these events; they wait until the thread is started."""
        self._post(events)

    def send(self, *events: Event) -> None:
        """Give the member these events, which are worth connecting for: the thread is started."""
        if not self.has_sent:
            self._thread.start()
            self.has_sent = True
        self._post(events)

    def ask_committed(self, partitions: frozenset[TopicPartition], timeout_s: float) -> Future[CommittedOffsets]:
        """Ask what the group has committed of these partitions; starts the thread (`CommittedOffsetsQuestion`).

        The answer is cancelled where the thread ends first, or has ended.
        """
        asked = CommittedOffsetsQuestion(partitions=partitions, timeout_s=timeout_s, answer=Future())
        self._thread.start()
        if not self._post((asked,)):
            asked.answer.cancel()
        return asked.answer

    def ask_ends(self, partitions: frozenset[TopicPartition]) -> Future[EndOffsets]:
        """Ask the leaders of these partitions where they end; likewise."""
        asked = EndOffsetsQuestion(partitions=partitions, answer=Future())
        self._thread.start()
        if not self._post((asked,)):
            asked.answer.cancel()
        return asked.answer

    def set_credentials(self, username: str, password: str) -> None:
        """Have later authentications say this."""
        self._post((CredentialsChanged(username=username, password=password),))

    def rouse(self) -> None:
        """Have the network look at `progress` soon: records come again."""
        self._thread.ring()

    def move_orders(self, target: deque[ApplicationEffect]) -> None:
        """Move everything that is ordered of the application there, in order; the wake-up stays set.

        One C call moves them, so that an interrupt loses none.
        """
        with self._lock:
            target.extend(map(deque.popleft, itertools.repeat(self._orders, len(self._orders))))

    @property
    def has_orders(self) -> bool:
        """Whether `move_orders` has something to move."""
        return bool(self._orders)

    def figures(self) -> MemberFigures:
        """What statistics tell beside the view, as it is now."""
        return self._thread.figures()

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write a file with what is recorded of the member, in whichever thread this is called."""
        return self._thread.dump(cause, path)

    def dump_by_itself(self, kind: str, cause: str) -> None:
        """Have one written where something is the matter, if that is wanted."""
        self._thread.dump_by_itself(kind, cause)

    def stop(self, timeout_s: float) -> None:
        """End the thread; what the member had not said yet stays unsaid."""
        self._thread.stop(timeout_s)

    def _post(self, posts: tuple[Post, ...]) -> bool:
        with self._lock:
            if self._is_hung_up:
                return False
            self._posts.extend(posts)
        self._thread.ring()
        return True

    # ---- the network's end ----

    def take_posts(self) -> tuple[Post, ...]:
        """Everything that the application posted, in order."""
        with self._lock:
            posts = tuple(self._posts)
            self._posts.clear()
        return posts

    def order(self, *orders: ApplicationEffect) -> None:
        """Order this of the application."""
        with self._lock:
            self._orders.extend(orders)
            self.wake_up.set()
        self._on_order()

    def show(self, view: MembershipView, *orders: ApplicationEffect) -> None:
        """Show the member as it is now, and order with it what the application must not learn without this view.

        Whoever sees the view and looks for orders then finds these; whoever has them sees the view.
        """
        with self._lock:
            self._orders.extend(orders)
            if orders:
                self.wake_up.set()
            self.snapshot = Snapshot(next(self._versions), view)
        if orders:
            self._on_order()

    def happened(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Show whoever watches what an event of the member led to."""
        if self._watcher is not None:
            self._watcher(effects, view)

    def hang_up(self) -> None:
        """Take no post any more: the thread ends; whoever waits for an answer learns so."""
        with self._lock:
            self._is_hung_up = True
        for post in self.take_posts():
            if isinstance(post, CommittedOffsetsQuestion | EndOffsetsQuestion):
                post.answer.cancel()
