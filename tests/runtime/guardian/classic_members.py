"""A member of a classic group in a process of its own, with its guardian: the protocol by hand, the will as it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from consumer_membership.membership.classic.exchanges import ClassicVerdict, JoinRejected
from consumer_membership.membership.events import TimePassed
from consumer_membership.runtime.guardian.observer import GuardianObserver
from consumer_membership.runtime.guardian.owner import OF_THIS_PROCESS
from consumer_membership.runtime.guardian.wills import Will
from consumer_membership.types import NO_MEMBER_ID, GroupProtocol, TopicPartition
from tests.runtime.clients import PATIENCE_S, settings
from tests.runtime.guardian.processes import Application
from tests.runtime.guardian.wills import view, will
from tests.runtime.test_classic_client_floors import Cluster, Member, with_members
from tests.wire.classic import join_order

_PROGRAM = """
from tests.runtime.guardian.classic_members import follow
say(*follow(*sys.argv[1:]))
order()
"""


class Joined(NamedTuple):
    """A member after its join."""

    member_id: str
    generation: int
    owned: frozenset[TopicPartition]


class ClassicMemberProcess(Application):
    """A follower; its log is in `log`. It sends no heartbeats: what it lives through is shorter than its session."""

    def __init__(self, cluster: Cluster, group: str, log: Path, instance_id: str = "") -> None:
        self.log, self._cluster = log, cluster
        words = (cluster.bootstrap_servers, cluster.topic, str(cluster.session_s), group, instance_id)
        with log.open("ab") as stderr:
            super().__init__(_PROGRAM, *words, stderr=stderr)

    def joined(self) -> Joined:
        """What it became."""
        member_id, generation, *owned = self.hears()
        return Joined(member_id, int(generation), self._cluster.partitions(*map(int, owned)))

    def guardian_lines(self) -> list[str]:
        """What its guardian wrote into the log."""
        return [line for line in self.log.read_text().splitlines() if "its process" in line]


def follow(bootstrap_servers: str, topic: str, session_s: str, group: str, instance_id: str) -> list[object]:
    """Join this group, and let this process's guardian know; the member's id, its generation and its partitions."""
    cluster = Cluster(bootstrap_servers, topic, float(session_s))

    async def act(member: Member) -> list[object]:
        await member.follow()
        place = await member.coordinator()
        picture = view(
            coordinator=(place.host, place.port),
            member_id=member.member_id,
            instance_id=member.instance_id,
            protocol=GroupProtocol.CLASSIC,
            group_id=group,
        )
        GuardianObserver(OF_THIS_PROCESS.get(), settings()).observed(TimePassed(), (), picture)
        return [member.member_id, member.generation, *sorted(one.partition for one in member.owned)]

    return with_members(cluster, 1, act, group, instance_id or None)


def pending_will(cluster: Cluster, group: str) -> Will:
    """The will of a member that got its id from the coordinator, and no further."""

    async def act(member: Member) -> Will:
        place = await member.coordinator()
        answer = await member.client.join(place, group, join_order(member_id=NO_MEMBER_ID), PATIENCE_S)
        assert isinstance(answer, JoinRejected)
        assert answer.verdict is ClassicVerdict.MEMBER_ID_REQUIRED, answer
        return will(
            (place.host, place.port), member_id=answer.member_id, protocol=GroupProtocol.CLASSIC, group_id=group
        )

    return with_members(cluster, 1, act, group)
