"""`Consumer`: the drop-in for `confluent_kafka.Consumer`, whose group membership is this package's own.

Same configuration, methods, callbacks, return types and exceptions as confluent-kafka 2.16; where it differs on
purpose, the method says so. Beside the drop-in's surface: `membership()`, `generation()`, `owned_since()`,
`begin_commit()`, `health()`, `metrics()`, `on_event()` and `dump()`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from math import inf
from operator import index
from os import PathLike
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeAlias, overload

from confluent_kafka import Message, TopicPartition, version

from consumer_membership.clients import arguments
from consumer_membership.clients.arguments import NOT_GIVEN
from consumer_membership.clients.exceptions import PicklingError, raises_as_confluent
from consumer_membership.clients.group_metadata import check_layout, pack_group_metadata
from consumer_membership.clients.outcomes import (
    PendingCommit,
    asked_offsets,
    call_on_commit,
    domain_offsets,
    with_committed,
)
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.environment import naming_variables
from consumer_membership.health.verdict import Health
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.runtime.application.observer import ConsumerObserver
from consumer_membership.runtime.application.partition_offsets import key_of
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.application.session import Session
from consumer_membership.runtime.membership_thread import ThreadFactory
from consumer_membership.runtime.network.member_thread import member_thread
from consumer_membership.types import JOIN_EPOCH, NO_EPOCH
from consumer_membership.version import __version__

if TYPE_CHECKING:  # importing confluent_kafka.admin takes time, and its users import it themselves
    from confluent_kafka.admin._metadata import ClusterMetadata
if TYPE_CHECKING:  # it imports more than a consumer needs
    from pathlib import Path

    from consumer_membership.runtime.application.lifecycle_events import (
        EventCallback,
        EventRegistration,
        LifecycleEvents,
    )

#: What becomes of a member's place in its group.
Membership: TypeAlias = Literal["default", "leave", "remain"]
RebalanceCallback: TypeAlias = Callable[["Consumer", list[TopicPartition]], object]


class Consumer(LibrdkafkaConsumer):
    """A member of a consumer group that fetches; construct it as `confluent_kafka.Consumer`.

    It is one, too, for `isinstance` and for classes that are made of both; nothing of the C type is used: its part is
    never initialised, and each of its methods is replaced.

    Args:
        *args: one dict of librdkafka's configuration keys; environment variables `CONSUMER_MEMBERSHIP_...` fill in
            what it leaves out.
        **kwargs: further keys, which win over the dict; `logger=` takes librdkafka's log lines.

    Raises:
        ConfigurationError: something cannot work; the text names key, value and remedy. It is a `KafkaException` too
            (for group.id a ValueError, for callbacks a TypeError or ValueError, as in confluent-kafka).
    """

    # An instance of a C type has no place for attributes of its own beside its dict, where each look-up would cost a
    # record 20 ns more.
    __slots__ = ("__dict__", "__weakref__", "_is_layout_checked", "_ready", "_session", "_wake_up")

    _session: Session | None
    _observer: ConsumerObserver
    _events: LifecycleEvents

    def __new__(cls, *args: object, **kwargs: object) -> Self:  # noqa: ARG004
        """Make one that is closed: a subclass may forget to call `__init__`, and confluent-kafka's words are for it."""
        made = super().__new__(cls)
        made._session = None
        return made

    @raises_as_confluent
    def __init__(self, *args: object, **kwargs: object) -> None:
        self._open(args, kwargs, member_thread)

    def _open(self, args: tuple[object, ...], kwargs: Mapping[str, object], make_thread: ThreadFactory) -> None:
        """Make the session; tests give another member's thread."""
        if self._session is not None:
            raise RuntimeError("Consumer already initialized")
        given = arguments.sort_arguments(args, kwargs)
        on_commit = given.on_commit
        config = ConsumerConfig.from_mapping(given.config)
        with naming_variables(given.config):  # of what only librdkafka judges
            observer = ConsumerObserver(config, given.callbacks.stats_cb)
            session = Session(
                config,
                callbacks=given.callbacks,
                on_commit=None if on_commit is None else lambda completed: call_on_commit(on_commit, completed),
                make_thread=make_thread,
                observer=observer,
            )
            observer.observe(session)
        self._session, self._observer = session, observer
        # What the hot path of `poll` reads, and nothing else.
        self._wake_up = session.line.wake_up
        self._ready = session.buffer.ready
        self._is_layout_checked = False

    def _use(self, words: str = "Consumer closed") -> Session:
        """The session, for a call that needs one."""
        if self._session is None:
            raise RuntimeError(words)
        return self._session

    def _use_observer(self) -> ConsumerObserver:
        self._use()
        return self._observer

    # ---- polling ----

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record or error, or None when `timeout` seconds are over (negative: wait for ever).

        Rebalance callbacks, commits' callbacks and librdkafka's run in here; what they raise comes out of here.

        An error that ends the membership comes with the broker's code and `fatal()`, here and from `consume`: at once,
        and then at most once a second for as long as it lasts (confluent-kafka says it once, and its code is `_FATAL`).
        """
        try:
            # Without a lock: `~` is one step of the interpreter, also for signal handlers, and whoever has something to
            # say sets the wake-up. This is all that a record costs above librdkafka's batch.
            if not self._wake_up.is_set:
                return ~self._ready
        except (IndexError, AttributeError):
            pass
        deadline: float | None = None
        while True:
            source, _, deadline = self._prepare(1, timeout, deadline)
            if source is None:
                return None
            try:
                return ~source
            except IndexError:  # another thread was quicker
                pass

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Gather records and errors until there are `num_messages` or `timeout` seconds are over.

        Unlike confluent-kafka 2.16 it is interruptible by Ctrl-C, and nothing that was gathered is lost when a callback
        or a signal handler raises: the next call has it.
        """
        whole: HandOutQueue[list[Message]] = HandOutQueue()
        batch: list[Message] = []
        deadline: float | None = None
        try:
            while True:
                source, limit, deadline = self._prepare(num_messages, timeout, deadline, whole)
                if whole:
                    try:
                        return ~whole
                    except IndexError:  # another thread moved it on
                        continue
                if source is None:
                    return batch
                self._use().hand_out(source, limit, batch)
                if batch or not limit:
                    return batch
        except BaseException:
            if self._session is not None:
                self._session.buffer.give_back(batch)
            raise

    @raises_as_confluent
    def _prepare(
        self,
        num_messages: object,
        timeout: object,
        deadline: float | None,
        whole: HandOutQueue[list[Message]] | None = None,
    ) -> tuple[HandOutQueue[Message] | None, int, float]:
        """Poll until there is something to hand out: from where, how many at most, and when the call ends."""
        session = self._use()
        limit, left = arguments.limit_and_seconds(num_messages, timeout)
        until = deadline if deadline is not None else inf if left < 0 else monotonic() + left
        return session.prepare(limit, until, whole=whole), limit, until

    # ---- the group ----

    @raises_as_confluent
    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]  # None is refused, as there
        on_revoke: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]
        on_lost: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]
    ) -> None:
        """Ask for these topics; elements that begin with `^` are patterns, as librdkafka reads them.

        They are POSIX extended regular expressions and need not reach the end of a name: `^orders-` is all that begins
        so. What only RE2/J reads (`(?...)`) goes to the broker, which matches whole names. With group.protocol=consumer
        all patterns are RE2/J and go there as they are written, as librdkafka's do: `^orders-` is then a name.
        Replaces an earlier subscription and its callbacks: of topics that are named no more nothing comes from now on,
        whenever the group takes their partitions. Callbacks get this consumer and the partitions in question,
        on the thread that polls or closes; `on_revoke` stands in where there is no `on_lost`. Unless the configuration
        asks for differences, a change revokes everything and assigns the whole, as with confluent-kafka
        (`rebalance.callbacks`).
        """
        session = self._use()
        listener = arguments.listener_of(self, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        session.subscribe(arguments.subscription_of(topics, session.subscription_settings), listener)

    @raises_as_confluent
    def unsubscribe(self, *, membership: Membership = "default") -> None:
        """Leave the group, as `close` does: nothing more comes of what was subscribed.

        The revocation callback is served by the next polls, or by close.
        """
        self._use().unsubscribe(arguments.leave_option(membership))

    @raises_as_confluent
    def close(self, *, membership: Membership = "default") -> None:
        """Commit (if that is automatic), call on_revoke, leave the group, let everything go; a second close is nothing.

        `membership` says what becomes of the place in the group (KIP-1092): "leave" gives it up for good, so that the
        others have the partitions at once; "remain" keeps it until the session ends, for whoever comes with the same
        group.instance.id; "default" is "leave" for a dynamic member and "remain" for a static one.

        Inside a callback, or in a signal handler that interrupts a poll of its own thread, it takes place when that
        call ends. What callbacks raise during it is raised at its end.
        """
        option = arguments.leave_option(membership)
        if self._session is not None:
            self._session.close(option)

    # ---- assignment ----

    @raises_as_confluent
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch exactly these, without the group; inside on_assign: take these of the arriving partitions.

        Inside on_assign confluent-kafka refuses it under the consumer protocol; here programs that were written for
        the eager protocol go on working.
        """
        self._use().partitions.assign(arguments.partition_list(partitions))

    @raises_as_confluent
    def unassign(self) -> None:
        """Fetch nothing; inside on_revoke and on_lost: give up the partitions that these are about."""
        self._use().partitions.unassign()

    @raises_as_confluent
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these as well."""
        self._use().partitions.incremental_assign(arguments.partition_list(partitions))

    @raises_as_confluent
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these; a partition that is named twice is refused (librdkafka would end the process)."""
        self._use().partitions.incremental_unassign(arguments.partition_list(partitions))

    @raises_as_confluent
    def assignment(self) -> list[TopicPartition]:
        """What is assigned; `.offset` is -1000, or the offset that the application assigned it with."""
        return self._use().partitions.assignment()

    @raises_as_confluent
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hold back these until they are resumed or revoked; nothing of them is lost."""
        self._use().partitions.pause(arguments.partition_list(partitions))

    @raises_as_confluent
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Let these go on."""
        self._use().partitions.resume(arguments.partition_list(partitions))

    @raises_as_confluent
    def seek(self, partition: TopicPartition) -> None:
        """Go on from this offset of an assigned partition."""
        self._use().partitions.seek(arguments.one_partition(partition))

    @raises_as_confluent
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last delivered record of each; -1001 where none was since it was assigned or sought."""
        return self._use().partitions.position(arguments.partition_list(partitions))

    # ---- offsets ----

    @raises_as_confluent
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Say what is consumed, for the commits to come (`enable.auto.offset.store=false`)."""
        session = self._use()
        given = arguments.message_or_offsets(message, offsets, "store")
        if given is None:
            raise ValueError("expected either message or offsets")
        session.commits.store(given)

    @overload  # type: ignore[override]  # what it is called with there it is here, and by position
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: Literal[True] = True,  # noqa: FBT002
    ) -> None: ...
    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        *,
        asynchronous: Literal[False],
    ) -> list[TopicPartition]: ...
    @overload
    def commit(
        self, message: Message | None, offsets: list[TopicPartition] | None, asynchronous: Literal[False]
    ) -> list[TopicPartition]: ...
    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: object = True,  # noqa: FBT002
        **alias: object,
    ) -> list[TopicPartition] | None: ...

    @raises_as_confluent
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: object = True,  # noqa: FBT002 - confluent-kafka's signature
        **alias: object,
    ) -> list[TopicPartition] | None:
        """Commit the offset after `message`, these `offsets`, or what is consumed and not committed yet.

        `asynchronous` (or its older name `async`): returns None at once, the outcome goes to `on_commit`; otherwise
        the partitions with their errors. A synchronous commit needs no poll by another thread, and works inside
        callbacks.

        Raises:
            CommitError: (a `KafkaException`) it failed for every partition, or there is nothing to commit.
        """
        is_awaited = not alias.pop("async", asynchronous)
        for name in alias:
            raise TypeError(f"{name!r} is an invalid keyword argument for this function")
        session = self._use()
        given = arguments.message_or_offsets(message, offsets, "commit")
        if is_awaited:
            return self.begin_commit(given).result()
        session.commit(domain_offsets(given))
        return None

    @raises_as_confluent
    def begin_commit(self, offsets: list[TopicPartition] | None = None) -> PendingCommit:
        """Commit these `offsets`, or what is consumed; `result()` of what is returned waits for the answer.

        For who has something else to do until then: unlike `commit(asynchronous=True)` no poll and no `on_commit` is
        needed to learn what became of it.

        Raises:
            CommitError: as `commit`; what the coordinator refuses comes out of `result()`.
        """
        session = self._use()
        given = None if offsets is None else arguments.offset_list(offsets)
        commit_id, wanted = session.begin_commit(domain_offsets(given))
        assigned = session.partitions.assignment() if given is None else []
        return PendingCommit(session.commits, commit_id, asked_offsets(given, assigned, wanted))

    @raises_as_confluent
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The group's committed offsets of these partitions (-1001: none), as its coordinator tells this member."""
        given, left = arguments.partition_list(partitions), arguments.seconds(timeout)
        return with_committed(self._use().commits.committed(given, left), given)

    @raises_as_confluent
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The first offsets at or after the timestamps that stand in `.offset`."""
        given, left = arguments.partition_list(partitions), arguments.seconds(timeout)
        return self._use().partitions.ask(lambda handle, s: handle.offsets_for_times(given, s), left)

    @raises_as_confluent
    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition; `cached`: as far as they are known already."""
        given, left = arguments.one_partition(partition), arguments.seconds(timeout)
        if index(cached):
            return self._use().partitions.ask(lambda handle, _: handle.get_watermark_offsets(given, cached=True), 0)
        return self._use().partitions.ask(lambda handle, s: handle.get_watermark_offsets(given, s), left)

    # ---- the cluster ----

    @raises_as_confluent
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's metadata."""
        left = arguments.seconds(timeout)

        name = None if topic is None else arguments.sendable("topic", topic)

        def ask(handle: LibrdkafkaConsumer, seconds: float) -> ClusterMetadata:
            found: ClusterMetadata = (
                handle.list_topics(timeout=seconds) if name is None else handle.list_topics(name, seconds)
            )
            return found

        return self._use_handle().partitions.ask(ask, left)

    @raises_as_confluent
    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        return self._use_handle().partitions.ask(lambda handle, s: handle.cluster_id(s), arguments.seconds(timeout))

    @raises_as_confluent
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials with which connections to come authenticate, and sessions are renewed (KIP-368)."""
        session = self._use_handle()
        user = arguments.sendable("username", username)
        session.set_credentials(user, arguments.sendable("password", password, is_secret=True))

    def _use_handle(self) -> Session:
        words = "Handle has been closed"
        session = self._use(words)
        if session.life.is_ours and session.life.is_closed:
            raise RuntimeError(words)
        return session

    # ---- the member ----

    @raises_as_confluent
    def memberid(self) -> str | None:  # type: ignore[override]  # confluent-kafka has none, either, before it joins
        """The member id: with `group.protocol=consumer` 22 characters that this client made (KIP-1082), for good.

        A classic member gets it from the broker when it joins, and has none (None) before and after. With
        `group.protocol=auto` there is none, either, before the group has let the member in.
        """
        return self._in_use().member_id

    @raises_as_confluent
    def consumer_group_metadata(self) -> bytes:
        """What `Producer.send_offsets_to_transaction` wants; fetch it right before use, the epoch in it moves.

        Out of its group a member says -1, as `generation`. A coordinator refuses that while the group has members, and
        takes it where there are none: whoever writes in transactions looks at `generation()` first.
        """
        view = self._in_use().view
        if not self._is_layout_checked:
            produced = self._use().partitions.ask(lambda handle, _: handle.consumer_group_metadata(), 0)
            check_layout(view.group_id, produced)
            self._is_layout_checked = True
        return pack_group_metadata(view.group_id, self.generation(), view.member_id, view.instance_id)

    @raises_as_confluent
    def membership(self) -> MembershipView:
        """The member as it is now: state, epoch, what it owns, what it waits for and since when. Never waits.

        It can still be asked after close.
        """
        session = self._use()
        session.life.check_process()
        return session.view

    @raises_as_confluent
    def health(self) -> Health:
        """How the consumer is: one of `HealthVerdict`, since when and why, until when; how far its partitions are.

        Never waits, in any thread, and after close, too. The first call begins to look at the partitions every two
        seconds: what is told of them is of the latest look.
        """
        return self._use_observer().health()

    @raises_as_confluent
    def metrics(self) -> Metrics:
        """All that is counted of the consumer, as it is now: what it did, how often, and how long that took.

        Never waits, in any thread, and after close, too. The first call begins to look at the partitions, as `health`
        does; everything else is counted from the beginning. `metrics.catalogue.java_metrics` has it under Java's names.
        """
        return self._use_observer().metrics()

    @raises_as_confluent
    def on_event(self, callback: EventCallback) -> EventRegistration:
        """Have this called with a `LifecycleEvent` for what happens to the consumer from now on, until it is removed.

        `remove()` of what is returned ends it. All callbacks of a consumer are called on one thread of its own, which
        the first of them begins, one event after the other, with no lock held: they may call any method of the
        consumer, `close()` too. What they raise is logged and dropped. One that takes its time holds up other
        callbacks, and neither polls nor heartbeats nor `close`; events beyond 1,000 that wait are dropped, and the next
        one says how many. The partitions are looked at from now on, as by `health()`.

        Raises:
            TypeError: it is not callable, or a coroutine function, which `AIOConsumer` takes.
            RuntimeError: the consumer is closed.
        """
        given = arguments.event_callback(callback)
        # The consumer alone holds callbacks: the member's thread holds the session, and would hold what they refer to.
        self._events = events = self._use_observer().lifecycle_events()
        return events.register(given)

    @raises_as_confluent
    def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write what is recorded of the membership to this file, or into this folder; the file's path.

        None: into `recorder.directory`, or the system's folder for temporary files. `consumer-membership replay` reads
        it. No record, secret, or metadata of a commit is in it. It can still be asked after close, in any thread; it
        takes as long as a few thousand events take to be written, and nothing waits for it.

        Raises:
            UseError: `recorder.enable` is false.
            OSError: the file cannot be written.
        """
        return self._use_observer().dump("asked for by the program", path)

    @raises_as_confluent
    def generation(self) -> int:
        """The member epoch (classic: the generation), -1 when not a member: what to tag writes with. Never waits.

        It is -1 from the moment that the member knows that it is out, fenced, refused, too slow or gone by itself, and
        until it is in again: a replacement may have the epoch that this one had.
        """
        epoch = self.membership().member_epoch
        return epoch if epoch > JOIN_EPOCH else NO_EPOCH

    @raises_as_confluent
    def owned_since(self, partition: TopicPartition) -> int | None:
        """The member epoch at which this partition was taken; None: it is not owned. Never waits."""
        return self.membership().owned.get(key_of(arguments.one_partition(partition)))

    def _in_use(self) -> Session:
        session = self._use()
        session.life.check()
        return session

    # ---- as an object ----

    def __enter__(self) -> Self:
        """Return the consumer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; an exception goes on."""
        self.close()

    def __del__(self) -> None:
        """Stop without a word to the group: only close() commits and leaves."""
        with contextlib.suppress(AttributeError):
            if self._session is not None:
                self._session.abandon()

    def __reduce__(self) -> NoReturn:
        """Refuse: connections and membership do not travel."""
        raise PicklingError(
            f"cannot pickle {type(self).__name__!r} object: a group member cannot be copied or sent to another "
            "process; send its configuration and make a consumer there"
        )


@raises_as_confluent
def session_of(consumer: Consumer) -> Session:
    """The session of a consumer that is open, for a front end that drives it in another way.

    Raises:
        RuntimeError: it is closed.
    """
    return consumer._in_use()  # noqa: SLF001 - of this module


def _missing(name: str) -> property:
    def refuse(_: Consumer) -> NoReturn:
        raise AttributeError(
            f"confluent-kafka {version()} has Consumer.{name}, and consumer-membership {__version__} does not; take a "
            "newer one, or do without"
        )

    return property(refuse)


# What a later release of confluent-kafka adds: its C method would look for a handle that is not there.
for _name in vars(LibrdkafkaConsumer).keys() - vars(Consumer).keys() - vars(object).keys():
    setattr(Consumer, _name, _missing(_name))
