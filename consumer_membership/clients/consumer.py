"""`Consumer`: the drop-in replacement for `confluent_kafka.Consumer`, with this package's own group membership.

Configuration, methods, callbacks, return types and exceptions are those of confluent-kafka 2.16. Where a method differs
on purpose, its docstring describes the difference. `membership()`, `generation()`, `owned_since()`, `lease()`,
`begin_commit()`, `health()`, `metrics()`, `on_event()` and `dump()` are additions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from operator import index
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeAlias, overload

from confluent_kafka import Message, TopicPartition, version

from consumer_membership.clients import arguments
from consumer_membership.clients.arguments import NOT_GIVEN
from consumer_membership.clients.exceptions import PicklingError, raises_as_confluent
from consumer_membership.clients.group_metadata import check_layout, pack_group_metadata
from consumer_membership.clients.lease import Lease, lease_of
from consumer_membership.clients.outcomes import (
    PendingCommit,
    call_on_commit,
    domain_offsets,
    requested_offsets,
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
from consumer_membership.runtime.cluster_access import IN_PROCESS, ClusterAccess
from consumer_membership.runtime.membership_thread import ThreadFactory
from consumer_membership.runtime.network.member_thread import member_thread
from consumer_membership.types import JOIN_EPOCH, NO_EPOCH
from consumer_membership.version import __version__

if TYPE_CHECKING:  # imported for types only: the import of confluent_kafka.admin takes time
    from confluent_kafka.admin._metadata import ClusterMetadata
if TYPE_CHECKING:  # imported for types only: it imports more than a consumer needs
    from pathlib import Path

    from consumer_membership.runtime.application.lifecycle_events import (
        EventCallback,
        EventRegistration,
        LifecycleEvents,
    )

#: Whether the membership ends when the consumer closes or unsubscribes.
Membership: TypeAlias = Literal["default", "leave", "remain"]
RebalanceCallback: TypeAlias = Callable[["Consumer", list[TopicPartition]], object]


class Consumer(LibrdkafkaConsumer):
    """A consumer that is a member of a consumer group; construct it like `confluent_kafka.Consumer`.

    It is a subclass of confluent-kafka's class, so `isinstance` checks and classes that derive from both work. The C
    part of that class is never initialized, and each of its methods is replaced.

    Args:
        *args: one dict with librdkafka's configuration keys. Environment variables `CONSUMER_MEMBERSHIP_...` supply
            keys that the dict leaves out.
        **kwargs: further keys, which override the dict; `logger=` receives log lines.

    Raises:
        ConfigurationError: the configuration cannot work; the message has the key, the value and the fix. It is also a
            `KafkaException` (for group.id a ValueError, for callbacks a TypeError or ValueError, as in
            confluent-kafka).
    """

    # The C type has no space for slots beside its dict. A lookup in that dict would cost 20 ns more for each record.
    __slots__ = ("__dict__", "__weakref__", "_is_layout_checked", "_ready", "_session", "_wake_up")

    _session: Session | None
    _observer: ConsumerObserver
    _events: LifecycleEvents

    def __new__(cls, *args: object, **kwargs: object) -> Self:  # noqa: ARG004
        """Create a closed consumer: a subclass may forget to call `__init__`, and then gets confluent-kafka's error."""
        made = super().__new__(cls)
        made._session = None
        return made

    @raises_as_confluent
    def __init__(self, *args: object, **kwargs: object) -> None:
        self._open(args, kwargs, member_thread)

    def _open(self, args: tuple[object, ...], kwargs: Mapping[str, object], make_thread: ThreadFactory) -> None:
        """Create the session; tests pass another `make_thread`."""
        if self._session is not None:
            raise RuntimeError("Consumer already initialized")
        given = arguments.sort_arguments(args, kwargs)
        on_commit = given.on_commit
        config = ConsumerConfig.from_mapping(given.config)
        local = IN_PROCESS.get(config.bootstrap_servers or "")
        access = ClusterAccess(make_thread=make_thread) if local is None else local.access
        with naming_variables(given.config):  # for values that only librdkafka checks
            observer = ConsumerObserver(config, given.callbacks.stats_cb)
            session = Session(
                config,
                callbacks=given.callbacks,
                on_commit=None if on_commit is None else partial(call_on_commit, on_commit),
                access=access,
                observer=observer,
            )
            observer.observe(session)
        self._session, self._observer = session, observer
        # Only what the hot path of `poll` reads.
        self._wake_up = session.gate
        self._ready = session.buffer.ready
        self._is_layout_checked = False

    def _use(self, message: str = "Consumer closed") -> Session:
        """Return the session, or raise `RuntimeError` if the consumer is closed."""
        if self._session is None:
            raise RuntimeError(message)
        return self._session

    def _use_observer(self) -> ConsumerObserver:
        self._use()
        return self._observer

    # ---- polling ----

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record or error, or None after `timeout` seconds (negative: wait without limit).

        Rebalance callbacks, commit callbacks and librdkafka's callbacks run inside this call; their exceptions
        propagate to the caller.

        A message whose `error()` is fatal ends the membership; it carries the broker's error code. `poll` and `consume`
        return it immediately and then at most once per second while the condition lasts. (confluent-kafka reports it
        once, with the code `_FATAL`.)

        Raises:
            RuntimeError: the consumer is closed.
        """
        try:
            # This check needs no lock: `~` is one step of the interpreter, also for signal handlers, and every thread
            # that has an event for the application sets the wake-up. It is the only cost per record beyond librdkafka's
            # batch.
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
            except IndexError:  # another thread took the last record
                pass

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records and errors, gathered for at most `timeout` seconds.

        Ctrl-C interrupts the call, unlike in confluent-kafka 2.16. If a callback or a signal handler raises, the next
        call returns the records that were already gathered.

        Raises:
            ValueError: `num_messages` is not between 0 and 1,000,000.
            RuntimeError: the consumer is closed.
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
                    except IndexError:  # another thread moved it
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
        """Poll until records can be returned: the queue, the most records to return, and the call's deadline."""
        session = self._use()
        limit, left = arguments.limit_and_seconds(num_messages, timeout)
        until = deadline if deadline is not None else inf if left < 0 else session.line.now() + left
        return session.prepare(limit, until, whole=whole), limit, until

    # ---- the group ----

    @raises_as_confluent
    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]  # None is an error, as in confluent-kafka
        on_revoke: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]
        on_lost: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]
        *,
        on_warm: RebalanceCallback | None = NOT_GIVEN,  # type: ignore[assignment]
    ) -> None:
        """Replace the subscription; elements that begin with `^` are patterns.

        Patterns are POSIX extended regular expressions, as in librdkafka, and need not match to the end of a name:
        `^orders-` matches every topic that begins with `orders-`. Patterns that only RE2/J can read (`(?...)`) are sent
        to the broker, which matches whole names. With group.protocol=consumer the broker receives all patterns as they
        are written, as from librdkafka: `^orders-` then matches only the topic `orders-`.

        Records of topics that are no longer subscribed stop immediately, before the group revokes their partitions.
        Callbacks run on the thread that polls or closes, and receive this consumer and the partitions. `on_revoke` is
        called for lost partitions if there is no `on_lost`. With eager callbacks, each change revokes all partitions
        and assigns the complete new list. They are the default where confluent-kafka has them: with
        `group.protocol=auto` or `classic`, unless the assignors are cooperative; `rebalance.callbacks` changes this.

        `on_warm` is called with `group.instance.id.conflict.policy=hand-over`, before this consumer owns the partitions
        that another consumer will hand over to it: load state and fill caches there. The other consumer continues
        meanwhile, and hands over after `on_warm` has returned. If it raises, poll raises its exception, and calls it
        again later. `on_assign` follows when this consumer owns the partitions, which may be others.

        Raises:
            TypeError: `topics` is not a list of text, or a callback is not callable.
            KafkaException: a topic name or a pattern is invalid.
        """
        session = self._use()
        listener = arguments.listener_of(
            self, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost, on_warm=on_warm
        )
        session.subscribe(arguments.subscription_of(topics, session.subscription_settings), listener)

    @raises_as_confluent
    def unsubscribe(self, *, membership: Membership = "default") -> None:
        """Leave the group; records of the subscribed topics stop immediately.

        The revocation callback runs in one of the next polls, or in `close`. `membership` has the meaning that `close`
        describes.
        """
        self._use().unsubscribe(arguments.leave_option(membership))

    @raises_as_confluent
    def close(self, *, membership: Membership = "default") -> None:
        """Commit (with auto-commit), call on_revoke, leave the group and release all resources. Idempotent.

        Args:
            membership: "leave" ends the membership (KIP-1092), so that other members receive the partitions
                immediately. "remain" keeps it until the session timeout for a process with the same
                group.instance.id. "default" means "leave" for a dynamic member and "remain" for a static member.

        Inside a callback, or in a signal handler that interrupts a poll of its own thread, the close takes place when
        that call ends. Exceptions of callbacks are raised after the close is complete.
        """
        option = arguments.leave_option(membership)
        if self._session is not None:
            self._session.close(option)

    # ---- assignment ----

    @raises_as_confluent
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch exactly these partitions without the group; inside on_assign: accept these of the new partitions.

        Inside on_assign, confluent-kafka rejects this call under the consumer protocol. It is accepted here, so that
        programs written for the eager protocol continue to work.
        """
        self._use().partitions.assign(arguments.partition_list(partitions))

    @raises_as_confluent
    def unassign(self) -> None:
        """Stop fetching all partitions; inside on_revoke and on_lost: give up the partitions of the callback."""
        self._use().partitions.unassign()

    @raises_as_confluent
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these partitions in addition."""
        self._use().partitions.incremental_assign(arguments.partition_list(partitions))

    @raises_as_confluent
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these partitions; a duplicate raises an error (librdkafka would abort the process)."""
        self._use().partitions.incremental_unassign(arguments.partition_list(partitions))

    @raises_as_confluent
    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions; `.offset` is -1000, or the offset that the application assigned."""
        return self._use().partitions.assignment()

    @raises_as_confluent
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop returning records of these partitions until they are resumed or revoked; no record is lost."""
        self._use().partitions.pause(arguments.partition_list(partitions))

    @raises_as_confluent
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of these paused partitions again."""
        self._use().partitions.resume(arguments.partition_list(partitions))

    @raises_as_confluent
    def seek(self, partition: TopicPartition) -> None:
        """Set the next offset of an assigned partition."""
        self._use().partitions.seek(arguments.one_partition(partition))

    @raises_as_confluent
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last returned record; -1001: none since the partition was assigned or sought."""
        return self._use().partitions.position(arguments.partition_list(partitions))

    # ---- offsets ----

    @raises_as_confluent
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark offsets as processed for the next commit (requires `enable.auto.offset.store=false`).

        Raises:
            KafkaException: a partition is not assigned, or the offset of `message` cannot be stored.
        """
        session = self._use()
        given = arguments.message_or_offsets(message, offsets, "store")
        if given is None:
            raise ValueError("expected either message or offsets")
        session.commits.store(given)

    @overload  # type: ignore[override]  # accepts confluent-kafka's calls, also with positional arguments
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
        """Commit the offset after `message`, these `offsets`, or the processed offsets that are not committed yet.

        With `asynchronous=True` (older name: `async`) the call returns None immediately, and `on_commit` receives the
        result. Otherwise it returns the partitions with their errors. A synchronous commit does not need another thread
        that polls, and works inside callbacks.

        Raises:
            CommitError: the commit failed for every partition, or there is nothing to commit; also a `KafkaException`.
        """
        is_awaited = not alias.pop("async", asynchronous)
        for name in alias:
            raise TypeError(f"{name!r} is an invalid keyword argument for this function")
        session = self._use()
        given = arguments.message_or_offsets(message, offsets, "commit")
        if is_awaited:
            return self.begin_commit(given).result()
        session.commit(domain_offsets(given), None if given is None else map(key_of, given))
        return None

    @raises_as_confluent
    def begin_commit(self, offsets: list[TopicPartition] | None = None) -> PendingCommit:
        """Begin a commit of these `offsets`, or of the processed ones; `result()` waits for the response.

        Use it to do other work during the commit. Unlike `commit(asynchronous=True)`, the result needs neither a poll
        nor `on_commit`.

        Raises:
            CommitError: as in `commit`; errors of the coordinator are raised by `result()`.
        """
        session = self._use()
        given = None if offsets is None else arguments.offset_list(offsets)
        commit_id, wanted = session.begin_commit(domain_offsets(given))
        assigned = session.partitions.assignment() if given is None else []
        return PendingCommit(session.commits, commit_id, requested_offsets(given, assigned, wanted))

    @raises_as_confluent
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets of these partitions (-1001: none), requested from the coordinator.

        Raises:
            KafkaException: the coordinator rejected the request, or did not respond within `timeout` seconds.
        """
        given, left = arguments.partition_list(partitions), arguments.seconds(timeout)
        return with_committed(self._use().commits.committed(given, left), given)

    @raises_as_confluent
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets at or after the timestamps (milliseconds) in `.offset` of each partition."""
        given, left = arguments.partition_list(partitions), arguments.seconds(timeout)
        return self._use().partitions.query(lambda handle, s: handle.offsets_for_times(given, s), left)

    @raises_as_confluent
    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[int, int]:
        """Return the low and high watermark of a partition; `cached`: from memory, without a request."""
        given, left = arguments.one_partition(partition), arguments.seconds(timeout)
        if index(cached):
            return self._use().partitions.query(lambda handle, _: handle.get_watermark_offsets(given, cached=True), 0)
        return self._use().partitions.query(lambda handle, s: handle.get_watermark_offsets(given, s), left)

    # ---- the cluster ----

    @raises_as_confluent
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's metadata, of one topic or of all."""
        left = arguments.seconds(timeout)

        name = None if topic is None else arguments.sendable("topic", topic)

        def query(handle: LibrdkafkaConsumer, seconds: float) -> ClusterMetadata:
            found: ClusterMetadata = (
                handle.list_topics(timeout=seconds) if name is None else handle.list_topics(name, seconds)
            )
            return found

        return self._use_handle().partitions.query(query, left)

    @raises_as_confluent
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        return self._use_handle().partitions.query(lambda handle, s: handle.cluster_id(s), arguments.seconds(timeout))

    @raises_as_confluent
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials for new connections and for reauthentication of existing ones (KIP-368).

        They are those of PLAIN and SCRAM. As in librdkafka, the call has no effect with another mechanism.
        """
        session = self._use_handle()
        user = arguments.sendable("username", username)
        session.set_credentials(user, arguments.sendable("password", password, is_secret=True))

    def _use_handle(self) -> Session:
        message = "Handle has been closed"
        session = self._use(message)
        if session.life.is_ours and session.life.is_closed:
            raise RuntimeError(message)
        return session

    # ---- the member ----

    @raises_as_confluent
    def memberid(self) -> str | None:  # type: ignore[override]  # also None in confluent-kafka before the join
        """Return the member id; with `group.protocol=consumer` this client generates it (22 characters, KIP-1082).

        A classic member receives its id from the broker when it joins, and has none (None) before and after its
        membership. With `group.protocol=auto` there is also none before the first join.
        """
        return self._in_use().member_id

    @raises_as_confluent
    def consumer_group_metadata(self) -> bytes:
        """Return the group metadata for `Producer.send_offsets_to_transaction`.

        Call it immediately before use, because the epoch in it changes. Outside its group, a member's metadata has the
        epoch -1, as `generation` returns. A coordinator rejects -1 while the group has members, and accepts it for an
        empty group: check `generation()` before you commit offsets in a transaction.
        """
        view = self._in_use().view
        if not self._is_layout_checked:
            produced = self._use().partitions.query(lambda handle, _: handle.consumer_group_metadata(), 0)
            check_layout(view.group_id, produced)
            self._is_layout_checked = True
        return pack_group_metadata(view.group_id, self.generation(), view.member_id, view.instance_id)

    @raises_as_confluent
    def membership(self) -> MembershipView:
        """Return a snapshot of the member: state, epoch, owned partitions, and what it waits for and since when.

        Never blocks. Also works after `close`.
        """
        session = self._use()
        session.life.check_process()
        return session.view

    @raises_as_confluent
    def health(self) -> Health:
        """Return the consumer's health: a `HealthVerdict` with its cause and times, and the progress of each partition.

        Never blocks, in any thread, also after `close`. From the first call on, the partitions are sampled every two
        seconds; the progress is that of the latest sample.
        """
        return self._use_observer().health()

    @raises_as_confluent
    def metrics(self) -> Metrics:
        """Return a snapshot of all counters and durations of the consumer.

        Never blocks, in any thread, also after `close`. From the first call on, the partitions are sampled as for
        `health`; all other metrics are counted from the beginning. `metrics.catalog.java_metrics` returns them under
        the Java client's names.
        """
        return self._use_observer().metrics()

    @raises_as_confluent
    def on_event(self, callback: EventCallback) -> EventRegistration:
        """Register `callback` for lifecycle events from now on; `remove()` of the returned object ends it.

        All callbacks of a consumer run on one thread of that consumer, one event at a time, with no lock held. They may
        call any method of the consumer, including `close()`. Their exceptions are logged and dropped. A slow callback
        delays other callbacks, but neither polls nor heartbeats nor `close`. Beyond 1,000 queued events, events are
        dropped; the next event has their number in `dropped`. The partitions are sampled from now on, as for
        `health()`.

        Raises:
            TypeError: the callback is not callable, or is a coroutine function (`AIOConsumer` accepts these).
            RuntimeError: the consumer is closed.
        """
        given = arguments.event_callback(callback)
        # Only the consumer holds callbacks. The member's thread holds the session and would keep alive all that they
        # refer to.
        self._events = events = self._use_observer().lifecycle_events()
        return events.register(given)

    @raises_as_confluent
    def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the recording of the membership to this file or into this folder, and return the file's path.

        Without `path`, the file is written into `recorder.directory`, or into the system's folder for temporary files.
        `consumer-membership replay` reads it. It contains no records, secrets or commit metadata. The call works in any
        thread, also after `close`; it takes the time to write a few thousand events and blocks no other call.

        Raises:
            UseError: `recorder.enable` is false.
            OSError: the file cannot be written.
        """
        return self._use_observer().dump("requested by the program", path)

    @raises_as_confluent
    def generation(self) -> int:
        """Return the member epoch (classic: the generation), or -1 outside the group. Never blocks.

        Tag external writes with it, so that their target can reject writes of earlier members.

        It is -1 from the moment when the member learns that it is no longer a member (fenced, rejected, too slow, or it
        left) until it has joined again, because a replacement may have the epoch that this member had.
        """
        epoch = self.membership().member_epoch
        return epoch if epoch > JOIN_EPOCH else NO_EPOCH

    @raises_as_confluent
    def owned_since(self, partition: TopicPartition) -> int | None:
        """Return the member epoch at which this partition was assigned, or None if it is not owned. Never blocks."""
        return self.membership().owned.get(key_of(arguments.one_partition(partition)))

    @raises_as_confluent
    def lease(self, partition: TopicPartition) -> Lease:
        """Return the lease of an owned partition: until when this consumer may work on it. Never blocks.

        Requires `ownership.lease.enable`. A partition is owned from its `on_assign` to the end of its `on_revoke`, both
        included.

        Raises:
            KafkaException: leases are not enabled.
            LeaseOverError: the partition is not owned.
        """
        session = self._in_use()
        return lease_of(session, key_of(arguments.one_partition(partition)))

    def _in_use(self) -> Session:
        """Return the session, or raise `RuntimeError` if the consumer is closed or was never initialized."""
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
        """Close the consumer; an exception propagates."""
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Stop without a request to the group: only close() commits and leaves.

        When the interpreter exits, its threads have ended, and the names of any module may already be None, also those
        of this one. So nothing is stopped then, and `is_finalizing` is an argument: defaults outlive the module.
        """
        session = getattr(self, "_session", None)  # a subclass may replace `__new__`
        if session is not None and not is_finalizing():
            session.abandon()

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: connections and membership cannot be copied or sent to another process."""
        raise PicklingError(
            f"cannot pickle {type(self).__name__!r} object: a group member cannot be copied or sent to another "
            "process; send its configuration and create a consumer there"
        )


@raises_as_confluent
def session_of(consumer: Consumer) -> Session:
    """Return the session of an open consumer, for a front end that drives it in another way.

    Raises:
        RuntimeError: the consumer is closed.
    """
    return consumer._in_use()  # noqa: SLF001 - same module


def observer_of(consumer: Consumer) -> ConsumerObserver:
    """Return the observer of a consumer, for a front end that adds to its health and metrics."""
    return consumer._use_observer()  # noqa: SLF001 - same module


def _missing(name: str) -> property:
    def refuse(_: Consumer) -> NoReturn:
        raise AttributeError(
            f"confluent-kafka {version()} has Consumer.{name}, but consumer-membership {__version__} does not; use a "
            "newer consumer-membership, or avoid this method"
        )

    return property(refuse)


# Methods that a later release of confluent-kafka adds: its C method would use a handle that does not exist.
for _name in vars(LibrdkafkaConsumer).keys() - vars(Consumer).keys() - vars(object).keys():
    setattr(Consumer, _name, _missing(_name))
