"""`GroupAdmin`: a synchronous, typed API for scripts that describe groups or remove members."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

from consumer_membership.admin import arguments
from consumer_membership.admin.access import IN_PROCESS_ADMIN, AdminAccess
from consumer_membership.admin.cluster_client import ClusterClient
from consumer_membership.admin.group_log import ReadingProgress
from consumer_membership.admin.history import GroupHistory, HistoryQuery, history_of
from consumer_membership.admin.inquiry import Inquiry
from consumer_membership.admin.listing import GroupListing, listing
from consumer_membership.admin.progress import GroupReport
from consumer_membership.admin.removal import Removal, chosen
from consumer_membership.admin.survey import GroupSurvey, surveyed
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.checks import checked_keys
from consumer_membership.errors import UseError
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.group_client import Cluster, GroupClient
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition

AnswerT = TypeVar("AnswerT")

#: A placeholder: a consumer configuration requires a group id, but here each call has its own.
_NO_GROUP = "-"
#: Half of default.api.timeout.ms of Java's admin client, because a person waits at a terminal.
DEFAULT_TIMEOUT_S = 30.0


class GroupAdmin:
    """Describes consumer groups of a cluster and removes their members, with both protocols.

    `config` is the dict of a consumer (`bootstrap.servers`, `client.id`, socket timeouts, ...; environment variables
    also apply). `group.id` is not required, and keys for membership or fetching have no effect. `timeout_s` limits each
    call in seconds, including retries and backoff.

    Each call opens and closes its own connections. The object therefore needs no close, can be shared between threads
    and survives a fork. Calls block; in an asyncio event loop use `asyncio.to_thread`.

    Raises:
        ConfigurationError: A key or an argument is invalid; also a TypeError if its type is wrong.
        GroupError: The coordinator rejected the request: the group does not exist, an ACL is missing, ... (`code`).
        UnsupportedProtocolError: The brokers do not support the request.
        TransportError: No response within the timeout.
        UseError: A method was called in a running asyncio event loop.
    """

    def __init__(self, config: Mapping[str, object], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._timeout_s = arguments.seconds(timeout_s)
        given = {**checked_keys(config), "group.id": _NO_GROUP}
        checked = ConsumerConfig.from_mapping(given).with_servers()
        self._settings, self._cluster_config = checked.connection_settings(), checked.cluster_config()
        self._security = ConnectionSecurity(self._settings)
        self._in_process = IN_PROCESS_ADMIN.get(checked.bootstrap_servers or "")

    def describe(self, group_id: str, *, with_offsets: bool = True) -> GroupReport:
        """Return the group's state, its members, and the committed offset, end and lag of each partition.

        Without offsets the report has no partitions, and a classic group requires no ACLs on topics.
        """
        wants_offsets = arguments.flag("with_offsets", with_offsets)
        return self._inquire(group_id, lambda inquiry: inquiry.report(with_offsets=wants_offsets))

    def list_groups(self) -> GroupListing:
        """Return all groups of any type that this client may describe, and the errors of brokers."""
        return self._run(lambda access: listing(access.surveys, self._timeout_s))

    def survey(self, group_id: str, *, in_depth: bool = True) -> GroupSurvey:
        """Return the group with its topics, the offsets of its partitions, open transactions and settings.

        Data that could not be read, because of a missing ACL or a failed request, is listed in `refusals`. Only an
        unreachable cluster raises. Without `in_depth`, start offsets, last stable offsets, transactions and settings
        are omitted, because they rarely change.
        """
        goes_deep = arguments.flag("in_depth", in_depth)
        group = arguments.group_id(group_id)
        return self._run(lambda access: surveyed(access, group, self._timeout_s, in_depth=goes_deep))

    def history(
        self,
        group_id: str,
        since: float,
        *,
        grain_s: float = 0.0,
        on_progress: Callable[[ReadingProgress], object] | None = None,
    ) -> GroupHistory:
        """Return the records of the group's coordinator since a time (seconds since 1970), and the state at that time.

        The method reads `__consumer_offsets`, which requires the ACL operations DESCRIBE and READ on that topic. It
        takes longer in a cluster with many commits; another thread calls `on_progress` meanwhile. Of several commits
        of a partition within `grain_s` seconds, the last one is kept. `notes` has the reasons for missing data. Only
        an unreachable cluster raises.
        """
        query = HistoryQuery(
            group_id=arguments.group_id(group_id),
            since=arguments.moment(since),
            grain_s=arguments.grain(grain_s),
            on_progress=arguments.on_progress(on_progress),
        )
        if self._in_process is not None:
            raise UseError("a cluster inside this process keeps no history of its groups; use a broker")
        return self._run_on_brokers(lambda cluster: history_of(cluster, self._cluster_config, query, self._timeout_s))

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """Return all committed offsets of the group that this client may see; empty if the group does not exist.

        The metadata is returned without the NUL character that librdkafka appends.
        """
        return self._inquire(group_id, lambda inquiry: inquiry.committed())

    def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Sequence[str] = (),
        member_ids: Sequence[str] = (),
        static_members: Mapping[str, str] | None = None,
        all_members: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> tuple[Removal, ...]:
        """Remove members by instance id, by member id, or all of them (KIP-345); return the result of each.

        `static_members` maps instance ids to member ids: each is removed only if that member holds the instance id, so
        that a process which has taken its place meanwhile stays (`REFUSED`).

        Each member has its own result, in the given order: instance ids, member ids, `static_members`. A member whose
        process still runs may join again at its next heartbeat; `message` states this. `reason` is written to the
        coordinator's log. A dry run returns the selected members and removes none.

        Raises:
            ConfigurationError: No member is selected, or `all_members` is combined with ids.
            GroupError: The coordinator rejected the whole request.
            TransportError: No response within the timeout; some members may have been removed.
        """
        removes_all, is_dry = arguments.flag("all_members", all_members), arguments.flag("dry_run", dry_run)
        requested = chosen(instance_ids, member_ids, static_members, all_members=removes_all)
        checked_reason = arguments.reason(reason)
        return self._inquire(
            group_id,
            lambda inquiry: inquiry.remove(requested, all_members=removes_all, reason=checked_reason, dry_run=is_dry),
        )

    def _inquire(self, group_id: str, call: Callable[[Inquiry], Awaitable[AnswerT]]) -> AnswerT:
        group = arguments.group_id(group_id)

        async def inquire(access: AdminAccess) -> AnswerT:
            return await call(Inquiry(access, group, self._timeout_s))

        return self._run(inquire)

    def _run(self, call: Callable[[AdminAccess], Coroutine[object, object, AnswerT]]) -> AnswerT:
        """Run the coroutine with the requests of this call."""
        if self._in_process is not None:
            return _run(call(self._in_process()))
        return self._run_on_brokers(
            lambda cluster: call(
                AdminAccess(cluster=cluster, groups=GroupClient(cluster), surveys=ClusterClient(cluster))
            )
        )

    def _run_on_brokers(self, call: Callable[[Cluster], Awaitable[AnswerT]]) -> AnswerT:
        """Run the coroutine with connections that are opened and closed by this call."""

        async def run() -> AnswerT:
            cluster = Cluster(self._settings, self._security)
            try:
                return await call(cluster)
            finally:
                await cluster.close()

        return _run(run())


def _run(call: Coroutine[object, object, AnswerT]) -> AnswerT:
    if _is_in_a_loop():
        call.close()
        raise UseError(
            "GroupAdmin methods block and cannot be called in a running asyncio event loop; use "
            "`await asyncio.to_thread(admin.describe, group_id)`"
        )
    return asyncio.run(call)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
