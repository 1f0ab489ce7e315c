"""Groups that change from one protocol to the other, on a real broker, while records flow (rules 4.10).

Online, member by member: the coordinator converts a group that has members. Offline: the group was empty in between.
The records are checked as in mixed groups (`tests.integration.partners`): each partition has one owner and never two,
no record is lost, and a record is repeated only if a member had not committed it when it revoked its partition or died.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin, GroupDescription, MemberDescription
from consumer_membership.devbroker import Broker
from consumer_membership.types import GroupProtocol
from tests.integration.partners import MixedGroup, Partner
from tests.integration.writer import PARTITIONS, Writer
from tests.observe.conversion_incidents import converted, grown
from tests.observe.incidents import RAW, Stage, app
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, unique
from tests.support.kinds import BIDIRECTIONAL, SHORT_SESSIONS
from tests.support.partners.books import Account, uncommitted
from tests.support.partners.life import Client, Strategy
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLASSIC, CONSUMER = GroupProtocol.CLASSIC, GroupProtocol.CONSUMER
#: Until the coordinator notices a death, if no process leaves on the dead member's behalf.
_SHORT_SESSION_MS = 6_000
_MOVES = ("assigned", "revoked", "lost")
#: librdkafka reports this error if a conversion interrupts its JoinGroup; it rejoins automatically.
_OVERTAKEN = "JoinGroup failed: Broker: Group rebalance in progress"


@pytest.fixture
def converting(broker_pool: RunBrokers) -> Broker:
    """A broker that converts groups, with short sessions."""
    return broker_pool.shared(NEWEST, properties=BIDIRECTIONAL)


@pytest.fixture
def strict(broker_pool: RunBrokers) -> Broker:
    """A broker that does not convert groups with members (group.consumer.migration.policy=disabled)."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of member: client, protocol and assignor."""

    client: Client
    protocol: str = "classic"
    strategies: tuple[Strategy, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.client, *(self.strategies or (self.protocol,))))


OURS_EAGER = Kind(client=Client.OURS, strategies=(Strategy.RANGE,))
OURS_COOPERATIVE = Kind(client=Client.OURS, strategies=(Strategy.COOPERATIVE_STICKY,))
OURS = Kind(client=Client.OURS, protocol="consumer")
#: This package's defaults.
OURS_AUTO = Kind(client=Client.OURS, protocol="auto")
CONFLUENT_RANGE = Kind(client=Client.CONFLUENT, strategies=(Strategy.RANGE,))
#: confluent-kafka's defaults.
CONFLUENT_DEFAULT = Kind(client=Client.CONFLUENT, strategies=(Strategy.RANGE, Strategy.ROUNDROBIN))
CONFLUENT_COOPERATIVE = Kind(client=Client.CONFLUENT, strategies=(Strategy.COOPERATIVE_STICKY,))
CONFLUENT = Kind(client=Client.CONFLUENT, protocol="consumer")
KAFKA_PYTHON_RANGE = Kind(client=Client.KAFKA_PYTHON, strategies=(Strategy.RANGE,))
KAFKA_PYTHON_COOPERATIVE = Kind(client=Client.KAFKA_PYTHON, strategies=(Strategy.COOPERATIVE_STICKY,))


class Migration:
    """A group that changes its protocol, and the load on its topic."""

    def __init__(self, mixed_group: MixedGroup, writer: Writer) -> None:
        self.mixed_group = mixed_group
        self._writer = writer
        self._admin = GroupAdmin({"bootstrap.servers": mixed_group.bootstrap_servers})

    @property
    def members(self) -> list[Partner]:
        """The current members."""
        return list(self.mixed_group.members)

    # ---- joins and leaves ----

    def join(self, kind: Kind, instance_id: str | None = None, session_timeout_ms: int = 10_000) -> Partner:
        """Start a member."""
        return self.mixed_group.join(
            kind.client,
            *kind.strategies,
            protocol=kind.protocol,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )

    def roll(self, kinds: Sequence[Kind], last: GroupProtocol, *, until_last: GroupProtocol = CONSUMER) -> None:
        """Close each member and start one of these kinds in its place, with its instance id.

        The group is of type `until_last` until no former member is left, and then of type `last`.
        """
        former = self.members
        for member, kind in zip(former, kinds, strict=True):
            self.mixed_group.leave(member)
            self.join(kind, member.life.instance_id)
            self.settled(last if member is former[-1] else until_last)

    def kill_with_a_batch(self, member: Partner) -> None:
        """Kill a member that has received, but not committed, records of each of its partitions."""
        member.withhold()
        member.wait(_has_a_batch, "uncommitted records of each of its partitions")
        owned = member.owned
        self.mixed_group.kill(member)
        assert {partition for partition, _ in uncommitted(member.account)} == owned

    def empty(self) -> None:
        """Close all members, and wait until the group has none.

        On a busy machine, a leave may stay unanswered; the coordinator then keeps the member until its session ends.
        Meanwhile, a broker that converts no group rejects members of the other type, which is fatal for librdkafka's.
        """
        for member in self.members:
            self.mixed_group.leave(member)
        wait_until(lambda: not self.group().members, "a group without members", seen=self.group)

    # ---- the group's state ----

    def group(self) -> GroupDescription:
        """The group as its coordinator describes it."""
        return self._admin.describe(self.mixed_group.group, with_offsets=False).group

    def _complete_group(self) -> GroupDescription | None:
        group = self.group()
        is_complete = {one.life.client_id for one in self.members} <= {one.client_id for one in group.members}
        return group if is_complete else None

    def settled(self, protocol: GroupProtocol) -> None:
        """Wait until each partition has one owner, the group is of this type, and our members' views agree."""
        self.mixed_group.settled()
        # A member whose session ended on a busy machine owns its partitions until it is fenced; then it rejoins.
        group = wait_until(self._complete_group, "each member in the description of the group", seen=self.group)
        assert group.protocol is protocol, str(self.mixed_group)
        described = {member.client_id: member for member in group.members}
        ours = []
        for partner in self.members:
            member = described[partner.life.client_id]
            assert partner.life.protocol in ("auto", member.protocol.value)
            if partner.life.client is Client.OURS:
                # Static members are replaced without a rebalance, so the others may not know the new type of the group.
                is_told = partner.life.instance_id is None
                tells = partial(_tells, group=group if is_told else None, member=member)
                partner.wait(tells, f"a view of {member}")
                ours.append(partner)
        if protocol is CLASSIC:
            # A member reports its assignment first, then reads records, and reports its view after that.
            self.mixed_group.wait(lambda: _are_level(ours), "views of one generation")

    # ---- the records ----

    def finish(self) -> dict[str, Counter[tuple[int, int]]]:
        """End the load and check the records: exactly the uncommitted records of members were repeated.

        Return these records by client id, for the members that revoked, lost or died with uncommitted records.
        """
        self.mixed_group.everything_seen(self._writer.stop())
        self.mixed_group.check(allowed_error=_OVERTAKEN)
        twice = Counter({place: count - 1 for place, count in self.mixed_group.seen().items() if count > 1})
        left = {partner.life.client_id: uncommitted(partner.account) for partner in self.mixed_group.partners}
        assert twice == sum(left.values(), Counter())
        return {name: places for name, places in left.items() if places}


def _has_a_batch(account: Account) -> bool:
    pending: dict[int, int] = dict.fromkeys(account.owned, 0)
    for report in account.reports:
        if report.event == "committed":
            pending |= {p: at for p, at in report.offsets if p in pending}
    return all(account.reached.get(p, 0) > at for p, at in pending.items())


def _tells(account: Account, group: GroupDescription | None, member: MemberDescription) -> bool:
    """Whether the view agrees with the coordinator about group and member; a classic member has no epoch."""
    view = account.view
    if view is None or view.protocol != member.protocol.value or member.epoch not in (None, view.generation):
        return False
    return group is None or view.group == group.protocol.value


def _are_level(members: Sequence[Partner]) -> bool:
    """Whether the views' generations differ by one at most: a rebalance that moves no partition may be in progress."""
    generations = {view.generation or 0 for member in members if (view := member.account.view) is not None}
    return max(generations, default=0) - min(generations, default=0) <= 1


def _commits_after(account: Account, count: int) -> bool:
    return any(report.event == "committed" for report in account.reports[count:])


@contextmanager
def migration_on(broker: Broker, folder: Path) -> Iterator[Migration]:
    """A new group, whose topic is written to throughout."""
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("topic"), PARTITIONS)
    with (
        MixedGroup(servers, unique("group"), topic, PARTITIONS, folder) as mixed_group,
        Writer(servers, topic) as writer,
    ):
        yield Migration(mixed_group, writer)


# ---- online ---------------------------------------------------------------------------------------------------------


def there_and_back(broker: Broker, folder: Path, kinds: Sequence[Kind]) -> None:
    """Roll these classic members to our consumer protocol members and back; no record is repeated."""
    with migration_on(broker, folder) as migration:
        for kind in kinds:
            migration.join(kind)
        migration.settled(CLASSIC)
        migration.roll([OURS] * len(kinds), CONSUMER)
        migration.roll(kinds, CLASSIC)
        assert migration.finish() == {}


@pytest.mark.parametrize("kind", [OURS_EAGER, OURS_COOPERATIVE, CONFLUENT_RANGE, KAFKA_PYTHON_COOPERATIVE], ids=str)
def test_rolling_restart_converts_a_group_to_the_consumer_protocol_and_back(
    converting: Broker, tmp_path: Path, kind: Kind
) -> None:
    """S21, S22, B21: The first new member converts the group; the leave of the last one converts it back."""
    there_and_back(converting, tmp_path, [kind] * 3)


def test_group_of_many_clients_is_converted_to_the_consumer_protocol_and_back(
    broker_pool: RunBrokers, tmp_path: Path
) -> None:
    """S21, S22, B21: Members of several clients are rolled to the consumer protocol and back on the oldest broker."""
    there_and_back(broker_pool.shared(OLDEST), tmp_path, [CONFLUENT_RANGE, OURS_EAGER, KAFKA_PYTHON_RANGE])


def test_conversion_with_killed_members_repeats_only_uncommitted_records(converting: Broker, tmp_path: Path) -> None:
    """S21, S22: Records that a member had not committed when it was killed are repeated, and no others.

    The last step back is an exception. If the coordinator finds the last member of the consumer protocol dead while
    another member joins, the classic group's generation is ahead of those members that have not gone through that
    rebalance. They get ILLEGAL_GENERATION and lose their partitions.
    """
    kinds = [CONFLUENT_RANGE, OURS_EAGER]
    with migration_on(converting, tmp_path) as migration:
        for kind in kinds:
            migration.join(kind, session_timeout_ms=_SHORT_SESSION_MS)
        migration.settled(CLASSIC)
        killed = migration.members
        for member in killed:
            migration.kill_with_a_batch(member)
            migration.join(OURS)
            migration.settled(CONSUMER)
        newer = migration.members
        for member, kind in zip(newer, kinds, strict=True):
            migration.kill_with_a_batch(member)
            migration.join(kind)
            migration.settled(CLASSIC if member is newer[-1] else CONSUMER)
        fenced = {member.life.client_id for member in migration.members if _has_lost(member)}
        assert migration.finish().keys() - fenced == {member.life.client_id for member in killed + newer}


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_static_member_replaced_by_the_other_protocol_moves_no_partition(
    broker_pool: RunBrokers, tmp_path: Path, version: str
) -> None:
    """B21: A member of the other protocol takes the place of a closed or dead holder of its instance id.

    If one of the two is classic, the holder need not release the id. The other members revoke nothing and get nothing.
    """
    with migration_on(broker_pool.shared(version), tmp_path) as migration:
        for instance_id in "abc":
            migration.join(OURS_COOPERATIVE, instance_id)
        migration.settled(CLASSIC)
        killed = []
        for kind in (OURS, OURS_COOPERATIVE):
            owned = {member.life.instance_id: member.owned for member in migration.members}
            former = migration.members
            for member in former:
                moves = {other: _moves(other) for other in migration.members if other is not member}
                if member.life.instance_id == "b":
                    migration.kill_with_a_batch(member)
                    killed.append(member.life.client_id)
                else:
                    migration.mixed_group.leave(member)
                migration.join(kind, member.life.instance_id)
                migration.settled(CLASSIC if kind is not OURS and member is former[-1] else CONSUMER)
                assert {other: _moves(other) for other in moves} == moves
            assert {member.life.instance_id: member.owned for member in migration.members} == owned
        assert sorted(migration.finish()) == sorted(killed)


def _has_lost(member: Partner) -> bool:
    return any(report.event == "lost" for report in member.account.reports)


def _moves(member: Partner) -> list[frozenset[int]]:
    """The partitions that it was assigned, revoked and lost."""
    return [report.partitions for report in member.account.reports if report.event in _MOVES and report.partitions]


# ---- group.protocol=auto --------------------------------------------------------------------------------------------


def test_replacing_confluent_kafka_with_default_settings_keeps_a_classic_group(
    converting: Broker, tmp_path: Path
) -> None:
    """S21: Members with default settings join the classic group of confluent-kafka, on a broker that would convert it.

    Later settings request the conversion.
    """
    with migration_on(converting, tmp_path) as migration:
        for _ in range(3):
            migration.join(CONFLUENT_DEFAULT)
        migration.settled(CLASSIC)
        migration.roll([OURS_AUTO] * 3, CLASSIC, until_last=CLASSIC)
        for member in migration.members:
            view = member.account.view
            assert view is not None
            assert re.search(r"the group has \d classic members; group\.protocol=consumer converts it", view.text)
        migration.roll([OURS] * 3, CONSUMER)
        assert migration.finish() == {}


def test_group_led_by_librdkafka_s_cooperative_sticky_is_converted_after_its_leave(
    converting: Broker, tmp_path: Path
) -> None:
    """B24: librdkafka repeats its members' user data in the assignment, and the broker never discards user data.

    Our members join it as classic members; once one of them leads, the next one converts the group.
    """
    with migration_on(converting, tmp_path) as migration:
        former = []
        # One after the other: members have user data from their second generation on.
        for _ in range(2):
            former.append(migration.join(CONFLUENT_COOPERATIVE))
            migration.settled(CLASSIC)
        first = migration.join(Kind(client=Client.OURS, protocol="auto", strategies=(Strategy.COOPERATIVE_STICKY,)))
        migration.settled(CLASSIC)
        assert first.account.view is not None
        assert "the group has 2 classic members; group.protocol=consumer converts it" in first.account.view.text
        for member in former:
            migration.mixed_group.leave(member)
            migration.settled(CLASSIC)
        migration.join(OURS)
        migration.settled(CONSUMER)
        assert first.account.view.protocol == "classic"
        # While a cooperative group rebalances, librdkafka's commits are refused, and librdkafka does not repeat them.
        assert migration.finish().keys() <= {member.life.client_id for member in former}


# ---- offline --------------------------------------------------------------------------------------------------------


def test_emptied_group_changes_its_type_and_keeps_its_offsets(strict: Broker, tmp_path: Path) -> None:
    """S20: All members leave and others join, on a broker that converts no group with members."""
    with migration_on(strict, tmp_path) as migration:
        for kind in (CONFLUENT_RANGE, OURS, OURS_COOPERATIVE, CONFLUENT):
            migration.empty()
            for _ in range(2):
                migration.join(kind)
            migration.settled(CONSUMER if kind.protocol == "consumer" else CLASSIC)
        assert migration.finish() == {}


# ---- classic members of consumer groups -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OURS_EAGER, OURS_COOPERATIVE], ids=str)
def test_classic_members_share_the_partitions_of_a_consumer_group(
    converting: Broker, tmp_path: Path, kind: Kind
) -> None:
    """Our classic members join a group of the other type, share its partitions and rebalances, leave and die.

    The coordinator assigns; a heartbeat's REBALANCE_IN_PROGRESS sends them through JoinGroup and SyncGroup each time.
    """
    with migration_on(converting, tmp_path) as migration:
        holders = [migration.join(CONFLUENT), migration.join(OURS)]
        migration.settled(CONSUMER)
        guests = [migration.join(kind, session_timeout_ms=_SHORT_SESSION_MS) for _ in range(2)]
        migration.settled(CONSUMER)
        for member in guests:
            member.wait(partial(_commits_after, count=len(member.account.reports)), "a commit that is taken")
        for _ in range(3):
            # The rebalances overlap: each begins before the previous one has ended.
            temporary = migration.join(OURS)
            temporary.wait(lambda a: a.view is not None and bool(a.view.generation), "its epoch")
            migration.mixed_group.leave(temporary)
        migration.settled(CONSUMER)
        migration.mixed_group.leave(guests[0])
        migration.settled(CONSUMER)
        migration.kill_with_a_batch(guests[1])
        migration.settled(CONSUMER)
        migration.join(kind)
        for holder in holders:
            migration.mixed_group.leave(holder)
        migration.settled(CLASSIC)
        # A commit of librdkafka's member with the epoch of before a rebalance is refused, and its records are repeated.
        assert migration.finish().keys() - {holders[0].life.client_id} == {guests[1].life.client_id}


# ---- in the middle of a rebalance ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_static_member_that_converts_during_a_rebalance_assigns_every_partition(
    broker_pool: RunBrokers, version: str
) -> None:
    """KAFKA-21582: librdkafka's replacement leaves the partitions of a departed member without an owner.

    Ours does not.
    """
    stage = Stage(broker_pool.shared(version, properties=BIDIRECTIONAL).bootstrap_servers)
    with ExitStack() as stack:
        members = converted(stage, unique("group"), stack, stage.topic(6), ConsumerThread.stop, kind=Consumer)
        for member in members:
            member.has(3)


def test_static_member_that_converts_a_group_assigns_added_partitions(converting: Broker) -> None:
    """KAFKA-21582: librdkafka's replacement leaves partitions that were added to the topic in between without an owner.

    Ours does not.
    """
    stage, group = Stage(converting.bootstrap_servers), unique("group")
    topic = stage.topic(6)
    with ExitStack() as stack:
        converted(stage, group, stack, topic, partial(grown, stage, topic), state="Stable", kind=Consumer)
        stage.until(group, lambda one: [len(member.assignment) for member in one.members] == [3] * 3)


def test_static_member_that_converts_during_a_rebalance_gives_each_member_partitions(converting: Broker) -> None:
    """KAFKA-21582: librdkafka's replacement leaves a joining member without a partition; ours does not."""
    stage, group = Stage(converting.bootstrap_servers), unique("group")
    topic = stage.topic(6)
    with ExitStack() as stack:

        def happens(_: ConsumerThread[Any]) -> None:
            app(stage, stack, RAW, group, topic)

        converted(stage, group, stack, topic, happens, kind=Consumer)
        stage.until(group, lambda one: [len(member.assignment) > 0 for member in one.members] == [True] * 4)
