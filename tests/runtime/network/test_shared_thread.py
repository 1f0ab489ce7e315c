"""Members of one process share a thread and connections, but events of one member do not affect the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from consumer_membership.config import ConnectionSettings, OffsetReset, SaslMechanism, SaslSettings, StartSettings
from consumer_membership.membership.events import CommitRequested, LeaveRequested
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.runtime.network import connections
from consumer_membership.runtime.network.connection_pool import ConnectionPool
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.log_observer import LogObserver
from consumer_membership.runtime.network.loops import LOOPS, Loops
from consumer_membership.runtime.network.thread import NetworkThread
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.runtime.network.applications import TOPIC, Application, poll_until
from tests.support.coordinator_script import HEARTBEAT, OFFSET_COMMIT, VERSIONS, CoordinatorScript
from tests.support.protocols import CONSUMER_ONLY
from tests.support.scripted_broker import Answer, Gate, Later, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

API_VERSIONS = 18
Join = Callable[..., Application]


@pytest.fixture
def script() -> CoordinatorScript:
    """The coordinator's rules."""
    return CoordinatorScript()


@pytest.fixture
def broker(script: CoordinatorScript) -> Iterator[ScriptedBroker]:
    """One node with one topic of six partitions."""
    with ScriptedBroker(script, versions=VERSIONS) as broker:
        script.create_topic(broker, TOPIC, 6)
        yield broker


@pytest.fixture
def join(broker: ScriptedBroker) -> Iterator[Join]:
    """Return a function that creates a member alone in its group, on the shared thread, which subscribes and polls."""
    made: list[Application] = []

    def member(group_id: str, *, client_id: str = "client", shares_thread: bool = True) -> Application:
        line = Line()
        settings = ThreadSettings(
            member=MemberSettings(group_id=group_id, heartbeat_interval_s=0.1),
            protocols=CONSUMER_ONLY,
            connection=ConnectionSettings(
                bootstrap_servers=broker.servers, client_id=client_id, reconnect_backoff_s=0.02
            ),
            start=StartSettings(reset=OffsetReset.EARLIEST),
            progress=lambda: (application.polls, 0),
            shares_thread=shares_thread,
        )
        application = Application(line, NetworkThread(line, settings, observer=LogObserver(client_id)))
        line.listen(application.arrival.set)
        made.append(application)
        application.subscribe()
        return application

    yield member
    for application in made:
        application.thread.stop(PATIENCE_S)
    assert not shared_threads()


def shared_threads() -> list[threading.Thread]:
    """Return the shared threads of this process."""
    return [thread for thread in threading.enumerate() if thread.name == "membership"]


def connections_to(broker: ScriptedBroker) -> int:
    """Return how many connections the broker has accepted."""
    return len(broker.requests(API_VERSIONS))


def test_members_share_a_thread_and_connections(
    broker: ScriptedBroker, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three members with equal settings use one thread and the same connections; another client.id has its own."""
    monkeypatch.setattr(connections, "BLOCKED_AFTER_S", PATIENCE_S)  # a slow machine opens no additional connections
    members = [join(f"group-{number}") for number in range(3)]
    poll_until(lambda: all(one.owns(6) for one in members), "all partitions of each group", *members)
    assert (len(shared_threads()), connections_to(broker)) == (1, 2)
    before = connections_to(broker)
    other = join("other", client_id="another")
    poll_until(lambda: other.owns(6), "all partitions of another client", other)
    assert (len(shared_threads()), connections_to(broker) >= before + 2) == (1, True)


def test_member_with_its_own_thread_shares_nothing(join: Join) -> None:
    """The configuration is membership.threads=own."""
    shared, own = join("shared"), join("own", shares_thread=False)
    poll_until(lambda: shared.owns(6) and own.owns(6), "all partitions of each group", shared, own)
    assert own.thread._loop is not shared.thread._loop
    own.thread.stop(PATIENCE_S)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("membership")] == ["membership"]
    assert len(shared_threads()) == 1


def test_end_of_one_member_does_not_affect_the_others(broker: ScriptedBroker, join: Join) -> None:
    """A closed member leaves, and its timers and requests end; the other members keep thread, connections and state."""
    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)
    one.line.post(LeaveRequested())
    poll_until(lambda: one.is_gone, "the leave", one, other)
    one.thread.stop(PATIENCE_S)
    seen, made = len(broker.requests(HEARTBEAT)), connections_to(broker)
    poll_until(lambda: len(broker.requests(HEARTBEAT)) > seen + 5, "five heartbeats of the other member", other)
    assert (other.owns(6), len(shared_threads()), connections_to(broker)) == (True, 1, made)
    again = join("one")
    poll_until(lambda: again.owns(6), "all partitions of another member", again, other)
    assert again.thread._loop is other.thread._loop


def test_fault_of_one_member_ends_only_this_member(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in one member's core is reported to its application; the thread and the other members continue."""
    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)

    def fail(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(one.thread._dumps.recorder.member, "handle", fail)
    poll_until(lambda: bool(one.problems) and one.orders[-1] == "lose", "the loss after the fault", one, other)
    heartbeat_at = other.line.view.last_heartbeat_at or 0.0
    poll_until(
        lambda: (other.line.view.last_heartbeat_at or 0.0) > heartbeat_at, "a heartbeat of the other member", other
    )
    assert (one.state, other.owns(6), other.problems) == (MemberState.FATAL, True, [])


def test_lost_connection_makes_each_member_find_its_coordinator(broker: ScriptedBroker, join: Join) -> None:
    """A member without a request on the connection is notified, as if the connection were its own."""
    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)
    for _ in range(3):
        heartbeats = [member.line.view.last_heartbeat_at or 0.0 for member in (one, other)]
        broker.disconnect(1)
        poll_until(
            lambda heartbeats=heartbeats: all(  # type: ignore[misc]  # mypy infers no type of a default
                (member.line.view.last_heartbeat_at or 0.0) > heartbeat_at
                for member, heartbeat_at in zip((one, other), heartbeats, strict=True)
            ),
            "a heartbeat of each member after the loss",
            one,
            other,
        )
    assert (one.owns(6), other.owns(6), one.problems, other.problems) == (True, True, [], [])


def test_slow_commit_of_one_member_delays_no_heartbeat_of_another(
    broker: ScriptedBroker, script: CoordinatorScript, join: Join
) -> None:
    """The broker answers a connection's requests in order, so the other member's heartbeats use another connection."""
    gate = Gate()

    def slowly(request: Received) -> Answer:
        return Later(script.answer(request), gate)

    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)
    script.once(OFFSET_COMMIT, slowly)
    offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset=1)}
    one.line.post(CommitRequested(commit_id=1, offsets=offsets, timeout_s=PATIENCE_S))
    broker.wait_for(OFFSET_COMMIT)
    for _ in range(3):  # the first heartbeat may have been sent behind the commit
        heartbeat_at = other.line.view.last_heartbeat_at or 0.0
        poll_until(
            lambda heartbeat_at=heartbeat_at: (other.line.view.last_heartbeat_at or 0.0) > heartbeat_at,  # type: ignore[misc]
            "a heartbeat of the other member during the commit",
            one,
            other,
        )
    assert not one.commits
    gate.open()
    poll_until(lambda: bool(one.commits), "the end of the commit", one, other)


def test_log_lines_on_a_shared_thread_name_their_own_member(join: Join, caplog: pytest.LogCaptureFixture) -> None:
    """Each line of the thread begins with the prefix of the member that it describes."""
    caplog.set_level("INFO", "consumer_membership")
    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)
    for application, group_id in ((one, "one"), (other, "other")):
        application.line.post(LeaveRequested())
        poll_until(lambda application=application: application.is_gone, "the leave", one, other)  # type: ignore[misc]
        prefix = f"[Consumer clientId=client, groupId={group_id}] "
        assert caplog.messages
        assert [text for text in caplog.messages if f"groupId={group_id}" in text and not text.startswith(prefix)] == []
    assert all(text.startswith("[Consumer ") for text in caplog.messages)


def test_members_that_start_and_stop_at_the_same_time_leave_no_thread(join: Join) -> None:
    """The last member ends the thread; a member that starts at the same time gets a running thread."""
    joined: list[str] = []

    def live(number: int) -> None:
        for turn in range(5):
            member = join(f"group-{number}-{turn}")
            poll_until(lambda member=member: member.owns(6), "all partitions", member)  # type: ignore[misc]
            member.thread.stop(PATIENCE_S)
            joined.append(member.line.view.group_id)

    lives = [threading.Thread(target=live, args=(number,)) for number in range(4)]
    for life in lives:
        life.start()
    for life in lives:
        life.join(PATIENCE_S)
    assert len(joined) == 20
    wait_until(lambda: not shared_threads(), "the end of the thread")


def test_forked_child_has_no_shared_loop_and_keeps_that_of_its_parent() -> None:
    """If the child deleted the parent's loop, it would unregister sockets that the parent still uses."""
    loops = Loops()
    parents = loops.acquire(is_shared=True, name="unused")
    loops.begin_in_child()
    childs = loops.acquire(is_shared=True, name="unused")
    assert (childs is parents, loops._inherited, childs.members) == (False, [parents], 1)
    for loop in (childs, parents):
        loop.call(lambda loop=loop: loops.release(loop))  # type: ignore[misc]
        wait_until(lambda loop=loop: not loop.is_alive, "the end of the thread")  # type: ignore[misc]


def test_changed_credentials_of_one_member_do_not_reach_another() -> None:
    """A member that shares its connections continues with new connections; a member that is alone keeps its own."""
    sasl = SaslSettings(mechanism=SaslMechanism.PLAIN, username="name", password="former")  # noqa: S106
    settings = ConnectionSettings(bootstrap_servers=(("127.0.0.1", 9),), sasl=sasl)
    one, other = ConnectionSecurity(settings), ConnectionSecurity(settings)
    pool = ConnectionPool()
    shared = pool.acquire(settings, one)
    assert pool.acquire(settings, other) is shared
    one.set_credentials("name", "latter")
    own = pool.change_credentials(shared, settings, one)
    found = [None if each.security.sasl is None else each.security.sasl.password for each in (shared, own)]
    assert (own is shared, found) == (False, ["former", "latter"])
    one.set_credentials("name", "last")
    assert pool.change_credentials(own, settings, one) is own
    assert pool.acquire(settings, one) is own
    assert own.security.sasl == one.sasl


def test_member_that_is_fenced_does_not_affect_another(script: CoordinatorScript, join: Join) -> None:
    """An error in a response belongs to the member that sent the request."""
    one, other = join("one"), join("other")
    poll_until(lambda: one.owns(6) and other.owns(6), "all partitions of each group", one, other)
    script.remove_member("one", one.line.view.member_id)
    poll_until(lambda: "lose" in one.orders and one.owns(6), "the fenced member's return", one, other)
    assert ("lose" in other.orders, other.owns(6)) == (False, True)


def test_process_has_no_loop_without_members() -> None:
    """No loop runs before the first member starts or after the last one has ended."""
    assert LOOPS._shared is None
