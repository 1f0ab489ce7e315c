"""The interface between a consumer's application threads and its membership thread.

Each consumer has one `Line`. All data on it is immutable or copied, so neither side needs a lock of the other side, and
neither side imports the other.

| what | sent by | method | guarantee |
|---|---|---|---|
| events | application | `post`, `send` | received in order; they wait until the thread is started |
| a question | application | `ask` | received in order with the events; answered, failed, or canceled when the thread
ends |
| the view | network | `show` | numbered; an application that has an effect sees its view or a later one |
| effects | network | `show`, with a view | received in order; the application sees all effects of one call or none |
| the wake-up | both | `wake_up.set` | the next `poll` reads all of this before it returns a record |

No method blocks: a post rings the thread (`Receiver.ring`), an effect rings the application (`listen`). All other
requests of the application to the thread (figures, recordings, its end) go to the thread's handle
(`membership_thread.MembershipThread`).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import field
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from consumer_membership.errors import GroupError, TransportError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.membership.events import Event
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.clock import SYSTEM_CLOCK, Clock
from consumer_membership.types import BrokerAddress, CommittedOffsets, TopicPartition

# ---- from the application -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsetsQuestion:
    """Request the group's committed offsets of these partitions; the core is not involved.

    `answer` fails with `RefusedError`, or with `UnansweredError` after `timeout_s`. Cancel it to end the request.
    """

    partitions: frozenset[TopicPartition]
    timeout_s: float
    answer: Future[CommittedOffsets] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsets:
    """End offsets of partitions whose leaders answered: `high` of the log, `stable` for read_committed consumers."""

    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    stable: Mapping[TopicPartition, int] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, BrokerAddress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetsQuestion:
    """Request the end offsets of these partitions from their leaders; `answer` fails with a `MembershipError`."""

    partitions: frozenset[TopicPartition]
    answer: Future[EndOffsets] = field(default_factory=Future)


#: A shorter suspension is not counted: the two clocks are not read at the same moment.
LEAST_SUSPENSION_S = 0.05

ApplicationQuestion: TypeAlias = CommittedOffsetsQuestion | EndOffsetsQuestion
Post: TypeAlias = Event | ApplicationQuestion


class RefusedError(GroupError):
    """A broker refused the application's request; `code` is the error code of Kafka."""


class UnansweredError(TransportError):
    """No broker answered the application's request in time; the message has the cause, as far as it is known."""


# ---- from the network -----------------------------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """The member's latest view, the number of views before it, and when the lease in it ends, by the lease's clock."""

    version: int
    view: MembershipView
    lease_ends_at: float = inf


# ---- the two ends ---------------------------------------------------------------------------------------------------


class Receiver(Protocol):
    """The network's end of the line; each method may be called from any thread and returns at once."""

    def start(self) -> None:
        """Start the thread if it does not run; nothing connects before a post needs it."""

    def ring(self) -> None:
        """If the thread runs, make it take the posts."""


class WakeUp:
    """Sends each `poll` through the slow path of the session, as long as a reason exists.

    The hot path reads only `is_set`, which therefore obeys one rule: **when a call returns, in any thread, `is_set` is
    true if an order waits or delivery has to stop.**

    | reason (`add_reason`) | owner | set by |
    |---|---|---|
    | an order is on the line | `Line` | `show` |
    | an order waits in the queue | `OrderQueue` | `add`; an order that was on the line keeps it set |
    | an error waits for `poll` | `Notices` | the order that it came with keeps it set |
    | a report waits for its callback | `Reports` | `Reports.note` |
    | the consumer closes | `Lifetime` | `Lifetime.end` |
    | the lease is over | `Polling` | `LeaseWatch`, and each `poll` that finds the lease over |

    The owner of a reason first makes it true and then calls `set`. Only `review` clears `is_set`, and only
    `OrderQueue.sort` calls it. Without a reason, `set` sends one `poll` through the slow path: a subscription that the
    next poll announces, a cancelled `AIOConsumer.poll`, a forked child.
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
        """Send the next `poll` through the slow path."""
        self._last_set = object()
        self.is_set = True

    def review(self) -> None:
        """Send each `poll` through the slow path if there is a reason to; if not, let it take the hot path.

        An interrupt in this method leaves this set, because the interpreter runs signal handlers only at calls and at
        jumps back. After the reasons were read, a `set` by another thread or by a signal handler wins, also between any
        two instructions: without a GIL, another thread may run between the comparison and the assignment. There is no
        lock, because a forked child would inherit it locked.
        """
        last_set = self._last_set
        if any(is_true() for is_true in self._reasons):
            self.is_set = True
        elif self._last_set is last_set:
            self.is_set = False
            if self._last_set is not last_set:
                self.is_set = True


class HotPathGate(Protocol):
    """The flag that the hot path of `poll` reads for each record."""

    @property
    def is_set(self) -> bool:
        """Whether this `poll` has to take the slow path."""


class LeaseGate:
    """The wake-up of a consumer with `ownership.lease.enable`: the hot path also checks the lease, for each record.

    Without `ownership.lease.enable`, the lease is checked when the buffer is filled again: after a suspension, one
    batch may be returned.
    """

    __slots__ = ("_clock", "_line", "_wake_up")

    def __init__(self, line: Line) -> None:
        self._clock = line.clock
        self._line = line
        self._wake_up = line.wake_up

    @property
    def is_set(self) -> bool:
        """Whether the wake-up is set, or the lease is over."""
        return self._wake_up.is_set or self._clock() >= self._line.snapshot.lease_ends_at


class Line:
    """The line of one consumer."""

    def __init__(self, clock: Callable[[], float] | None = None, time: Clock = SYSTEM_CLOCK) -> None:
        #: The time of the consumer.
        self.time = time
        #: The present time, for timeouts and for the member.
        self.now = time.now
        #: Waits for a condition on that time.
        self.wait = time.wait
        #: The clock of the lease.
        self.clock = clock or time.session_time
        #: How far `clock` is ahead of `now`, without suspensions that the member has not counted yet.
        self._ahead_s = self.clock() - self.now()
        self.wake_up = WakeUp()
        #: The member's latest view; `connect` shows the first one.
        self.snapshot: Snapshot
        #: Whether the application sent an event that requires a connection.
        self.has_sent = False
        self._receiver: Receiver
        # Re-entrant: a signal handler may interrupt its own thread while that holds the lock.
        self._lock = threading.RLock()
        self._posts: deque[Post] = deque()
        self._is_closed = False
        self._versions = itertools.count()
        self._orders: deque[ApplicationEffect] = deque()
        self.wake_up.add_reason(lambda: self.has_orders)
        self._on_order: Callable[[], None] = lambda: None
        self._on_lease: Callable[[float], None] = lambda _: None

    # ---- the application's end ----

    def listen(self, on_order: Callable[[], None]) -> None:
        """Call this after each effect, on the membership thread."""
        self._on_order = on_order

    def follow_lease(self, on_lease: Callable[[float], None]) -> None:
        """Call this with the end of the lease, by the lease's clock, after each view; infinity: there is no lease."""
        self._on_lease = on_lease

    @property
    def view(self) -> MembershipView:
        """The member's latest view."""
        return self.snapshot.view

    @property
    def lease_is_over(self) -> bool:
        """Whether another member may own the partitions by now, so that their records are withheld.

        This is the view's `lease_until`, by a clock that also runs while the machine is suspended.
        """
        return self.clock() >= self.snapshot.lease_ends_at

    def lease_until(self) -> float | None:
        """Return until when the partitions are certainly owned, by `now` without suspensions; None: no lease exists."""
        ends_at = self.snapshot.lease_ends_at
        return None if ends_at == inf else self.now() + ends_at - self.clock()

    def post(self, *events: Event) -> None:
        """Post these events to the member; they wait until the thread is started."""
        self._post(events)

    def send(self, *events: Event) -> None:
        """Post these events, which require a connection: the thread is started."""
        if not self.has_sent:
            self._receiver.start()
            self.has_sent = True
        self._post(events)

    def ask(self, question: ApplicationQuestion) -> None:
        """Send this question, and start the thread.

        The thread's end cancels the answer, whether the thread ends later or has ended already.
        """
        self._receiver.start()
        if not self._post((question,)):
            question.answer.cancel()

    def move_orders(self, target: deque[ApplicationEffect]) -> None:
        """Move all effects for the application there, in order; the wake-up stays set.

        One C call moves them, so that an interrupt loses none.
        """
        with self._lock:
            target.extend(map(deque.popleft, itertools.repeat(self._orders, len(self._orders))))

    @property
    def has_orders(self) -> bool:
        """Whether `move_orders` has something to move."""
        return bool(self._orders)

    def _post(self, posts: tuple[Post, ...]) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            self._posts.extend(posts)
        self._receiver.ring()
        return True

    # ---- the network's end ----

    def connect(self, receiver: Receiver, view: MembershipView) -> None:
        """Connect the network's end, for the line's whole life, and show the member's first view."""
        self._receiver = receiver
        self.show(view)

    def take_posts(self) -> tuple[Post, ...]:
        """Take everything that the application posted, in order."""
        with self._lock:
            posts = tuple(self._posts)
            self._posts.clear()
        return posts

    def show(self, view: MembershipView, *orders: ApplicationEffect) -> None:
        """Show the member's new view and order these effects of the application.

        A thread that sees the view and then reads the effects finds these; a thread that has them sees the view.
        """
        with self._lock:
            self._orders.extend(orders)
            if orders:
                self.wake_up.set()
            ends_at = inf if view.lease_until is None else view.lease_until + self._ahead_s
            self.snapshot = Snapshot(next(self._versions), view, ends_at)
            self._on_lease(ends_at)
        if orders:
            self._on_order()

    def count_suspension(self) -> float:
        """Return how long the machine was suspended since the last call, in seconds, for the member to count it."""
        suspended_s = self.clock() - self.now() - self._ahead_s
        if suspended_s < LEAST_SUSPENSION_S:
            return 0.0
        self._ahead_s += suspended_s
        return suspended_s

    def close(self) -> None:
        """Take no more posts, because the thread ends; cancel the questions that wait for an answer."""
        with self._lock:
            self._is_closed = True
        for post in self.take_posts():
            if isinstance(post, CommittedOffsetsQuestion | EndOffsetsQuestion):
                post.answer.cancel()
