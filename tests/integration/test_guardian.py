"""Applications that die without a clean leave, with and without a guardian, on a real broker."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from consumer_membership.devbroker import Broker
from consumer_membership.membership.classic.exchanges import ClassicVerdict, JoinRejected
from consumer_membership.runtime.guardian.leave_requests import LeaveRequest
from consumer_membership.runtime.guardian.leaving import leave
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.types import NO_MEMBER_ID, GroupProtocol
from tests.integration.guardian_kills import SESSION_S, guardian_log_after_kill, members
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.leave_requests import leave_request
from tests.runtime.guardian.processes import has_ended
from tests.runtime.network.classic_members import Cluster, Member, with_members
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until
from tests.wire.classic import join_order

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of twelve partitions."""
    return create_topic(broker.bootstrap_servers, unique("topic"), 12)


@pytest.fixture
def group() -> str:
    """A new group."""
    return unique("group")


def test_guardian_leaves_for_a_killed_member_long_before_its_session_ends(
    broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    """The guardian sends -1 for the killed member.

    The coordinator removes it, and the other member owns all partitions after its next heartbeats.
    """
    servers = broker.bootstrap_servers
    with (
        ConsumerProcess(servers, group, topic, tmp_path / "one") as one,
        ConsumerProcess(servers, group, topic, tmp_path / "two") as two,
    ):
        assert guardian_log_after_kill(one, two, group).startswith("left on its behalf (epoch -1)")
        assert members(broker, group) == 1


def test_guardian_releases_a_killed_static_member_s_place_for_its_replacement(
    broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    """The guardian sends -2 for the killed member.

    The replacement joins as after a clean close, and the other member sees no change.
    """
    servers = broker.bootstrap_servers
    with (
        ConsumerProcess(servers, group, topic, tmp_path / "other", group_instance_id="other") as other,
        ConsumerProcess(servers, group, topic, tmp_path / "first", group_instance_id="i") as first,
    ):
        owned = first.settled(6).owned
        other.settled(6)
        before = other.log.read_text().count("assigned partitions")
        guardian = first.guardian()
        first.kill()
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        with ConsumerProcess(servers, group, topic, tmp_path / "again", group_instance_id="i") as again:
            assert again.settled(6).owned == owned
            log = again.log.read_text()
        assert "UNRELEASED_INSTANCE_ID" not in log
        assert "Took over" not in log
        assert "(epoch -2)" in first.guardian_lines()[0]
        assert other.log.read_text().count("assigned partitions") == before


def test_guardian_of_a_closed_member_sends_no_leave(broker: Broker, topic: str, group: str, tmp_path: Path) -> None:
    """The member leaves itself; the guardian sends nothing and ends with the process."""
    with ConsumerProcess(broker.bootstrap_servers, group, topic, tmp_path / "one") as one:
        one.settled(12)
        guardian = one.guardian()
        one.order("close")
        assert one.process.wait(PATIENCE_S) == 0
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert one.guardian_lines() == []
    assert members(broker, group) == 0


def test_guardian_does_not_leave_for_a_stopped_member(broker: Broker, topic: str, group: str, tmp_path: Path) -> None:
    """A member stopped by SIGSTOP for ten of the other's heartbeats keeps its partitions, as the other member does."""
    servers = broker.bootstrap_servers
    with (
        ConsumerProcess(servers, group, topic, tmp_path / "one") as one,
        ConsumerProcess(servers, group, topic, tmp_path / "two") as two,
    ):
        owned = one.settled(6).owned
        others = two.settled(6)
        stopped = psutil.Process(one.process.pid)
        stopped.suspend()
        wait_until(lambda: two.report().heartbeats >= others.heartbeats + 10, "ten heartbeats of the other")
        assert two.report().owned == others.owned
        assert members(broker, group) == 2
        stopped.resume()
        heartbeats = one.report().heartbeats
        wait_until(lambda: one.report().heartbeats >= heartbeats + 3, "three heartbeats more")
        assert one.report().owned == owned
        assert one.guardian_lines() == []


def test_guardian_leaves_for_a_killed_classic_member_long_before_its_session_ends(
    broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    """The coordinator assigns a classic member's id, and the guardian's leave request names it."""
    servers = broker.bootstrap_servers
    with (
        ConsumerProcess(servers, group, topic, tmp_path / "one", group_protocol="classic") as one,
        ConsumerProcess(servers, group, topic, tmp_path / "two", group_protocol="classic") as two,
    ):
        assert guardian_log_after_kill(one, two, group).startswith("left on its behalf (LeaveGroup)")


def test_killed_classic_static_member_keeps_its_partitions_for_its_replacement(
    broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    """The guardian sends no leave.

    The group keeps the place for the replacement (KIP-345), and the other member sees no change.
    """
    servers = broker.bootstrap_servers
    classic = {"group_protocol": "classic"}
    with (
        ConsumerProcess(servers, group, topic, tmp_path / "other", group_instance_id="other", **classic) as other,
        ConsumerProcess(servers, group, topic, tmp_path / "first", group_instance_id="i", **classic) as first,
    ):
        owned = first.settled(6).owned
        other.settled(6)
        before = other.log.read_text().count("assigned partitions")
        assert before
        assert first.children() == []
        first.kill()
        with ConsumerProcess(servers, group, topic, tmp_path / "again", group_instance_id="i", **classic) as again:
            assert again.settled(6).owned == owned
            heartbeats = other.report().heartbeats
            wait_until(lambda: other.report().heartbeats >= heartbeats + 3, "three heartbeats of the other")
            assert other.log.read_text().count("assigned partitions") == before


def test_guardian_leaves_for_a_pending_classic_member(broker: Broker, topic: str, group: str) -> None:
    """KIP-394: The member died between the assignment of its id and its join. A second leave gets UNKNOWN_MEMBER_ID."""
    request = _pending(Cluster(broker.bootstrap_servers, topic, SESSION_S), group)
    assert leave(request).text.startswith("left on its behalf (LeaveGroup)")
    assert leave(request).text.endswith("responded with UNKNOWN_MEMBER_ID")


def _pending(cluster: Cluster, group: str) -> LeaveRequest:
    """The leave request of a member that has an id from the coordinator but has not joined yet."""

    async def act(member: Member) -> LeaveRequest:
        place = await member.coordinator()
        answer = await exchange(member.client, place, group, join_order(member_id=NO_MEMBER_ID), PATIENCE_S)
        assert isinstance(answer, JoinRejected)
        assert answer.verdict is ClassicVerdict.MEMBER_ID_REQUIRED, answer
        return leave_request(
            (place.host, place.port), member_id=answer.member_id, protocol=GroupProtocol.CLASSIC, group_id=group
        )

    return with_members(cluster, 1, act, group)
