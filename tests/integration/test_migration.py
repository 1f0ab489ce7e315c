"""Groups that change from one protocol to the other, on a real broker, while records flow (rules 4.10).

Online, member by member: the coordinator converts a group of living members. Offline: it was empty meanwhile. The books
are those of mixed groups (`tests.integration.partners`): each partition has one owner and never two, no record is lost,
and a record comes twice only where a member had not committed it when it gave its partition up or died.
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
from tests.integration.partners import Company, Partner
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

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLASSIC, CONSUMER = GroupProtocol.CLASSIC, GroupProtocol.CONSUMER
#: Until the coordinator notices a death, where nobody leaves on the dead member's behalf.
_SHORT_SESSION_MS = 6_000
_MOVES = ("assigned", "revoked", "lost")
#: librdkafka tells its application when a conversion overtakes its JoinGroup; it joins again by itself.
_OVERTAKEN = "JoinGroup failed: Broker: Group rebalance in progress"


@pytest.fixture
def converting(broker_pool: RunBrokers) -> Broker:
    """A broker that converts groups, with short sessions."""
    return broker_pool.shared(NEWEST, properties=BIDIRECTIONAL)


@pytest.fixture
def strict(broker_pool: RunBrokers) -> Broker:
    """A broker that converts no group that has members (group.consumer.migration.policy=disabled)."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way to be a member."""

    client: Client
    protocol: str = "classic"
    strategies: tuple[Strategy, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.client, *(self.strategies or (self.protocol,))))


OURS_EAGER = Kind(client=Client.OURS, strategies=(Strategy.RANGE,))
OURS_COOPERATIVE = Kind(client=Client.OURS, strategies=(Strategy.COOPERATIVE_STICKY,))
OURS = Kind(client=Client.OURS, protocol="consumer")
#: Nothing is configured.
OURS_AUTO = Kind(client=Client.OURS, protocol="auto")
CONFLUENT_RANGE = Kind(client=Client.CONFLUENT, strategies=(Strategy.RANGE,))
#: What confluent-kafka does where nothing is configured.
CONFLUENT_DEFAULT = Kind(client=Client.CONFLUENT, strategies=(Strategy.RANGE, Strategy.ROUNDROBIN))
CONFLUENT_COOPERATIVE = Kind(client=Client.CONFLUENT, strategies=(Strategy.COOPERATIVE_STICKY,))
CONFLUENT = Kind(client=Client.CONFLUENT, protocol="consumer")
KAFKA_PYTHON_RANGE = Kind(client=Client.KAFKA_PYTHON, strategies=(Strategy.RANGE,))
KAFKA_PYTHON_COOPERATIVE = Kind(client=Client.KAFKA_PYTHON, strategies=(Strategy.COOPERATIVE_STICKY,))


class Migration:
    """A group on its way from one protocol to the other, and the load on its topic."""

    def __init__(self, company: Company, writer: Writer) -> None:
        self.company = company
        self._writer = writer
        self._admin = GroupAdmin({"bootstrap.servers": company.bootstrap_servers})

    @property
    def members(self) -> list[Partner]:
        """Who is a member now."""
        return list(self.company.members)

    # ---- who comes and goes ----

    def join(self, kind: Kind, instance_id: str | None = None, session_timeout_ms: int = 10_000) -> Partner:
        """Start a member."""
        return self.company.join(
            kind.client,
            *kind.strategies,
            protocol=kind.protocol,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )

    def roll(self, kinds: Sequence[Kind], last: GroupProtocol, *, until_last: GroupProtocol = CONSUMER) -> None:
        """Have each member leave and one of these kinds come in its place, with its instance id.

        The group is of type `until_last` until nobody of the former members is there, and then of type `last`.
        """
        former = self.members
        for member, kind in zip(former, kinds, strict=True):
            self.company.dismiss(member)
            self.join(kind, member.life.instance_id)
            self.settled(last if member is former[-1] else until_last)

    def kill_with_a_batch(self, member: Partner) -> None:
        """End a member without a goodbye; of each of its partitions it was given records that it did not commit."""
        member.withhold()
        member.wait(_has_a_batch, "uncommitted records of each of its partitions")
        owned = member.owned
        self.company.kill(member)
        assert {partition for partition, _ in uncommitted(member.account)} == owned

    # ---- what the group is ----

    def group(self) -> GroupDescription:
        """The group as its coordinator knows it."""
        return self._admin.describe(self.company.group, with_offsets=False).group

    def settled(self, protocol: GroupProtocol) -> None:
        """Wait until everything is owned once; the group is of this type then, and our members' views say the same."""
        self.company.settled()
        group = self.group()
        assert group.protocol is protocol, str(self.company)
        described = {member.client_id: member for member in group.members}
        ours = []
        for partner in self.members:
            member = described[partner.life.client_id]
            assert partner.life.protocol in ("auto", member.protocol.value)
            if partner.life.client is Client.OURS:
                # A static member is replaced without a rebalance: the others are not told what the group is by now.
                is_told = partner.life.instance_id is None
                tells = partial(_tells, group=group if is_told else None, member=member)
                partner.wait(tells, f"a view of {member}")
                ours.append(partner)
        if protocol is CLASSIC:
            # A member tells what it was assigned, then reads, and tells its view after that.
            self.company.wait(lambda: _are_level(ours), "views of one generation")

    # ---- the books ----

    def finish(self) -> dict[str, Counter[tuple[int, int]]]:
        """End the load and close the books; who had not committed what when it gave a partition up, lost it or died.

        Those records came twice, and nothing else did.
        """
        self.company.everything_seen(self._writer.stop())
        self.company.check(may_tell=_OVERTAKEN)
        twice = Counter({place: count - 1 for place, count in self.company.seen().items() if count > 1})
        left = {partner.life.client_id: uncommitted(partner.account) for partner in self.company.everybody}
        assert twice == sum(left.values(), Counter())
        return {name: places for name, places in left.items() if places}


def _has_a_batch(account: Account) -> bool:
    pending: dict[int, int] = dict.fromkeys(account.owned, 0)
    for told in account.told:
        if told.event == "committed":
            pending |= {p: at for p, at in told.offsets if p in pending}
    return all(account.reached.get(p, 0) > at for p, at in pending.items())


def _tells(account: Account, group: GroupDescription | None, member: MemberDescription) -> bool:
    """Whether the view says what the coordinator knows of the group and of the member; a classic one has no epoch."""
    view = account.view
    if view is None or view.protocol != member.protocol.value or member.epoch not in (None, view.generation):
        return False
    return group is None or view.group == group.protocol.value


def _are_level(members: Sequence[Partner]) -> bool:
    """Whether their views are of one generation, or of two: another round, in which nothing moves, may be under way."""
    generations = {view.generation or 0 for member in members if (view := member.account.view) is not None}
    return max(generations, default=0) - min(generations, default=0) <= 1


def _commits_after(account: Account, count: int) -> bool:
    return any(told.event == "committed" for told in account.told[count:])


@contextmanager
def migration_on(broker: Broker, folder: Path) -> Iterator[Migration]:
    """A new group, whose topic is written to all the while."""
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("topic"), PARTITIONS)
    with (
        Company(servers, unique("group"), topic, PARTITIONS, folder) as company,
        Writer(servers, topic) as writer,
    ):
        yield Migration(company, writer)


# ---- online ---------------------------------------------------------------------------------------------------------


def there_and_back(broker: Broker, folder: Path, kinds: Sequence[Kind]) -> None:
    """From these classic members to ours of the consumer protocol and back: nobody sees a record twice."""
    with migration_on(broker, folder) as migration:
        for kind in kinds:
            migration.join(kind)
        migration.settled(CLASSIC)
        migration.roll([OURS] * len(kinds), CONSUMER)
        migration.roll(kinds, CLASSIC)
        assert migration.finish() == {}


@pytest.mark.parametrize("kind", [OURS_EAGER, OURS_COOPERATIVE, CONFLUENT_RANGE, KAFKA_PYTHON_COOPERATIVE], ids=str)
def test_group_is_rolled_to_the_consumer_protocol_and_back(converting: Broker, tmp_path: Path, kind: Kind) -> None:
    """S21, S22, B21: the first new member takes the group over, the last one's leave gives it back."""
    there_and_back(converting, tmp_path, [kind] * 3)


def test_group_of_many_clients_is_rolled_to_the_consumer_protocol_and_back(
    broker_pool: RunBrokers, tmp_path: Path
) -> None:
    """S21, S22, B21: members of several clients, on the oldest broker."""
    there_and_back(broker_pool.shared(OLDEST), tmp_path, [CONFLUENT_RANGE, OURS_EAGER, KAFKA_PYTHON_RANGE])


def test_members_are_killed_instead_of_closed(converting: Broker, tmp_path: Path) -> None:
    """S21, S22: what a member had not committed when it was killed comes twice, and nothing else does.

    But for the last step back: where the last member of the consumer protocol is found dead while another member joins,
    the classic group's generation is ahead of those members that have not gone through that rebalance. The coordinator
    tells them ILLEGAL_GENERATION, and what they had is lost to them.
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
def test_static_members_are_replaced_and_nothing_moves(broker_pool: RunBrokers, tmp_path: Path, version: str) -> None:
    """B21: under its instance id a member of the other protocol comes in the place of one that is closed or dead.

    Where one of the two is classic nobody has to release the id. The other members give nothing up and get nothing.
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
                    migration.company.dismiss(member)
                migration.join(kind, member.life.instance_id)
                migration.settled(CLASSIC if kind is not OURS and member is former[-1] else CONSUMER)
                assert {other: _moves(other) for other in moves} == moves
            assert {member.life.instance_id: member.owned for member in migration.members} == owned
        assert sorted(migration.finish()) == sorted(killed)


def _has_lost(member: Partner) -> bool:
    return any(told.event == "lost" for told in member.account.told)


def _moves(member: Partner) -> list[frozenset[int]]:
    """What it was given, gave up and lost."""
    return [told.partitions for told in member.account.told if told.event in _MOVES and told.partitions]


# ---- group.protocol=auto --------------------------------------------------------------------------------------------


def test_deploying_ours_with_defaults_leaves_a_group_as_it_is(converting: Broker, tmp_path: Path) -> None:
    """S21: from confluent-kafka to ours, neither configured, on a broker that would convert it; then it is told to."""
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


def test_group_that_librdkafka_leads_by_cooperative_sticky_is_converted_after_it_is_gone(
    converting: Broker, tmp_path: Path
) -> None:
    """B24: librdkafka repeats its members' user data in the assignment, and the broker would not lose any.

    Ours join it as classic members; once one of them leads, the next one converts the group.
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
            migration.company.dismiss(member)
            migration.settled(CLASSIC)
        migration.join(OURS)
        migration.settled(CONSUMER)
        assert first.account.view.protocol == "classic"
        # librdkafka's commits are refused while a cooperative group gathers, and it leaves them at that.
        assert migration.finish().keys() <= {member.life.client_id for member in former}


# ---- offline --------------------------------------------------------------------------------------------------------


def test_group_that_was_empty_comes_back_as_the_other_type(strict: Broker, tmp_path: Path) -> None:
    """S20: all members leave and others come, where the broker converts nothing; offsets stay."""
    with migration_on(strict, tmp_path) as migration:
        for kind in (CONFLUENT_RANGE, OURS, OURS_COOPERATIVE, CONFLUENT):
            for member in migration.members:
                migration.company.dismiss(member)
            for _ in range(2):
                migration.join(kind)
            migration.settled(CONSUMER if kind.protocol == "consumer" else CLASSIC)
        assert migration.finish() == {}


# ---- classic members of consumer groups -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OURS_EAGER, OURS_COOPERATIVE], ids=str)
def test_classic_members_live_in_a_consumer_group(converting: Broker, tmp_path: Path, kind: Kind) -> None:
    """Ours join a group of the other type, share its partitions, go through rebalance on rebalance, leave and die.

    The coordinator assigns; a heartbeat's REBALANCE_IN_PROGRESS sends them through JoinGroup and SyncGroup each time.
    """
    with migration_on(converting, tmp_path) as migration:
        holders = [migration.join(CONFLUENT), migration.join(OURS)]
        migration.settled(CONSUMER)
        guests = [migration.join(kind, session_timeout_ms=_SHORT_SESSION_MS) for _ in range(2)]
        migration.settled(CONSUMER)
        for member in guests:
            member.wait(partial(_commits_after, count=len(member.account.told)), "a commit that is taken")
        for _ in range(3):
            # Nobody waits for the other: the next rebalance begins before this one is over.
            visitor = migration.join(OURS)
            visitor.wait(lambda a: a.view is not None and bool(a.view.generation), "its epoch")
            migration.company.dismiss(visitor)
        migration.settled(CONSUMER)
        migration.company.dismiss(guests[0])
        migration.settled(CONSUMER)
        migration.kill_with_a_batch(guests[1])
        migration.settled(CONSUMER)
        migration.join(kind)
        for holder in holders:
            migration.company.dismiss(holder)
        migration.settled(CLASSIC)
        assert list(migration.finish()) == [guests[1].life.client_id]


# ---- in the middle of a rebalance ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_static_member_that_converts_a_rebalance_leaves_no_partition_behind(
    broker_pool: RunBrokers, version: str
) -> None:
    """KAFKA-21582: where librdkafka's replacement leaves the partitions of one who left to nobody."""
    stage = Stage(broker_pool.shared(version, properties=BIDIRECTIONAL).bootstrap_servers)
    with ExitStack() as stack:
        members = converted(stage, unique("group"), stack, stage.topic(6), ConsumerThread.stop, kind=Consumer)
        for member in members:
            member.has(3)


def test_static_member_that_converts_an_outdated_group_leaves_no_partition_behind(converting: Broker) -> None:
    """KAFKA-21582: where librdkafka's replacement leaves those that its topic has got meanwhile to nobody."""
    stage, group = Stage(converting.bootstrap_servers), unique("group")
    topic = stage.topic(6)
    with ExitStack() as stack:
        converted(stage, group, stack, topic, partial(grown, stage, topic), state="Stable", kind=Consumer)
        stage.until(group, lambda one: [len(member.assignment) for member in one.members] == [3] * 3)


def test_static_member_that_converts_a_rebalance_leaves_no_member_behind(converting: Broker) -> None:
    """KAFKA-21582: where librdkafka's replacement leaves one that was joining without a partition."""
    stage, group = Stage(converting.bootstrap_servers), unique("group")
    topic = stage.topic(6)
    with ExitStack() as stack:

        def happens(_: ConsumerThread[Any]) -> None:
            app(stage, stack, RAW, group, topic)

        converted(stage, group, stack, topic, happens, kind=Consumer)
        stage.until(group, lambda one: [len(member.assignment) > 0 for member in one.members] == [True] * 4)
