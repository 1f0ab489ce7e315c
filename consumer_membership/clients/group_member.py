"""`GroupMember`: membership of a consumer group without fetching, to distribute work that is not in Kafka.

The partitions of a topic stand for shards of the work. The group assigns each of them to one member, and the members
receive `on_assign`, `on_revoke` and `on_lost` as consumers do. There is no handle of librdkafka, so a process can have
many members.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias

from confluent_kafka import TopicPartition

from consumer_membership.clients import arguments
from consumer_membership.clients.arguments import NOT_GIVEN
from consumer_membership.clients.exceptions import PicklingError, raises_as_confluent
from consumer_membership.clients.lease import Lease, lease_of
from consumer_membership.clients.outcomes import PendingCommit, domain_offsets, requested_offsets, with_committed
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.checks import checked_keys
from consumer_membership.config.keys import KEYS, guess, shown
from consumer_membership.errors import ConfigurationError
from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.runtime.application.member_observer import MemberObserver
from consumer_membership.runtime.application.member_session import MemberSession
from consumer_membership.runtime.application.partition_offsets import key_of
from consumer_membership.runtime.cluster_access import IN_PROCESS, ClusterAccess
from consumer_membership.runtime.membership_thread import ThreadFactory
from consumer_membership.runtime.network.member_thread import member_thread
from consumer_membership.types import JOIN_EPOCH, NO_EPOCH

if TYPE_CHECKING:  # imported for types only
    from os import PathLike
    from pathlib import Path

    from consumer_membership.clients.consumer import Membership

MemberCallback: TypeAlias = Callable[["GroupMember", list[TopicPartition]], object]

#: Keys for reports of librdkafka and for results of its calls.
_CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "on_commit", "logger"})


class GroupMember:
    """A member of a consumer group that fetches nothing; it owns partitions, and what they mean is up to you.

    `poll` joins the group, calls the callbacks and proves that the application lives: call it in a loop, from one
    thread. All other methods may be called from any thread; none of them blocks except `close`, `commit` and
    `committed`.

    Args:
        config: a dict with the keys of `Consumer`; `CONSUMER_MEMBERSHIP_...` variables also apply. Keys for fetching
            and for automatic commits have no effect.

    Raises:
        ConfigurationError: a key is unknown, a callback of librdkafka, or invalid; also a `KafkaException`.
    """

    _session: MemberSession | None = None
    _observer: MemberObserver

    @raises_as_confluent
    def __init__(self, config: Mapping[str, object]) -> None:
        self._open(config, member_thread)

    def _open(self, config: Mapping[str, object], make_thread: ThreadFactory) -> None:
        """Create the session; tests pass another `make_thread`."""
        given = checked_keys(config)
        for key, value in given.items():
            if key in _CALLBACKS:
                raise ConfigurationError(key, shown(key, value), "a GroupMember has no such callback; remove the key")
            if key not in KEYS:
                raise ConfigurationError(key, shown(key, value), f"No such configuration property; {guess(key)}")
        checked = ConsumerConfig.from_mapping(given)
        local = IN_PROCESS.get(checked.bootstrap_servers or "")
        access = ClusterAccess(make_thread=make_thread) if local is None else local.access
        observer = MemberObserver(checked)
        session = MemberSession(checked, access=access, observer=observer)
        observer.observe(session)
        self._session, self._observer = session, observer

    def _use(self) -> MemberSession:
        if self._session is None:
            raise RuntimeError("GroupMember is not initialized; call its __init__")
        return self._session

    @raises_as_confluent
    def subscribe(
        self,
        topics: list[str],
        *,
        on_assign: MemberCallback | None = None,
        on_revoke: MemberCallback | None = None,
        on_lost: MemberCallback | None = None,
        on_warm: MemberCallback | None = None,
    ) -> None:
        """Replace the subscription; elements that begin with `^` are patterns, as in `Consumer.subscribe`.

        The callbacks run inside `poll` and `close`, and receive this member and the partitions. `on_revoke` may take
        its time to finish work: the partitions move when it has returned. `on_lost` is called instead if they may
        already belong to another member; without `on_lost`, `on_revoke` is called. `on_warm` is called with
        `group.instance.id.conflict.policy=hand-over`, before this member owns the partitions that another member will
        hand over to it, as in `Consumer.subscribe`.

        Raises:
            TypeError: `topics` is not a list of text, or a callback is not callable.
            KafkaException: a topic name or a pattern is invalid.
        """
        session = self._use()
        calls = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost, "on_warm": on_warm}
        given = {name: NOT_GIVEN if call is None else call for name, call in calls.items()}
        listener = arguments.listener_of(self, **given)
        session.subscribe(arguments.subscription_of(topics, session.subscription_settings), listener)

    @raises_as_confluent
    def poll(self, timeout: float = -1) -> bool:
        """Call the pending callbacks, or wait `timeout` seconds for one (negative: without limit).

        Call it at least every `max.poll.interval.ms`; a waiting call counts as polling. Returns whether partitions
        were assigned, revoked or lost. Exceptions of callbacks propagate, with the effects that they have in a
        `Consumer`.

        Raises:
            FatalGroupError: the membership ended (fenced, refused); raised again at most once a second.
            GroupError: another error of the group, for example a missed poll or a missing topic; each once.
            RuntimeError: the member is closed.
        """
        return self._use().poll(arguments.seconds(timeout))

    @raises_as_confluent
    def membership(self) -> MembershipView:
        """Return a snapshot: state, epoch, owned partitions, and what the member waits for. Also after `close`."""
        session = self._use()
        session.life.check_process()
        return session.view

    @raises_as_confluent
    def health(self) -> Health:
        """Return the member's health: a `HealthVerdict` with its cause and times, from its state and its last poll.

        A member that owns partitions and polls is CONSUMING, and one without partitions IDLE; `partitions` is empty,
        because nothing is fetched. Never blocks, in any thread, also after `close`.
        """
        self._use()
        return self._observer.health()

    @raises_as_confluent
    def metrics(self) -> Metrics:
        """Return a snapshot of all counters and durations of the member; those of records are zero.

        Never blocks, in any thread, also after `close`.
        """
        self._use()
        return self._observer.metrics()

    @raises_as_confluent
    def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the recording of the membership to this file or into this folder, and return the file's path.

        As `Consumer.dump`: `consumer-membership replay` reads the file.

        Raises:
            UseError: `recorder.enable` is false.
            OSError: the file cannot be written.
        """
        self._use()
        return self._observer.dump("requested by the program", path)

    @raises_as_confluent
    def generation(self) -> int:
        """Return the member epoch (classic: the generation), or -1 outside the group; tag writes with it."""
        epoch = self.membership().member_epoch
        return epoch if epoch > JOIN_EPOCH else NO_EPOCH

    @raises_as_confluent
    def lease(self, partition: TopicPartition) -> Lease:
        """Return the lease of an owned partition: until when this member may work on it, and its fencing token.

        Requires `ownership.lease.enable`. A partition is owned from its `on_assign` to the end of its `on_revoke`.

        Raises:
            KafkaException: leases are not enabled.
            LeaseOverError: the partition is not owned.
        """
        session = self._use()
        session.life.check()
        return lease_of(session, key_of(arguments.one_partition(partition)))

    @raises_as_confluent
    def commit(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        """Commit these offsets and metadata, for example the progress of each shard; wait for the response.

        The coordinator refuses commits of former members. Returns the partitions with their errors.

        Raises:
            CommitError: the commit failed for every partition; also a `KafkaException`.
        """
        session = self._use()
        given = arguments.offset_list(offsets)
        wanted = domain_offsets(given) or {}
        return PendingCommit(
            session.commits, session.begin_commit(wanted), requested_offsets(given, [], wanted)
        ).result()

    @raises_as_confluent
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets and metadata of these partitions (-1001: none).

        Raises:
            KafkaException: the coordinator rejected the request, or did not respond within `timeout` seconds.
        """
        given, left = arguments.partition_list(partitions), arguments.seconds(timeout)
        return with_committed(self._use().commits.committed(given, left), given)

    @raises_as_confluent
    def close(self, *, membership: Membership = "default") -> None:
        """Call on_revoke, leave the group and release everything. Idempotent.

        `membership` has the meaning that `Consumer.close` describes. Inside a callback, the close takes place when
        `poll` ends. Exceptions of callbacks are raised after the close is complete.
        """
        option = arguments.leave_option(membership)
        if self._session is not None:
            self._session.close(option)

    def __enter__(self) -> Self:
        """Return the member itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the member; an exception propagates."""
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Stop without a request to the group: only close() leaves. Do nothing at exit, as `Consumer.__del__`."""
        if self._session is not None and not is_finalizing():
            self._session.abandon()

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: connections and membership cannot be copied or sent to another process."""
        raise PicklingError(
            f"cannot pickle {type(self).__name__!r} object: a group member cannot be copied or sent to another "
            "process; send its configuration and create a member there"
        )


@raises_as_confluent
def member_session_of(member: GroupMember) -> MemberSession:
    """Return the session of an open member, for a front end that drives it in another way.

    Raises:
        RuntimeError: the member is closed.
    """
    session = member._use()  # noqa: SLF001 - same module
    session.life.check()
    return session
