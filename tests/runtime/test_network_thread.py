"""Floor 4: members on their threads, over real TCP, against the coordinator that floor 3 simulates with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.config import ConnectionSettings, OffsetReset, StartSettings
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    RevokePartitions,
)
from consumer_membership.membership.events import (
    CommitRequested,
    LeaveRequested,
    Polled,
    Step,
    StepFinished,
    Subscribed,
)
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.network_thread import NetworkThread
from consumer_membership.runtime.observer import LogObserver
from consumer_membership.types import ConflictPolicy, OffsetAndMetadata, Subscription, TopicPartition
from tests.support.coordinator_script import DESCRIBE, HEARTBEAT, OFFSET_COMMIT, VERSIONS, CoordinatorScript
from tests.support.protocols import CONSUMER_ONLY
from tests.support.scripted_broker import DISCONNECT, DROP, Received, ScriptedBroker

pytestmark = pytest.mark.slow

#: A bound against hanging, not a measurement.
PATIENCE_S = 15.0
TOPIC = "orders"


@dataclass(slots=True)
class Application:
    """Performs what its member orders, and notes it; the test's thread is the application's."""

    mailbox: Mailbox[ApplicationEffect]
    port: NetworkThread
    orders: list[str] = field(default_factory=list)
    problems: list[RaiseToApplication] = field(default_factory=list)
    commits: list[CommitCompleted] = field(default_factory=list)
    polls: int = 0
    is_gone: bool = False

    def poll(self) -> None:
        """Perform what waits."""
        self.polls += 1
        self.mailbox.wait(0.005)
        for effect in self.mailbox.take():
            self._perform(effect)

    def _perform(self, effect: ApplicationEffect) -> None:
        match effect:
            case PausePartitions():
                self._finish("pause", effect.attempt, Step.PAUSE)
            case RevokePartitions():
                self._finish("revoke", effect.attempt, Step.REVOKE)
            case LosePartitions():
                self._finish("lose", effect.attempt, Step.LOSE)
            case AssignPartitions():
                self._finish(f"assign {len(effect.offsets)}", effect.attempt, Step.ASSIGN)
            case RaiseToApplication():
                self.problems.append(effect)
            case CommitCompleted():
                self.commits.append(effect)
            case LeaveCompleted():
                self.is_gone = True
            case _:
                pass

    def _finish(self, order: str, attempt: int, step: Step) -> None:
        self.orders.append(order)
        self.port.post(StepFinished(attempt=attempt, step=step))

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self.port.view.state

    def owns(self, count: int) -> bool:
        """Whether the member is settled with this many partitions."""
        return self.state is MemberState.STABLE and len(self.port.view.owned) == count


def until(condition: Callable[[], bool], *applications: Application) -> None:
    """Let these applications poll until this holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        views = [application.port.view for application in applications]
        assert time.monotonic() < deadline, views
        for application in applications:
            application.poll()


@pytest.fixture
def script() -> CoordinatorScript:
    """The coordinator's rules."""
    return CoordinatorScript()


@pytest.fixture
def broker(script: CoordinatorScript) -> Iterator[ScriptedBroker]:
    """Two nodes with one topic of six partitions."""
    with ScriptedBroker(script, nodes=2, versions=VERSIONS) as broker:
        script.create_topic(broker, TOPIC, 6)
        yield broker


@pytest.fixture
def join(broker: ScriptedBroker) -> Iterator[Callable[..., Application]]:
    """Makes a member that subscribes and polls once."""
    made: list[Application] = []

    def member(**settings: object) -> Application:
        mailbox: Mailbox[ApplicationEffect] = Mailbox()
        application: Application | None = None
        port = NetworkThread(
            member=MemberSettings(group_id="group", heartbeat_interval_s=0.1, **settings),  # type: ignore[arg-type]
            protocols=CONSUMER_ONLY,
            connection=ConnectionSettings(bootstrap_servers=broker.servers, reconnect_backoff_s=0.02),
            start=StartSettings(reset=OffsetReset.EARLIEST),
            to_application=mailbox,
            progress=lambda: (application.polls if application is not None else 0, 0),
            observer=LogObserver(),
        )
        application = Application(mailbox, port)
        made.append(application)
        port.start()
        port.post(Subscribed(subscription=Subscription(topics=frozenset({TOPIC}))), Polled())
        return application

    yield member
    for application in made:
        application.port.stop(PATIENCE_S)


def test_members_share_and_hand_over(join: Callable[..., Application]) -> None:
    """M20, S09: over TCP too, a second member takes half, and everything comes back when it leaves."""
    one = join()
    until(lambda: one.owns(6), one)
    two = join()
    until(lambda: one.owns(3) and two.owns(3), one, two)
    assert one.orders[-2:] == ["pause", "revoke"]
    two.port.post(LeaveRequested())
    until(lambda: two.is_gone and one.owns(6), one, two)
    assert two.state is MemberState.UNSUBSCRIBED


def test_lost_join_answer_is_asked_for_again(script: CoordinatorScript, join: Callable[..., Application]) -> None:
    """H10: the connection breaks after the coordinator took the member in; the same member id joins again."""

    def hide(request: Received) -> object:
        script.answer(request)
        return DISCONNECT

    script.once(HEARTBEAT, hide)
    one = join()
    until(lambda: one.owns(6), one)
    assert len(script.coordinator.groups["group"].members) == 1


def test_static_member_recovers_from_its_own_lost_join_answer(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """Rules 3.3: UNRELEASED_INSTANCE_ID that names this very member: it hands its place back and joins again."""

    def hide(request: Received) -> object:
        script.answer(request)
        return DISCONNECT

    script.once(HEARTBEAT, hide)
    one = join(instance_id="a")
    until(lambda: one.owns(6), one)
    assert one.problems == []


def test_second_holder_of_an_instance_id_is_refused(join: Callable[..., Application]) -> None:
    """S05, policy fail: UNRELEASED_INSTANCE_ID of another member is fatal for the newcomer; the holder goes on."""
    one = join(instance_id="a")
    until(lambda: one.owns(6), one)
    two = join(instance_id="a", conflict_policy=ConflictPolicy.FAIL)
    until(lambda: bool(two.problems) and two.state is MemberState.FATAL, one, two)
    assert two.state is MemberState.FATAL
    assert [problem.error.name for problem in two.problems] == ["UNRELEASED_INSTANCE_ID"]
    assert one.owns(6)


@pytest.mark.parametrize("may_describe", [True, False])
def test_newcomer_takes_an_instance_id_over(
    script: CoordinatorScript,
    join: Callable[..., Application],
    caplog: pytest.LogCaptureFixture,
    may_describe: bool,  # noqa: FBT001
) -> None:
    """DESIGN 6: describe, release on the holder's behalf, join; the former holder is fenced, and says by whom."""
    one = join(instance_id="a")
    until(lambda: one.owns(6), one)
    if not may_describe:
        script.once(DESCRIBE, refused_description)
    with caplog.at_level("INFO", "consumer_membership"):
        two = join(instance_id="a")
        until(lambda: two.owns(6) and one.orders[-1] == "lose", one, two)
    assert one.state is MemberState.FATAL
    assert two.port.view.member_id in one.problems[0].error.message
    holder = f"{one.port.view.member_id} (client client on host)" if may_describe else one.port.view.member_id
    assert f"Took over instance id a: released member {holder} on its behalf" in caplog.text


def refused_description(request: Received) -> object:
    """GROUP_AUTHORIZATION_FAILED."""
    module = sys.modules[request.response.__module__]
    group = module.DescribedGroup(
        error_code=ErrorCode.group_authorization_failed,
        group_id="group",
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
    return request.response(throttle_time=timedelta(0), groups=(group,))


def test_pool_s_members_claim_ids_of_their_own(join: Callable[..., Application]) -> None:
    """Each claims a free id; who finds none waits, visible in the view, until one is released."""
    pool = {"instance_pool": ("a", "b"), "conflict_policy": ConflictPolicy.WAIT}
    one, two = join(**pool), join(**pool)
    until(lambda: one.owns(3) and two.owns(3), one, two)
    assert {one.port.view.instance_id, two.port.view.instance_id} == {"a", "b"}
    three = join(**pool)
    until(lambda: three.port.view.waits_for == "an id of group.instance.id.pool to become free", one, two, three)
    one.port.post(LeaveRequested())
    until(lambda: one.is_gone and three.owns(3), one, two, three)
    assert three.port.view.instance_id not in (None, two.port.view.instance_id)


def test_static_member_learns_how_long_it_may_be_away(join: Callable[..., Application]) -> None:
    """The group's session timeout, from DescribeConfigs."""
    one = join(instance_id="a")
    until(lambda: one.port.view.session_timeout_s == 10.0, one)


def test_group_that_is_gone_is_joined_anew(script: CoordinatorScript, join: Callable[..., Application]) -> None:
    """H35, on purpose unlike Java: GROUP_ID_NOT_FOUND means lose, then join at epoch 0."""
    one = join()
    until(lambda: one.owns(6), one)
    del script.coordinator.groups["group"]
    until(lambda: "lose" in one.orders and one.owns(6), one)
    assert one.problems == []


def test_fenced_member_loses_everything_and_rejoins(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """M80: removed by an administrator, the member declares its partitions lost and gets them back."""
    one = join()
    until(lambda: one.owns(6), one)
    script.coordinator.remove_member("group", member_id=one.port.view.member_id)
    until(lambda: "lose" in one.orders and one.owns(6), one)
    assert one.orders == ["assign 6", "lose", "assign 6"]


def test_coordinator_moves(script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]) -> None:
    """S01: NOT_COORDINATOR, then COORDINATOR_LOAD_IN_PROGRESS; the member follows and keeps its partitions."""
    one = join()
    until(lambda: one.owns(6), one)
    script.move(broker, 2, loading_s=0.3)
    seen = len(broker.requests(HEARTBEAT))
    until(lambda: any(r.node_id == 2 for r in broker.requests(HEARTBEAT)[seen:]), one)
    beat = one.port.view.last_heartbeat_at
    until(lambda: one.port.view.last_heartbeat_at != beat and one.owns(6), one)
    assert one.orders == ["assign 6"]
    assert one.port.view.coordinator is not None
    assert one.port.view.coordinator.node_id == 2


def test_commit_without_an_answer_is_sent_again(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """C07: a broken connection under a commit: the member reconnects and the commit succeeds."""
    one = join()
    until(lambda: one.owns(6), one)
    script.once(OFFSET_COMMIT, lambda _: DISCONNECT)
    offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset=5)}
    one.port.post(CommitRequested(commit_id=1, offsets=offsets, timeout_s=PATIENCE_S))
    until(lambda: bool(one.commits), one)
    assert one.commits[0].errors == {TopicPartition(TOPIC, 0): None}
    assert len(broker.requests(OFFSET_COMMIT)) == 2


def test_leave_without_an_answer_ends_in_time(script: CoordinatorScript, join: Callable[..., Application]) -> None:
    """M107: the leave is sent once; when no answer comes the member is gone all the same."""
    one = join()
    until(lambda: one.owns(6), one)
    script.faults.append(lambda request: DROP if request.api_key == HEARTBEAT else None)
    one.port.post(LeaveRequested())
    until(lambda: one.is_gone, one)
    assert one.state is MemberState.UNSUBSCRIBED


def test_broker_that_goes_and_comes_back(broker: ScriptedBroker, join: Callable[..., Application]) -> None:
    """S08: no broker for a while: the member keeps its partitions and goes on where it was."""
    one = join()
    until(lambda: one.owns(6), one)
    for node_id in (1, 2):
        broker.stop_node(node_id)
    until(lambda: one.port.view.coordinator is None, one)
    assert one.port.view.waits_for == "the group's coordinator to be found"
    until(lambda: one.port.view.last_error is not None, one)
    for node_id in (1, 2):
        broker.start_node(node_id)
    beat = one.port.view.last_heartbeat_at
    until(lambda: one.port.view.last_heartbeat_at != beat and one.owns(6), one)
    assert one.orders == ["assign 6"]


def test_broker_without_the_consumer_protocol(broker: ScriptedBroker, join: Callable[..., Application]) -> None:
    """H32: a broker that does not offer the API is named with the remedy, fatal at once."""
    del broker.versions[HEARTBEAT]
    one = join()
    until(lambda: bool(one.problems) and one.state is MemberState.FATAL, one)
    assert one.state is MemberState.FATAL
    assert "4.0" in one.problems[0].error.message
