"""Members that were away without knowing it, on a real broker: stopped processes and cut networks.

Other members cannot distinguish a process that is stopped (SIGSTOP; a debugger, a hypervisor, a laptop's lid) from one
whose network is cut. Each test shows: if a replacement took over the instance id, the former holder ends and changes
nothing any more; otherwise it rejoins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from consumer_membership.membership.consumer.claim import CREATED_BEFORE_MS, NEWEST_FOR_S
from consumer_membership.membership.states import MemberState
from tests.integration.group_under_test import (
    DEPTH,
    NEVER_MS,
    PARTITIONS,
    VICTIM,
    GroupUnderTest,
    new_group,
    partitions_of,
)
from tests.integration.victim import Victim
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import CONSUMER_GROUP_DESCRIBE, FIND_COORDINATOR, HEARTBEAT, OFFSET_COMMIT, Proxy
from tests.support.versions import NEWEST, OLDEST
from tests.support.victim import Order

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: A member that has requested this many descriptions of its group still waits for its id, and has not taken it over.
DESCRIPTIONS = 4
#: A max.poll.interval.ms that passes while a member is stopped; it is shorter than the shortest session.
POLL_INTERVAL_MS = 4500


@pytest.fixture
def version() -> str:
    """The broker's version for tests that do not set another one."""
    return NEWEST


@pytest.fixture
def group(broker_pool: RunBrokers, version: str, tmp_path: Path) -> Iterator[GroupUnderTest]:
    """A new group; sessions of 45 s."""
    with new_group(broker_pool.shared(version), tmp_path) as group:
        yield group


@pytest.fixture
def quick(broker_pool: RunBrokers, version: str, tmp_path: Path) -> Iterator[GroupUnderTest]:
    """A new group whose sessions end after 6 s."""
    with new_group(broker_pool.shared(version, properties=SHORT_SESSIONS), tmp_path) as group:
        yield group


@pytest.fixture
def proxy(group: GroupUnderTest) -> Iterator[Proxy]:
    """The victim's connection to the broker with long sessions."""
    with Proxy(group.broker.bootstrap_servers) as proxy:
        yield proxy


def behind(proxy: Proxy, group: GroupUnderTest, **config: Any) -> Victim:
    """A victim behind this proxy that reconnects quickly."""
    return group.victim(servers=proxy.address, reconnect_backoff_max_ms=300, **config)


def commit_everything(group: GroupUnderTest, *workers: Worker) -> dict[int, int]:
    """Make these members commit all records, which must be all records of their partitions.

    Return the committed offsets.
    """
    for worker in workers:
        worker.wait(lambda w: not group.missing_of(partitions_of(w)), "its records")
        worker.order(lambda consumer: consumer.commit(asynchronous=False))
        worker.wait(lambda w: {group.depth}.issuperset(map(group.committed().get, partitions_of(w))), "its commit")
    return group.committed()


def seconds_passed(worker: Worker, seconds: float) -> None:
    """Return when this live member has received a heartbeat response that many seconds from now or later."""
    until = time.monotonic() + seconds
    worker.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0.0) > until, f"{seconds} s")


def ends_for(victim: Victim, newcomer: Worker, *bystanders: Worker, commits: int = 1) -> None:
    """The victim ends as the older holder of an instance id and does not rejoin.

    The application gets the fatal error first and on_lost with its next call. `commits` is the number of its
    confirmed commits, all from the time before it was away.
    """
    victim.wait(lambda a: a.is_closed, "its end")
    assert victim.ended() == 0, str(victim)
    account = victim.account
    error, *_ = [error for error in account.errors if error["is_fatal"]]
    assert error["error"] == KafkaError.FENCED_INSTANCE_ID
    assert newcomer.consumer.memberid() in error["text"]
    assert [name for name, _ in account.calls].count("lost") == 1
    assert [name for name, _ in account.calls][-1] == "lost"
    assert (account.state, account.owned) == ("FATAL", frozenset())
    # Its later commits were refused, by the coordinator and then by the consumer, as after any fatal error.
    assert account.refused_commits[-1] == KafkaError._FATAL
    assert len(account.commits) == commits
    everybody = (newcomer, *bystanders)
    assert [worker.state for worker in everybody] == [MemberState.STABLE] * len(everybody)


@contextmanager
def nothing_changes(group: GroupUnderTest, *workers: Worker) -> Iterator[None]:
    """Committed offsets, the group's epoch, and these members' callbacks and errors do not change."""
    before = ([list(worker.notes.calls) for worker in workers], group.committed(), group.describe().epoch)
    yield
    assert ([worker.notes.calls for worker in workers], group.committed(), group.describe().epoch) == before


def holding_uncommitted(group: GroupUnderTest, victim: Victim, *bystanders: Worker) -> frozenset[int]:
    """Settle the group and give the victim records that it commits, then records that it does not.

    Return what it owns.
    """
    owned = victim.settled(6)
    for worker in bystanders:
        worker.settled(6)
    group.leave_uncommitted(victim, held=6)
    return owned


def goes_on_with_a_commit(victim: Victim) -> None:
    """Resume the victim; its first call commits the records that it received before the stop."""
    victim.order(Order.COMMIT)
    victim.resume()


# ---- stopped before the first join -----------------------------------------------------------------------------------


def test_process_stopped_before_its_first_join_does_not_replace_its_replacement(
    group: GroupUnderTest, proxy: Proxy
) -> None:
    """The process is stopped before its join, replaced and resumed.

    It waits for the holder and joins when the holder has left.
    """
    proxy.hold_from(FIND_COORDINATOR)
    victim = behind(proxy, group)
    victim.wait(lambda a: "JOINING" in (a.state, *a.states), "its first poll")
    victim.stop()
    newcomer = group.worker(VICTIM)
    newcomer.settled(PARTITIONS)
    seconds_passed(newcomer, NEWEST_FOR_S)
    proxy.heal()
    with nothing_changes(group, newcomer):
        victim.resume()
        proxy.wait(lambda: proxy.passed[CONSUMER_GROUP_DESCRIBE] >= DESCRIPTIONS, "a member that waits")
        # A holder that was taken over would be fenced now.
        seconds_passed(newcomer, 0.0)
    assert newcomer.state is MemberState.STABLE
    newcomer.stop("leave")
    victim.settled(PARTITIONS)


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_process_whose_join_is_late_takes_over_from_a_dead_process(group: GroupUnderTest, proxy: Proxy) -> None:
    """The member id of the holder shows that it is older, so the new process does not wait for the end of its session.

    The other member's heartbeats show that more than `NEWEST_FOR_S` passes before the join.
    """
    other, victim = group.worker("other"), group.victim()
    owned = victim.settled(6)
    other.settled(6)
    seconds_passed(other, CREATED_BEFORE_MS / 1000)
    victim.kill()
    proxy.hold_from(FIND_COORDINATOR)
    with nothing_changes(group, other):
        again = behind(proxy, group)
        again.wait(lambda a: "JOINING" in (a.state, *a.states), "its first poll")
        seconds_passed(other, NEWEST_FOR_S + 1.0)
        proxy.heal()
        # After the end of the session, the group would have a new epoch.
        assert again.settled(6) == owned


# ---- stopped ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_stopped_holder_ends_when_it_resumes_after_a_takeover(group: GroupUnderTest) -> None:
    """The holder is fenced and FATAL and calls on_lost.

    Its uncommitted records go to the newcomer, and it never takes over in return.
    """
    other, victim = group.worker("other"), group.victim()
    owned = holding_uncommitted(group, victim, other)
    victim.stop()
    calls = list(other.notes.calls)
    newcomer = group.worker(VICTIM)
    newcomer.settled(6)
    group.produce()
    commit_everything(group, newcomer, other)
    with nothing_changes(group, newcomer, other):
        goes_on_with_a_commit(victim)
        ends_for(victim, newcomer, other)
    assert (partitions_of(newcomer), other.notes.calls) == (owned, calls)
    assert len(newcomer.notes.records) == 6 * 2 * DEPTH


@pytest.mark.parametrize(
    ("version", "max_poll_interval_ms"),
    [
        pytest.param(NEWEST, NEVER_MS, id="polls-newest"),
        pytest.param(OLDEST, POLL_INTERVAL_MS, id="poll-timeout-oldest"),
    ],
)
def test_stopped_holder_ends_when_it_resumes_after_its_session_and_a_replacement(
    quick: GroupUnderTest, max_poll_interval_ms: int
) -> None:
    """Its partitions moved to other members and another process has its id, so the former holder ends."""
    other, victim = quick.worker("other"), quick.victim(max_poll_interval_ms=max_poll_interval_ms)
    holding_uncommitted(quick, victim, other)
    victim.stop()
    other.settled(PARTITIONS)
    newcomer = quick.worker(VICTIM)
    newcomer.settled(6)
    other.settled(6)
    quick.produce()
    commit_everything(quick, newcomer, other)
    with nothing_changes(quick, newcomer, other):
        goes_on_with_a_commit(victim)
        ends_for(victim, newcomer, other)


@pytest.mark.parametrize(
    ("version", "max_poll_interval_ms", "instance_id"),
    [
        pytest.param(NEWEST, NEVER_MS, VICTIM, id="static-polls-newest"),
        pytest.param(NEWEST, POLL_INTERVAL_MS, VICTIM, id="static-poll-timeout-newest"),
        pytest.param(NEWEST, NEVER_MS, None, id="dynamic-polls-newest"),
        pytest.param(OLDEST, NEVER_MS, VICTIM, id="static-polls-oldest"),
    ],
)
def test_stopped_member_rejoins_after_its_session(
    quick: GroupUnderTest, max_poll_interval_ms: int, instance_id: str | None
) -> None:
    """Other members got its partitions.

    It calls on_lost, joins again and gets partitions; no committed offset goes back.
    """
    other = quick.worker("other")
    victim = quick.victim(max_poll_interval_ms=max_poll_interval_ms, group_instance_id=instance_id)
    holding_uncommitted(quick, victim, other)
    victim.stop()
    other.settled(PARTITIONS)
    quick.produce()
    committed = commit_everything(quick, other)
    assert set(committed.values()) == {quick.depth}
    goes_on_with_a_commit(victim)
    victim.wait(lambda a: ("lost", 6) in [(name, len(partitions)) for name, partitions in a.calls], "on_lost")
    comes_back(quick, victim, other)


def comes_back(group: GroupUnderTest, victim: Victim, other: Worker) -> None:
    """It gets partitions again and reads new records; it committed nothing meanwhile."""
    committed = group.committed()
    victim.wait(lambda a: a.calls[-1][0] == "assign", "a new share")
    victim.settled(6)
    other.settled(6)
    assert all(now >= committed[p] for p, now in group.committed().items())
    group.produce()
    victim.wait(lambda a: not group.missing_of(a.owned), "new records")
    assert not [error for error in victim.account.errors if error["is_fatal"]]
    victim.commit()
    commit_everything(group, other)
    assert set(group.committed().values()) == {group.depth}


def test_static_member_stopped_beyond_its_poll_interval_keeps_its_partitions(group: GroupUnderTest) -> None:
    """The session of the stopped member lasts, so it keeps its partitions, and other members see no change.

    Either it leaves briefly (on_lost, then it rejoins as the same instance), or its poll counts in time; that depends
    on which of its threads runs first.
    """
    other, victim = group.worker("other"), group.victim(max_poll_interval_ms=POLL_INTERVAL_MS)
    owned = holding_uncommitted(group, victim, other)
    known = len(victim.account.calls)
    with nothing_changes(group, other):
        victim.stop()
        seconds_passed(other, POLL_INTERVAL_MS / 1000 + 0.5)
        victim.resume()
        group.produce()
        victim.wait(lambda a: not group.missing_of(a.owned) and len(a.owned) == 6, "new records")
        assert victim.settled(6) == owned
    assert [name for name, _ in victim.account.calls[known:]] in ([], ["lost", "assign"])
    assert not [error for error in victim.account.errors if error["is_fatal"]]


# ---- cut off ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_disconnected_holder_ends_when_it_reconnects_after_a_takeover(group: GroupUnderTest, proxy: Proxy) -> None:
    """A commit that was in flight when the network was cut arrives after the takeover and is refused."""
    other, victim = group.worker("other"), behind(proxy, group, auto_commit_interval_ms=500)
    victim.settled(6)
    other.settled(6)
    proxy.hold_from(OFFSET_COMMIT)
    group.produce()
    proxy.wait(lambda: proxy.held[OFFSET_COMMIT] > 0, "a commit under way")
    newcomer = group.worker(VICTIM)
    newcomer.settled(6)
    group.produce()
    commit_everything(group, newcomer, other)
    with nothing_changes(group, newcomer, other):
        proxy.heal()
        proxy.wait(lambda: proxy.passed[OFFSET_COMMIT] > 0, "the late commit")
        ends_for(victim, newcomer, other, commits=0)


def test_holder_whose_connections_were_reset_ends_after_a_takeover(group: GroupUnderTest, proxy: Proxy) -> None:
    """The holder connects again, is fenced, and ends."""
    other, victim = group.worker("other"), behind(proxy, group)
    holding_uncommitted(group, victim, other)
    proxy.cut()
    newcomer = group.worker(VICTIM)
    newcomer.settled(6)
    group.produce()
    commit_everything(group, newcomer, other)
    proxy.wait(lambda: proxy.refused > 0, "an attempt to connect")
    with nothing_changes(group, newcomer, other):
        proxy.heal()
        ends_for(victim, newcomer, other)


@pytest.mark.parametrize("kind", ["held", "given up", "forgotten", "reset"])
def test_short_network_cut_changes_no_assignment_and_repeats_no_record(
    group: GroupUnderTest, proxy: Proxy, kind: str
) -> None:
    """No member gets a callback or an error, partitions and epoch stay, and each record comes once.

    The heartbeat timeout is one second here instead of ten, and that of other requests two instead of sixty.
    """
    other, victim = group.worker("other"), behind(proxy, group, request_timeout_s=1.0, socket_timeout_ms=2000)
    owned = holding_uncommitted(group, victim, other)
    known, ids = list(victim.account.calls), list(victim.account.member_ids)
    with nothing_changes(group, other):
        if kind == "reset":
            proxy.cut()
            proxy.wait(lambda: proxy.refused >= 3, "attempts to connect")
        else:
            proxy.hold_from(HEARTBEAT)
            proxy.wait(lambda: proxy.held[HEARTBEAT] > 0, "a heartbeat under way")
        if kind in ("given up", "forgotten"):
            proxy.wait(lambda: proxy.held[FIND_COORDINATOR] > 0, "the end of its patience with the heartbeat")
        group.produce()
        proxy.heal(forgets=kind == "forgotten")
        victim.wait(lambda a: not group.missing_of(a.owned), "new records")
        heartbeats = proxy.passed[HEARTBEAT]
        proxy.wait(lambda: proxy.passed[HEARTBEAT] >= heartbeats + 3, "heartbeats")
    assert victim.settled(6) == owned
    assert (victim.account.calls, victim.account.member_ids) == (known, ids)
    assert not [error for error in victim.account.errors if error["is_fatal"]]
    victim.commit()
    commit_everything(group, other)
    assert set(group.committed().values()) == {group.depth}
    group.check()


@pytest.mark.parametrize("kind", ["held", "reset"])
def test_network_cut_beyond_the_session_loses_the_partitions_and_rejoins(quick: GroupUnderTest, kind: str) -> None:
    """Its session ends and other members get its partitions. When the network is back, it calls on_lost and rejoins."""
    with Proxy(quick.broker.bootstrap_servers) as proxy:
        other, victim = quick.worker("other"), behind(proxy, quick)
        holding_uncommitted(quick, victim, other)
        if kind == "reset":
            proxy.cut()
        else:
            proxy.hold_from(HEARTBEAT)
        other.settled(PARTITIONS)
        quick.produce()
        committed = commit_everything(quick, other)
        assert set(committed.values()) == {quick.depth}
        proxy.heal()
        victim.wait(lambda a: ("lost", 6) in [(name, len(partitions)) for name, partitions in a.calls], "on_lost")
        comes_back(quick, victim, other)
