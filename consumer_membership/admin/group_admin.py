"""`GroupAdmin`: groups described and rid of members, for scripts; synchronous and typed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from consumer_membership.admin import arguments
from consumer_membership.admin.cluster_client import ClusterClient
from consumer_membership.admin.group_log import ReadingProgress
from consumer_membership.admin.history import GroupHistory, HistoryQuestion, history_of
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

#: The configuration is a consumer's, which must have a group; the groups meant here come with each call.
_NO_GROUP = "-"
#: As Java's default.api.timeout.ms for its admin client, halved: somebody is waiting at a terminal.
DEFAULT_TIMEOUT_S = 30.0


class GroupAdmin:
    """Asks a cluster about its consumer groups, of both protocols.

    `config` is the dict of a consumer (`bootstrap.servers`, `client.id`, socket timeouts, ...; environment variables
    count too); `group.id` is not needed, and keys that concern membership or fetching have no effect. `timeout_s`
    bounds each call, attempts and backoff together.

    Each call connects, asks and disconnects, so that nothing is to be closed, threads may share the object, and it
    survives a fork. A call blocks: within an asyncio loop use `asyncio.to_thread`.

    Raises:
        ConfigurationError: a key, or a method's argument, that cannot work; a TypeError too where its type is wrong.
        GroupError: by every method: the coordinator refused; no such group, a right is missing, ... (`code`).
        UnsupportedProtocolError: by every method: the brokers cannot be asked this.
        TransportError: by every method: no answer in time.
        UseError: by every method: called within a running asyncio loop.
    """

    def __init__(self, config: Mapping[str, object], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._timeout_s = arguments.seconds(timeout_s)
        given = {**checked_keys(config), "group.id": _NO_GROUP}
        checked = ConsumerConfig.from_mapping(given).with_servers()
        self._settings, self._cluster_config = checked.connection_settings(), checked.cluster_config()
        self._security = ConnectionSecurity(self._settings)

    def describe(self, group_id: str, *, with_offsets: bool = True) -> GroupReport:
        """The group: what it is, its members, and how far it is in each partition.

        Without offsets the report has no partitions, and needs no rights on topics in a classic group.
        """
        wants_offsets = arguments.flag("with_offsets", with_offsets)
        return self._ask(group_id, lambda inquiry: inquiry.report(with_offsets=wants_offsets))

    def list_groups(self) -> GroupListing:
        """Every group that the asker may describe, of any kind, by group id; and which brokers did not tell theirs."""

        async def ask(cluster: Cluster) -> GroupListing:
            return await listing(ClusterClient(cluster), self._timeout_s)

        return self._run(ask)

    def survey(self, group_id: str, *, in_depth: bool = True) -> GroupSurvey:
        """The group with what surrounds it: its topics, the offsets of its partitions, transactions, limits.

        What cannot be told, for want of a right or of an answer, is missing and named in `refusals`: only a cluster
        that does not answer at all raises. Not `in_depth`: without start and last stable offsets, transactions and
        settings, which do not change from one second to the next.
        """
        goes_deep = arguments.flag("in_depth", in_depth)
        group = arguments.group_id(group_id)

        async def ask(cluster: Cluster) -> GroupSurvey:
            return await surveyed(cluster, group, self._timeout_s, in_depth=goes_deep)

        return self._run(ask)

    def history(
        self,
        group_id: str,
        since: float,
        *,
        grain_s: float = 0.0,
        on_progress: Callable[[ReadingProgress], object] | None = None,
    ) -> GroupHistory:
        """What the group's coordinator wrote down since this moment (seconds since 1970), and how the group was then.

        It reads `__consumer_offsets`, for which it needs the ACL operations DESCRIBE and READ on that topic, and takes
        time where much is committed in the cluster: `on_progress` is told how far it is, by another thread. Of many
        commits of a partition within `grain_s` the last one is kept. What cannot be told is missing and said in
        `notes`: only a cluster that does not answer at all raises.
        """
        question = HistoryQuestion(
            group_id=arguments.group_id(group_id),
            since=arguments.moment(since),
            grain_s=arguments.grain(grain_s),
            on_progress=arguments.on_progress(on_progress),
        )

        async def ask(cluster: Cluster) -> GroupHistory:
            return await history_of(cluster, self._cluster_config, question, self._timeout_s)

        return self._run(ask)

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """All that the group has committed and the asker may see, with metadata; nothing where there is no such group.

        The zero with which librdkafka's clients end a commit's metadata is not a part of them.
        """
        return self._ask(group_id, lambda inquiry: inquiry.committed())

    def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Sequence[str] = (),
        member_ids: Sequence[str] = (),
        everyone: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> tuple[Removal, ...]:
        """Remove members by instance id, by member id, or all of them (KIP-345); what became of each.

        One member's failure does not keep the others: each has its own result, in the order given, instance ids first.
        A member whose process still runs may come back at its next heartbeat; the result says so. `reason` goes into
        the coordinator's log. A dry run removes nobody and says who is meant.

        Raises:
            ConfigurationError: nobody is asked for, or both ids and everyone.
            GroupError: the coordinator refused all of it.
            TransportError: no answer in time; any of them may have been removed.
        """
        means_all, only_looks = arguments.flag("everyone", everyone), arguments.flag("dry_run", dry_run)
        asked = chosen(instance_ids, member_ids, everyone=means_all)
        said = arguments.reason(reason)
        return self._ask(
            group_id, lambda inquiry: inquiry.remove(asked, everyone=means_all, reason=said, dry_run=only_looks)
        )

    def _ask(self, group_id: str, ask: Callable[[Inquiry], Awaitable[AnswerT]]) -> AnswerT:
        group = arguments.group_id(group_id)

        async def inquire(cluster: Cluster) -> AnswerT:
            return await ask(Inquiry(GroupClient(cluster), group, self._timeout_s))

        return self._run(inquire)

    def _run(self, ask: Callable[[Cluster], Awaitable[AnswerT]]) -> AnswerT:
        """What is answered over connections that are this call's."""

        async def run() -> AnswerT:
            cluster = Cluster(self._settings, self._security)
            try:
                return await ask(cluster)
            finally:
                await cluster.close()

        if _is_in_a_loop():
            raise UseError(
                "this call blocks, and an asyncio loop runs in this thread; use "
                "`await asyncio.to_thread(admin.describe, group_id)`"
            )
        return asyncio.run(run())


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
