"""A group that has more members than the limit of the coordinator that loads it (KIP-389), for both protocols.

`group.max.size` and `group.consumer.max.size` are not dynamic: a broker has another limit after its next start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Backend, Broker
from consumer_membership.membership.states import MemberState
from tests.integration.environments import CONSUMER, COOPERATIVE, EAGER, Environment
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import produce, unique
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

FULL = KafkaError.GROUP_MAX_SIZE_REACHED
PARTITIONS = 6
#: The members of each group: a dynamic one and two static ones.
_INSTANCES = (None, "b", "c")
#: A restarted node is ready within seconds; a machine that is busy with other tests needs minutes.
_READY_S = 300.0


@dataclass(slots=True)
class LimitedBroker:
    """A broker that reads the limit of its groups from a file when it starts."""

    broker: Broker
    file: Path

    def restart(self, limit: int) -> None:
        """Stop the broker, and start it with this limit: its coordinator loads all groups."""
        self.file.write_text(f"limit={limit}\n")
        self.broker.stop_node(1)
        self.broker.start_node(1)
        self.broker.wait_ready(_READY_S)


@pytest.fixture(params=[NEWEST, OLDEST])
def limited(request: pytest.FixtureRequest, broker_pool: RunBrokers, tmp_path: Path) -> Iterator[LimitedBroker]:
    """A broker whose groups take three members."""
    file = tmp_path / "limits.properties"
    file.write_text("limit=3\n")
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "group.max.size": f"${{file:{file}:limit}}",
        "group.consumer.max.size": f"${{file:{file}:limit}}",
    }
    # On this machine, because a container does not see the file.
    with broker_pool.own(request.param, properties=properties, backend=Backend.JVM) as broker:
        yield LimitedBroker(broker=broker, file=file)


def places(*workers: Worker) -> Counter[tuple[int, int]]:
    """Return how often these members received each record."""
    return Counter((partition, offset) for one in workers for _, partition, offset, _ in one.notes.records)


def _has_committed_all(environment: Environment, group: str, topic: str) -> bool:
    committed, end = offsets_at_end(environment.bootstrap_servers, group=group, topic=topic, partitions=PARTITIONS)
    return committed == end


def test_loaded_classic_group_above_its_limit_refuses_the_members_that_join_last(limited: LimitedBroker) -> None:
    """C19, KIP-389: The coordinator rebalances the group, and JoinGroup is refused when the limit is reached.

    One of three members, static or dynamic, ends with GROUP_MAX_SIZE_REACHED. The two others own all partitions, at the
    latest after the rebalance timeout. No record is received twice, because all were committed before the restart.
    """
    groups: list[tuple[Environment, str, list[Worker]]] = []
    with ExitStack() as stack:
        for mode in (EAGER, COOPERATIVE):
            environment, group = Environment(broker=limited.broker, mode=mode), unique("group")
            topic = environment.topic(PARTITIONS)
            # The rebalance timeout is max.poll.interval.ms: the members that stay may wait for it.
            members = [
                stack.enter_context(
                    environment.member(group, [topic], group_instance_id=one, max_poll_interval_ms=50_000)
                )
                for one in _INSTANCES
            ]
            for one in members:
                one.settled(2)
            produce(environment.bootstrap_servers, topic, 300)
            members[0].wait(lambda _: places(*members).total() == 300, "300 records")  # noqa: B023 - called at once
            groups.append((environment, topic, members))
            wait_until(partial(_has_committed_all, environment, group, topic), "the commit of 300 records")
        limited.restart(2)
        for environment, topic, members in groups:
            members[0].wait(lambda _: any(one.notes.errors for one in members), "a refusal")  # noqa: B023
            (refused,) = [one for one in members if one.notes.errors]
            stay = [one for one in members if one is not refused]
            assert [(one.code(), one.fatal()) for one in refused.notes.errors[:1]] == [(FULL, True)]
            refused.wait(lambda w: w.state is MemberState.FATAL and not w.owned, "its end")
            # An eager member releases everything before it joins.
            last = "revoke" if environment.is_eager else "lost"
            refused.wait(lambda w: w.notes.calls[-1][0] == last, f"{last} as its last callback")  # noqa: B023
            for one in stay:
                one.settled(PARTITIONS // 2)
            produce(limited.broker.bootstrap_servers, topic, 300)
            stay[0].wait(lambda _: len(places(*members)) == 600, "600 records")  # noqa: B023 - called at once
            assert [one.notes.errors for one in stay] == [[], []]
            assert max(places(*members).values()) == 1


def test_loaded_consumer_group_above_its_limit_keeps_its_members_and_admits_no_other(limited: LimitedBroker) -> None:
    """C19, KIP-848: The coordinator checks the limit for new members only, so the loaded group does not change.

    A new member is refused until fewer members than the limit are left.
    """
    environment, group = Environment(broker=limited.broker, mode=CONSUMER), unique("group")
    topic = environment.topic(PARTITIONS)
    with ExitStack() as stack:
        members = [stack.enter_context(environment.member(group, [topic], group_instance_id=one)) for one in _INSTANCES]
        for one in members:
            one.settled(2)
        calls = [list(one.notes.calls) for one in members]
        limited.restart(2)
        for _ in range(2):
            with environment.member(group, [topic]) as newcomer:
                newcomer.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the refusal")
                assert (newcomer.notes.errors[0].code(), newcomer.notes.errors[0].fatal()) == (FULL, True)
                assert "2" in newcomer.notes.errors[0].str()
            produce(environment.bootstrap_servers, topic, 300)
            assert [one.notes.calls[: len(before)] for one, before in zip(members, calls, strict=True)] == calls
            members.pop(0).stop("leave")
            for one in members:
                one.settled(PARTITIONS // len(members))
            calls = [list(one.notes.calls) for one in members]
        with environment.member(group, [topic]) as newcomer:
            newcomer.settled(PARTITIONS // 2)
            assert newcomer.notes.errors == []
        assert [one.notes.errors for one in members] == [[]]
