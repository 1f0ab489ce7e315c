"""`GroupMember` on real brokers: shards move between members that fetch nothing, under both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer, FatalGroupError, GroupMember, HealthVerdict, MemberState
from consumer_membership.admin import GroupAdmin
from consumer_membership.aio import AIOGroupMember
from consumer_membership.types import FENCED_INSTANCE_CODE
from tests.integration.environments import CONSUMER, VERSIONS, Environment, on
from tests.integration.fork_server import FORK_SERVER
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.waiting import PATIENCE_S, async_wait_until, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class Shards:
    """A member and the shards that it owns according to its callbacks."""

    def __init__(self, environment: Environment, group: str, topic: str, **config: object) -> None:
        given = {key.replace("_", "."): value for key, value in {**environment.mode, **config}.items()}
        settings = {"bootstrap.servers": environment.bootstrap_servers, "group.id": group, "heartbeat.interval.ms": 200}
        self.member = GroupMember({**settings, "rebalance.callbacks": "incremental", **given})
        self.owned: set[int] = set()
        self.lost: list[int] = []
        self.warm: list[int] = []
        self.member.subscribe(
            [topic], on_assign=self._take, on_revoke=self._release, on_lost=self._lose, on_warm=self._prepare
        )

    def _prepare(self, _: GroupMember, partitions: list[Partition]) -> None:
        self.warm += [one.partition for one in partitions]

    def _lose(self, member: GroupMember, partitions: list[Partition]) -> None:
        self.lost += [one.partition for one in partitions]
        self._release(member, partitions)

    def _take(self, _: GroupMember, partitions: list[Partition]) -> None:
        self.owned |= {one.partition for one in partitions}

    def _release(self, _: GroupMember, partitions: list[Partition]) -> None:
        self.owned -= {one.partition for one in partitions}

    @property
    def is_stable(self) -> bool:
        """Whether its callbacks and its view agree."""
        view = self.member.membership()
        return view.state is MemberState.STABLE and {p.partition for p in view.owned} == self.owned


def settled(*counts: int, members: list[Shards]) -> None:
    """Poll all members until they own these numbers of shards, each of them once."""

    def poll() -> None:
        for one in members:
            one.member.poll(0)

    wait_until(
        lambda: all(one.is_stable for one in members) and [len(one.owned) for one in members] == list(counts),
        f"{counts} shards",
        between=poll,
        seen=lambda: [one.member.membership() for one in members],
    )
    assert sum(len(one.owned) for one in members) == len(set().union(*(one.owned for one in members)))


@on("newest-consumer", "oldest-consumer", "newest-cooperative")
def test_shards_move_between_members_and_progress_is_committed(environment: Environment) -> None:
    """Two members share the shards, a static one returns to its own, and a leave gives them away.

    The progress of a shard is read by its next owner. A consumer may be a member of the same group.
    """
    topic, group = environment.topic(6, "shards"), unique("group")
    with ExitStack() as stack:
        first = Shards(environment, group, topic, ownership_lease_enable=True)
        stack.callback(first.member.close)
        settled(6, members=[first])
        second = Shards(environment, group, topic, group_instance_id="b")
        stack.callback(second.member.close)
        settled(3, 3, members=[first, second])
        shard = min(second.owned)
        second.member.commit([Partition(topic, shard, 41, metadata="page 41")])
        kept = set(second.owned)
        second.member.close()
        again = Shards(environment, group, topic, group_instance_id="b")
        stack.callback(again.member.close)
        settled(3, 3, members=[first, again])
        assert again.owned == kept
        again.member.close(membership="leave")
        settled(6, members=[first])
        (progress,) = first.member.committed([Partition(topic, shard)], PATIENCE_S)
        assert progress.offset == 41
        lease = first.member.lease(Partition(topic, shard))
        assert lease.holds
        assert lease.token == first.member.membership().owned[(topic, shard)]  # type: ignore[index]  # a named tuple
        first.member.close()
        assert first.owned == set()


@on("newest-consumer")
def test_removed_group_member_loses_its_shards_and_rejoins(environment: Environment) -> None:
    """An administrator removes it: `on_lost` is called, and the member joins again."""
    topic, group = environment.topic(2, "shards"), unique("group")
    one = Shards(environment, group, topic)
    try:
        settled(2, members=[one])
        epoch = one.member.generation()
        GroupAdmin({"bootstrap.servers": environment.bootstrap_servers}).remove_members(group, all_members=True)
        wait_until(lambda: one.member.poll(0.1) and not one.owned, "the loss")
        settled(2, members=[one])
        assert one.member.generation() > epoch
    finally:
        one.member.close()


@on("newest-consumer")
def test_takeover_by_instance_id_ends_the_former_member_and_its_lease(environment: Environment) -> None:
    """The newest member with an id gets the same shards; the former member loses them and its lease, and is refused."""
    topic, group = environment.topic(4, "shards"), unique("group")
    with ExitStack() as stack:
        former = Shards(environment, group, topic, group_instance_id="a", ownership_lease_enable=True)
        stack.callback(former.member.close)
        other = Shards(environment, group, topic)
        stack.callback(other.member.close)
        settled(2, 2, members=[former, other])
        taken, kept = set(former.owned), set(other.owned)
        lease = former.member.lease(Partition(topic, min(taken)))
        new = Shards(environment, group, topic, group_instance_id="a", ownership_lease_enable=True)
        stack.callback(new.member.close)
        settled(2, 2, members=[new, other])
        assert (new.owned, other.owned) == (taken, kept)
        with pytest.raises(FatalGroupError) as refused:
            wait_until(lambda: former.member.poll(0) and False, "the refusal of the former member")
        assert refused.value.code == FENCED_INSTANCE_CODE
        former.member.poll(0)
        assert (set(former.lost), former.owned, lease.holds) == (taken, set(), False)
        assert former.member.health().verdict is HealthVerdict.FATAL
        assert new.member.lease(Partition(topic, min(taken))).token > lease.token
        with pytest.raises(FatalGroupError):
            former.member.commit([Partition(topic, min(taken), 1)])


@on("newest-consumer")
def test_hand_over_prepares_the_successor_and_moves_no_other_shard(environment: Environment) -> None:
    """`on_warm` receives the shards of the holder, which then releases them in order."""
    topic, group = environment.topic(4, "shards"), unique("group")
    policy = {"group_instance_id": "a", "group_instance_id_conflict_policy": "hand-over"}
    with ExitStack() as stack:
        old = Shards(environment, group, topic, **policy)
        stack.callback(old.member.close)
        other = Shards(environment, group, topic)
        stack.callback(other.member.close)
        settled(2, 2, members=[old, other])
        moved, kept = set(old.owned), set(other.owned)
        new = Shards(environment, group, topic, **policy)
        stack.callback(new.member.close)
        ends: list[str] = []

        def poll() -> None:
            for one in (new, other):
                one.member.poll(0)
            try:
                old.member.poll(0)
            except FatalGroupError as error:
                ends.append(str(error))

        wait_until(lambda: new.is_stable and len(new.owned) == 2, "the hand-over", between=poll)
        wait_until(lambda: bool(ends), "the end of the former holder", between=poll)
        assert (set(new.warm), new.owned, other.owned, old.owned, old.lost) == (moved, moved, kept, set(), [])
        assert "was handed over to member" in ends[0]


def _live_until_killed(config: dict[str, object], topic: str, instance_ids: tuple[str, ...]) -> None:
    """Poll members on one shared thread, in a separate process; each commits its name as the owner of its shards."""

    def note(name: str) -> Callable[[GroupMember, list[Partition]], object]:
        return lambda member, partitions: (
            member.commit([Partition(one.topic, one.partition, 1, metadata=name) for one in partitions])
            if partitions
            else None
        )

    members = [GroupMember({**config, "group.instance.id": name}) for name in instance_ids]
    for member, name in zip(members, instance_ids, strict=True):
        member.subscribe([topic], on_assign=note(name))
    while True:
        for member in members:
            member.poll(0.01)


@pytest.mark.parametrize("version", ["newest", "oldest"])
def test_killed_process_with_members_is_replaced_by_instance_id_and_by_its_session(
    version: str, broker_pool: RunBrokers
) -> None:
    """A new member with an id of the killed process continues its shards; the others move when the session ends."""
    environment = Environment(broker=broker_pool.shared(VERSIONS[version], properties=SHORT_SESSIONS), mode=CONSUMER)
    topic, group = environment.topic(6, "shards"), unique("group")
    config = {"bootstrap.servers": environment.bootstrap_servers, "group.id": group, "membership.threads": "shared"}
    with ExitStack() as stack:
        survivor = Shards(environment, group, topic)
        stack.callback(survivor.member.close)
        process = FORK_SERVER.Process(target=_live_until_killed, args=(config, topic, ("a", "b")))
        process.start()
        stack.callback(process.close)
        stack.callback(process.join)
        stack.callback(process.kill)

        def owners() -> dict[int, str]:
            """Return the committed owner of each shard that the survivor does not own."""
            found = survivor.member.committed([Partition(topic, number) for number in range(6)], PATIENCE_S)
            return {
                one.partition: one.metadata for one in found if one.metadata and one.partition not in survivor.owned
            }

        settled(2, members=[survivor])
        wait_until(
            lambda: sorted(owners().values()) == ["a", "a", "b", "b"],
            "the shards of the other process",
            between=lambda: survivor.member.poll(0.1),
        )
        before, kept = owners(), set(survivor.owned)
        process.kill()
        process.join(PATIENCE_S)
        successor = Shards(environment, group, topic, group_instance_id="a")
        stack.callback(successor.member.close)
        wait_until(lambda: len(successor.owned) >= 2, "the shards of a", between=lambda: successor.member.poll(0.1))
        assert {number for number, name in before.items() if name == "a"} <= successor.owned
        settled(3, 3, members=[survivor, successor])
        assert kept <= survivor.owned
        assert survivor.lost == []


@on("newest-consumer")
def test_asyncio_members_of_one_loop_share_the_shards(environment: Environment) -> None:
    """Coroutine callbacks run on the loop, and a close of one gives its shards to the others."""
    topic, group = environment.topic(6, "shards"), unique("group")
    config = {
        "bootstrap.servers": environment.bootstrap_servers,
        "group.id": group,
        "heartbeat.interval.ms": 200,
        "rebalance.callbacks": "incremental",
        "membership.threads": "shared",
    }

    async def work(member: AIOGroupMember, owned: set[int]) -> None:
        async def take(_: AIOGroupMember, partitions: list[Partition]) -> None:
            await asyncio.sleep(0)
            owned.update(one.partition for one in partitions)

        async def release(_: AIOGroupMember, partitions: list[Partition]) -> None:
            await asyncio.sleep(0)
            owned.difference_update(one.partition for one in partitions)

        await member.subscribe([topic], on_assign=take, on_revoke=release)
        while member.health().verdict is not HealthVerdict.CLOSED:
            await member.poll(1.0)

    async def program() -> None:
        members = [AIOGroupMember(config) for _ in range(3)]
        owned: list[set[int]] = [set() for _ in members]
        tasks = [asyncio.create_task(work(*one)) for one in zip(members, owned, strict=True)]
        await async_wait_until(lambda: [len(one) for one in owned] == [2, 2, 2], "two shards each")
        assert sorted(set().union(*owned)) == list(range(6))
        await async_wait_until(
            lambda: all(one.health().verdict is HealthVerdict.CONSUMING for one in members), "the verdicts"
        )
        await members[0].close()
        await async_wait_until(lambda: [len(one) for one in owned] == [0, 3, 3], "three shards each")
        await asyncio.gather(*(one.close() for one in members[1:]))
        await asyncio.gather(*tasks)
        assert owned == [set(), set(), set()]

    asyncio.run(program())


def test_group_member_is_no_consumer() -> None:
    """It has no method that fetches."""
    assert not issubclass(GroupMember, Consumer)
    assert not {"consume", "seek", "position", "assign"} & set(vars(GroupMember))
