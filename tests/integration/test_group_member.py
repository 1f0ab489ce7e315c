"""`GroupMember` on real brokers: shards move between members that fetch nothing, under both protocols."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer, GroupMember, MemberState
from consumer_membership.admin import GroupAdmin
from tests.integration.grounds import Ground, on
from tests.support.kafka import unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class Shards:
    """A member and the shards that its callbacks say it owns."""

    def __init__(self, ground: Ground, group: str, topic: str, **config: object) -> None:
        given = {key.replace("_", "."): value for key, value in {**ground.mode, **config}.items()}
        settings = {"bootstrap.servers": ground.bootstrap_servers, "group.id": group, "heartbeat.interval.ms": 200}
        self.member = GroupMember({**settings, "rebalance.callbacks": "incremental", **given})
        self.owned: set[int] = set()
        self.member.subscribe([topic], on_assign=self._take, on_revoke=self._release, on_lost=self._release)

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
def test_shards_move_between_members_and_progress_is_committed(ground: Ground) -> None:
    """Two members share the shards, a static one returns to its own, and a leave gives them away.

    The progress of a shard is read by its next owner. A consumer may be a member of the same group.
    """
    topic, group = ground.topic(6, "shards"), unique("group")
    with ExitStack() as stack:
        first = Shards(ground, group, topic, ownership_lease_enable=True)
        stack.callback(first.member.close)
        settled(6, members=[first])
        second = Shards(ground, group, topic, group_instance_id="b")
        stack.callback(second.member.close)
        settled(3, 3, members=[first, second])
        shard = min(second.owned)
        second.member.commit([Partition(topic, shard, 41, metadata="page 41")])
        kept = set(second.owned)
        second.member.close()
        again = Shards(ground, group, topic, group_instance_id="b")
        stack.callback(again.member.close)
        settled(3, 3, members=[first, again])
        assert again.owned == kept
        again.member.close(membership="leave")
        settled(6, members=[first])
        (progress,) = first.member.committed([Partition(topic, shard)], 30)
        assert progress.offset == 41
        lease = first.member.lease(Partition(topic, shard))
        assert lease.holds
        assert lease.token == first.member.membership().owned[(topic, shard)]  # type: ignore[index]  # a named tuple
        first.member.close()
        assert first.owned == set()


@on("newest-consumer")
def test_removed_group_member_loses_its_shards_and_rejoins(ground: Ground) -> None:
    """An administrator removes it: `on_lost` is called, and the member joins again."""
    topic, group = ground.topic(2, "shards"), unique("group")
    one = Shards(ground, group, topic)
    try:
        settled(2, members=[one])
        epoch = one.member.generation()
        GroupAdmin({"bootstrap.servers": ground.bootstrap_servers}).remove_members(group, all_members=True)
        wait_until(lambda: one.member.poll(0.1) and not one.owned, "the loss")
        settled(2, members=[one])
        assert one.member.generation() > epoch
    finally:
        one.member.close()


def test_group_member_is_no_consumer() -> None:
    """It has no method that fetches."""
    assert not issubclass(GroupMember, Consumer)
    assert not {"consume", "seek", "position", "assign"} & set(vars(GroupMember))
