"""Members on their threads, over real TCP, with the simulation's coordinator."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from consumer_membership.config import ConnectionSettings, OffsetReset, SaslMechanism, SaslSettings, StartSettings
from consumer_membership.membership.consumer import protocol as consumer_protocol
from consumer_membership.membership.events import (
    CommitRequested,
    LeaveRequested,
    Polled,
    Subscribed,
)
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.recorder.dumps import RecorderSettings
from consumer_membership.recorder.recording import Recording, read
from consumer_membership.recorder.replay import Difference, Replay
from consumer_membership.runtime.line import CommittedOffsetsQuestion, Line, RefusedError, UnansweredError
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.runtime.network import progress, transport
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.log_observer import LogObserver
from consumer_membership.runtime.network.thread import NetworkThread
from consumer_membership.runtime.session_clock import session_time
from consumer_membership.text import speakable
from consumer_membership.types import (
    CommittedOffsets,
    ConflictPolicy,
    OffsetAndMetadata,
    Subscription,
    TopicPartition,
)
from consumer_membership.wire.otlp import Point
from tests.runtime.network.applications import TOPIC, Application, poll_until
from tests.runtime.receivers import PUSH, SUBSCRIPTIONS, Receiver
from tests.support.coordinator_script import (
    DESCRIBE,
    HEARTBEAT,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    VERSIONS,
    CoordinatorScript,
)
from tests.support.ports import listening
from tests.support.protocols import CONSUMER_ONLY
from tests.support.scripted_broker import DISCONNECT, DROP, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


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
    """Return a function that creates a member that subscribes and polls once, or one that does not subscribe yet."""
    made: list[Application] = []

    def member(
        *,
        subscribes: bool = True,
        directory: Path | None = None,
        measure: Callable[[], tuple[Point, ...]] | None = None,
        clock: Callable[[], float] = session_time,
        **settings: object,
    ) -> Application:
        line = Line(clock)
        thread = NetworkThread(
            line,
            ThreadSettings(
                member=MemberSettings(group_id="group", heartbeat_interval_s=0.1, **settings),  # type: ignore[arg-type]
                protocols=CONSUMER_ONLY,
                connection=ConnectionSettings(bootstrap_servers=broker.servers, reconnect_backoff_s=0.02),
                start=StartSettings(reset=OffsetReset.EARLIEST),
                progress=lambda: (application.polls, 0),
                recorder=RecorderSettings(directory=None if directory is None else str(directory)),
                measure=measure,
            ),
            observer=LogObserver("client"),
        )
        application = Application(line, thread)
        line.listen(application.arrival.set)
        made.append(application)
        if subscribes:
            application.subscribe()
        return application

    yield member
    for application in made:
        application.thread.stop(PATIENCE_S)


def test_two_members_share_partitions_and_one_takes_over_after_a_leave(join: Callable[..., Application]) -> None:
    """M20, S09: over TCP, a second member takes half, and all partitions return when it leaves."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    two = join()
    poll_until(lambda: one.owns(3) and two.owns(3), "three partitions each", one, two)
    assert one.orders[-2:] == ["pause", "revoke"]
    two.line.post(LeaveRequested())
    poll_until(lambda: two.is_gone and one.owns(6), "all partitions with the first, after the second left", one, two)
    assert two.state is MemberState.UNSUBSCRIBED


def test_member_uses_asyncios_own_event_loop(join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's policy, such as `uvloop.install()`, does not apply, because timers of other loops differ."""

    def refuse() -> object:
        raise NotImplementedError

    monkeypatch.setattr(asyncio, "new_event_loop", refuse)
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)


def test_member_joins_again_after_a_lost_join_response(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """H10: the connection breaks after the coordinator added the member; the same member id joins again."""

    def hide(request: Received) -> object:
        script.answer(request)
        return DISCONNECT

    script.once(HEARTBEAT, hide)
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    assert len(script.coordinator.groups["group"].members) == 1


def test_static_member_joins_again_after_its_lost_join_response(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """Rules 3.3: if UNRELEASED_INSTANCE_ID names this member, it releases its place and joins again."""

    def hide(request: Received) -> object:
        script.answer(request)
        return DISCONNECT

    script.once(HEARTBEAT, hide)
    one = join(instance_id="a")
    poll_until(lambda: one.owns(6), "six partitions", one)
    assert one.problems == []


def test_second_holder_of_an_instance_id_ends_with_policy_fail(join: Callable[..., Application]) -> None:
    """S05, policy fail: UNRELEASED_INSTANCE_ID is fatal for the newcomer, and the holder continues."""
    one = join(instance_id="a")
    poll_until(lambda: one.owns(6), "six partitions", one)
    two = join(instance_id="a", conflict_policy=ConflictPolicy.FAIL)
    poll_until(lambda: bool(two.problems) and two.state is MemberState.FATAL, "the newcomer's fatal end", one, two)
    assert two.state is MemberState.FATAL
    assert [problem.error.name for problem in two.problems] == ["UNRELEASED_INSTANCE_ID"]
    assert one.owns(6)


@pytest.mark.parametrize("may_describe", [True, False])
def test_newcomer_takes_over_an_instance_id(
    script: CoordinatorScript,
    join: Callable[..., Application],
    caplog: pytest.LogCaptureFixture,
    may_describe: bool,  # noqa: FBT001
) -> None:
    """Rules 3.3: a newcomer describes the group, releases the holder on its behalf, and joins.

    The former holder is fenced, and its error names the newcomer.
    """
    one = join(instance_id="a")
    poll_until(lambda: one.owns(6), "six partitions", one)
    if not may_describe:
        script.once(DESCRIBE, refused_description)
    with caplog.at_level("INFO", "consumer_membership"):
        two = join(instance_id="a")
        # If the former holder heartbeats between the release and the join, it loses its partitions and joins again.
        poll_until(
            lambda: two.owns(6) and bool(one.problems) and one.orders == ["assign 6", "lose"],
            "all partitions with the newcomer, and a fenced holder",
            one,
            two,
        )
        poll_until(lambda: one.state is MemberState.FATAL, "the holder's fatal end", one)
    assert two.line.view.member_id in one.problems[0].error.message
    holder = f"{one.line.view.member_id} (client client on host)" if may_describe else one.line.view.member_id
    assert f"Took over group.instance.id a: released its former member {holder}" in caplog.text


def test_fenced_member_shows_no_epoch_when_the_application_is_woken(join: Callable[..., Application]) -> None:
    """A write that is tagged after the fatal error must not carry the epoch that the replacement may have."""
    one = join(instance_id="a", auto_commit=False)
    poll_until(lambda: one.owns(6), "six partitions", one)
    seen: list[MembershipView] = []
    one.line.listen(lambda: seen.append(one.line.view))  # the woken thread reads this view
    two = join(instance_id="a")
    # The application does not poll, so it performs none of the waiting orders.
    poll_until(
        lambda: two.owns(6) and one.state in (MemberState.FATAL, MemberState.FENCED),
        "all partitions with the newcomer",
        two,
    )
    shown = {(view.member_epoch, len(view.owned), view.group_protocol) for view in seen}
    assert shown == {(0, 0, None)}
    poll_until(lambda: bool(one.problems), "the error for the application", one)


def test_thread_that_fails_ends_the_membership(
    join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bug of the package, the application receives an error and loses its partitions; the view is FATAL."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)

    def fail(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(one.thread._dumps.recorder.member, "handle", fail)
    poll_until(lambda: bool(one.problems) and one.orders[-1] == "lose", "the loss after the fault", one)
    view = one.line.view
    assert (view.state, view.member_epoch, view.group_protocol) == (MemberState.FATAL, 0, None)
    assert (view.owned, view.target, view.waits_for) == ({}, frozenset(), None)
    assert view.last_error == one.problems[0].error
    assert "LookupError: a bug; this is a bug of consumer_membership, please report it" in str(view.last_error)
    assert view.transitions[-1].new is MemberState.FATAL


def test_thread_pushes_metrics_with_the_members_identity(
    broker: ScriptedBroker, script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """A broker that requests metrics also receives a last push when the thread ends."""
    receiver = Receiver()
    script.faults.append(receiver)
    broker.versions |= {SUBSCRIPTIONS: (0, 0), PUSH: (0, 0)}

    def measure() -> tuple[Point, ...]:
        return (Point(name="owned", value=float(len(one.line.view.owned))),)

    one = join(subscribes=False, measure=measure, instance_id="a", rack_id="r")
    one.subscribe()
    poll_until(lambda: one.owns(6) and len(receiver.pushes) >= 3, "three pushes of a settled member", one)
    view = one.line.view
    one.thread.stop(PATIENCE_S)
    assert [push.terminating for push in receiver.pushes[-2:]] == [False, True]
    (resource,) = MetricsData.FromString(receiver.pushes[-1].metrics).resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == {
        "group_id": "group",
        "group_member_id": view.member_id,
        "group_instance_id": "a",
        "client_rack": "r",
    }
    assert resource.scope_metrics[0].metrics[0].gauge.data_points[0].as_double == 6.0


def test_thread_keeps_the_membership_after_a_failed_push(
    broker: ScriptedBroker,
    script: CoordinatorScript,
    join: Callable[..., Application],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug in the push is logged, heartbeats continue, and the member ends as usual."""
    receiver = Receiver()
    script.faults.append(receiver)
    broker.versions |= {SUBSCRIPTIONS: (0, 0), PUSH: (0, 0)}

    def fail() -> tuple[Point, ...]:
        raise LookupError("a bug")

    one = join(measure=fail)
    poll_until(
        lambda: one.owns(6) and "The push of client metrics failed; this is a bug" in caplog.text,
        "the fault in the log of a settled member",
        one,
    )
    heartbeats = len(broker.requests(HEARTBEAT))
    poll_until(lambda: len(broker.requests(HEARTBEAT)) > heartbeats + 2, "three more heartbeats", one)
    assert one.problems == receiver.pushes == []


@pytest.mark.parametrize("is_offered", [True, False])
def test_thread_pushes_no_metrics_unless_user_and_broker_want_them(
    broker: ScriptedBroker,
    script: CoordinatorScript,
    join: Callable[..., Application],
    is_offered: bool,  # noqa: FBT001
) -> None:
    """If the user or the broker does not want metrics, the client sends no telemetry request."""
    script.faults.append(Receiver())
    if is_offered:
        broker.versions |= {SUBSCRIPTIONS: (0, 0), PUSH: (0, 0)}
    one = join(measure=None if is_offered else tuple)
    poll_until(lambda: one.owns(6), "six partitions", one)
    one.thread.stop(PATIENCE_S)
    assert broker.requests(SUBSCRIPTIONS) == broker.requests(PUSH) == []


def test_set_credentials_reaches_the_connections_before_the_thread_starts() -> None:
    """Credentials that are set before the first connection are the first ones that a broker receives."""
    username, password, former = "new name", "new secret", "former"
    sasl = SaslSettings(mechanism=SaslMechanism.PLAIN, username=former, password=former)
    connection = ConnectionSettings(bootstrap_servers=(("127.0.0.1", 9),), sasl=sasl)
    security = ConnectionSecurity(connection)
    settings = ThreadSettings(
        member=MemberSettings(group_id="group"),
        protocols=CONSUMER_ONLY,
        connection=connection,
        start=StartSettings(),
        progress=lambda: (0, 0),
    )
    NetworkThread(Line(), settings, observer=LogObserver("client"), security=security).set_credentials(
        username, password
    )
    assert security.sasl == replace(sasl, username=username, password=password)


def replayed(path: Path) -> tuple[Recording, Difference | None]:
    """Return a recording, and its first difference when the core replays it."""
    recording = read(path)
    return recording, Replay(recording).run()


def test_dump_of_a_running_member_replays_without_a_difference(
    join: Callable[..., Application], tmp_path: Path
) -> None:
    """Any thread may request the recording while the member's thread continues."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    recording, difference = replayed(one.thread.dump("a test", tmp_path / "a"))
    assert (recording.cause, recording.state, difference) == ("a test", None, None)
    assert len(recording.entries) >= 5


def test_dump_that_begins_with_a_checkpoint_replays_without_a_difference(
    join: Callable[..., Application], tmp_path: Path
) -> None:
    """A checkpoint replaces the older events, which were dropped."""
    one = join()
    recorder = one.thread._dumps.recorder
    recorder._full_at = recorder._segment_weight = 20
    poll_until(lambda: recorder.contents().state is not None, "a recording that begins with a state", one)
    recording, difference = replayed(one.thread.dump("a test", tmp_path / "a"))
    assert (recording.first > 0, difference) == (True, None)


def test_recorder_directory_receives_one_recording_of_a_fatal_end(
    broker: ScriptedBroker, join: Callable[..., Application], tmp_path: Path
) -> None:
    """With `recorder.directory`, the recording is written without a request."""
    del broker.versions[HEARTBEAT]
    one = join(directory=tmp_path)
    poll_until(lambda: bool(list(tmp_path.glob("*.gz"))), "a recording", one)
    (path,) = tmp_path.glob("*.gz")
    recording, difference = replayed(path)
    assert recording.cause.startswith("fatal: UNSUPPORTED_VERSION")
    assert difference is None
    poll_until(lambda: one.state is MemberState.FATAL, "the fatal end", one)


def test_recorder_directory_receives_a_recording_of_a_poll_timeout(
    join: Callable[..., Application], tmp_path: Path
) -> None:
    """The recording covers the member up to the moment when it became STALE."""
    one = join(directory=tmp_path, max_poll_interval_s=0.5)
    poll_until(lambda: one.owns(6), "six partitions", one)
    (path,) = wait_until(lambda: list(tmp_path.glob("*.gz")), "a recording")
    recording, difference = replayed(path)
    assert recording.cause.startswith("poll timeout: ")
    assert (one.state, difference) == (MemberState.STALE, None)


def test_recorder_directory_receives_a_recording_of_a_bug_in_the_core(
    join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last event is the event at which the core failed."""
    one = join(directory=tmp_path)
    poll_until(lambda: one.owns(6), "six partitions", one)

    def fail(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(one.thread._dumps.recorder.member, "handle", fail)
    poll_until(lambda: bool(one.problems), "an error for the application", one)
    (path,) = tmp_path.glob("*.gz")
    recording, difference = replayed(path)
    assert recording.cause == "crash: LookupError: a bug"
    assert recording.entries[-1].error == "LookupError: a bug"
    assert difference is not None
    assert difference.number == len(recording.entries)


def test_holder_that_rejoins_before_the_newcomer_joins_is_released_again(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """The newcomer's network is slow between release and join; meanwhile the holder is fenced and joins again."""
    one = join(instance_id="a")
    poll_until(lambda: one.owns(6), "six partitions", one)
    holder, came = one.line.view.member_id, []

    def slow(request: Received) -> object:
        if request.api_key != HEARTBEAT:
            return None
        heartbeat = (request.entity.member_id == holder, request.entity.member_epoch)
        came.append(heartbeat)
        return DISCONNECT if heartbeat == (False, 0) and (True, -2) in came and (True, 0) not in came else None

    script.faults.append(slow)
    two = join(instance_id="a")
    poll_until(
        lambda: two.owns(6) and bool(one.problems) and one.state is MemberState.FATAL,
        "all partitions with the newcomer, and the holder's fatal end",
        one,
        two,
    )
    assert came.count((True, -2)) == 2
    assert two.problems == []


def refused_description(request: Received) -> object:
    """Return a description that was refused with GROUP_AUTHORIZATION_FAILED."""
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


def test_members_of_a_pool_claim_different_instance_ids(join: Callable[..., Application]) -> None:
    """Each member claims a free id; a member without an id waits for a release, which its view shows."""
    pool = {"instance_pool": ("a", "b"), "conflict_policy": ConflictPolicy.WAIT}
    one, two = join(**pool), join(**pool)
    poll_until(lambda: one.owns(3) and two.owns(3), "three partitions each", one, two)
    assert {one.line.view.instance_id, two.line.view.instance_id} == {"a", "b"}
    three = join(**pool)
    poll_until(
        lambda: three.line.view.waits_for == "group.instance.id.pool",
        "the third member's wait for an instance id",
        one,
        two,
        three,
    )
    one.line.post(LeaveRequested())
    poll_until(
        lambda: one.is_gone and three.owns(3),
        "three partitions with the third member, after the first left",
        one,
        two,
        three,
    )
    assert three.line.view.instance_id not in (None, two.line.view.instance_id)


def test_static_member_gets_the_session_timeout_of_its_group(join: Callable[..., Application]) -> None:
    """DescribeConfigs returns the group's session timeout."""
    one = join(instance_id="a")
    poll_until(lambda: one.line.view.session_timeout_s == 45.0, "the broker's session timeout", one)


def test_member_rejoins_a_group_that_is_gone(script: CoordinatorScript, join: Callable[..., Application]) -> None:
    """H35: unlike Java, a member that receives GROUP_ID_NOT_FOUND loses its partitions and joins at epoch 0."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    script.forget_group("group")
    poll_until(lambda: "lose" in one.orders and one.owns(6), "the loss of six partitions, and their return", one)
    assert one.problems == []


def test_fenced_member_loses_everything_and_rejoins(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """M80: after an administrator removed it, the member declares its partitions lost and gets them back."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    script.remove_member("group", one.line.view.member_id)
    poll_until(lambda: "lose" in one.orders and one.owns(6), "the loss of six partitions, and their return", one)
    assert one.orders == ["assign 6", "lose", "assign 6"]


def test_member_follows_a_coordinator_that_moves(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """S01: after NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS, the member keeps its partitions."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    script.move(broker, 2, loading_s=0.3)
    seen = len(broker.requests(HEARTBEAT))
    poll_until(
        lambda: any(r.node_id == 2 for r in broker.requests(HEARTBEAT)[seen:]), "a heartbeat to the other node", one
    )
    heartbeat = one.line.view.last_heartbeat_at
    poll_until(lambda: one.line.view.last_heartbeat_at != heartbeat and one.owns(6), "another heartbeat", one)
    assert one.orders == ["assign 6"]
    assert one.line.view.coordinator is not None
    assert one.line.view.coordinator.node_id == 2


def test_commit_without_a_response_is_sent_again(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """C07: after a broken connection the member reconnects, and the commit succeeds."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    script.once(OFFSET_COMMIT, lambda _: DISCONNECT)
    offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset=5)}
    one.line.post(CommitRequested(commit_id=1, offsets=offsets, timeout_s=PATIENCE_S))
    poll_until(lambda: bool(one.commits), "the commit's result", one)
    assert one.commits[0].errors == {TopicPartition(TOPIC, 0): None}
    assert len(broker.requests(OFFSET_COMMIT)) == 2


def committed(application: Application, timeout_s: float = PATIENCE_S) -> CommittedOffsets:
    """Return the committed offsets of the first two partitions, as the application receives them."""
    asked = frozenset(TopicPartition(TOPIC, number) for number in (0, 1))
    question = CommittedOffsetsQuestion(partitions=asked, timeout_s=timeout_s)
    application.line.ask(question)
    return question.answer.result(2 * PATIENCE_S)


def commit_5(application: Application) -> None:
    """Commit offset 5 of the first partition."""
    offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset=5)}
    application.line.post(CommitRequested(commit_id=1, offsets=offsets, timeout_s=PATIENCE_S))


FIVE = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset=5), TopicPartition(TOPIC, 1): None}


def fetch_identities(broker: ScriptedBroker) -> list[tuple[str | None, int]]:
    """Return member id and epoch of each request for committed offsets."""
    return [(g.member_id, g.member_epoch) for r in broker.requests(OFFSET_FETCH) for g in r.entity.groups]


def test_committed_offsets_are_requested_as_the_member_after_its_commits(
    broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """KIP-848: the request has member id and epoch, and uses the connection of the earlier commit."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    commit_5(one)
    assert committed(one) == FIVE
    assert fetch_identities(broker)[-1] == (one.line.view.member_id, one.line.view.member_epoch)
    last = broker.requests(OFFSET_FETCH)[-1].connection
    assert {request.connection for request in broker.requests(OFFSET_COMMIT)} == {last}


def test_committed_offsets_are_requested_without_a_member_before_a_subscription(
    broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """Before a subscription, or with manually assigned partitions, the request starts the thread."""
    one, two = join(), join(subscribes=False)
    poll_until(lambda: one.owns(6), "six partitions", one)
    commit_5(one)
    poll_until(lambda: bool(one.commits), "the commit's result", one)
    assert committed(two) == FIVE
    assert fetch_identities(broker)[-1] == (None, -1)
    assert two.state is MemberState.UNSUBSCRIBED


@pytest.mark.parametrize(
    "code", [ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id, ErrorCode.unstable_offset_commit]
)
def test_committed_offsets_are_requested_again_after_a_transient_refusal(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application], code: ErrorCode
) -> None:
    """After a new epoch of the member, or during an open transaction, the request is repeated automatically."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    commit_5(one)
    before = len(fetch_identities(broker))
    script.once(OFFSET_FETCH, lambda request: refused_fetch(request, code))
    assert committed(one) == FIVE
    assert len(fetch_identities(broker)) == before + 2


def refused_fetch(request: Received, code: ErrorCode) -> object:
    """Return a response with this code for the whole group."""
    module = sys.modules[request.response.__module__]
    group = module.OffsetFetchResponseGroup(group_id="group", topics=(), error_code=code)
    return request.response(throttle_time=timedelta(0), groups=(group,))


def test_committed_offsets_without_permission_raise_at_once(
    script: CoordinatorScript, join: Callable[..., Application]
) -> None:
    """The error has Kafka's code and is raised immediately, because waiting would not help."""
    one = join(subscribes=False)
    script.once(OFFSET_FETCH, lambda request: refused_fetch(request, ErrorCode.group_authorization_failed))
    with pytest.raises(RefusedError, match="Failed to get committed offsets: GROUP_AUTHORIZATION_FAILED") as caught:
        committed(one)
    assert caught.value.code == ErrorCode.group_authorization_failed


def test_committed_offsets_request_follows_a_coordinator_that_moves(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """S01: the coordinator has moved and is loading; its first successful response counts."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    commit_5(one)
    poll_until(lambda: bool(one.commits), "the commit's result", one)
    script.move(broker, 2, loading_s=0.3)
    assert committed(one) == FIVE
    assert broker.requests(OFFSET_FETCH)[-1].node_id == 2


@pytest.mark.parametrize("silence", [DROP, DISCONNECT])
def test_committed_offsets_request_ends_after_its_timeout(
    script: CoordinatorScript, join: Callable[..., Application], silence: object
) -> None:
    """If the coordinator does not respond, the call raises and does not block the application."""
    one = join(subscribes=False)
    script.faults.append(lambda request: silence if request.api_key == OFFSET_FETCH else None)
    with pytest.raises(UnansweredError, match=r"Failed to get committed offsets: Local: Timed out \("):
        committed(one, 0.3)


def test_committed_offsets_request_that_is_cancelled_is_not_repeated(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """Ctrl-C may cancel a call without a timeout."""
    one = join(subscribes=False)
    script.faults.append(lambda request: DISCONNECT if request.api_key == OFFSET_FETCH else None)
    question = CommittedOffsetsQuestion(partitions=frozenset({TopicPartition(TOPIC, 0)}), timeout_s=float("inf"))
    one.line.ask(question)
    broker.wait_for(OFFSET_FETCH)
    assert question.answer.cancel()
    member = one.thread._member
    assert member is not None
    wait_until(lambda: not member._tasks, "the end of the request's task")


def test_end_of_the_thread_cancels_committed_offsets_requests(
    script: CoordinatorScript, broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """Requests in flight and later requests are cancelled."""
    one = join(subscribes=False)
    script.faults.append(lambda request: DROP if request.api_key == OFFSET_FETCH else None)
    question = CommittedOffsetsQuestion(partitions=frozenset({TopicPartition(TOPIC, 0)}), timeout_s=float("inf"))
    one.line.ask(question)
    broker.wait_for(OFFSET_FETCH)
    one.thread.stop(PATIENCE_S)
    assert question.answer.cancelled()
    with pytest.raises(CancelledError):
        committed(one)


def test_leave_without_a_response_ends_in_time(script: CoordinatorScript, join: Callable[..., Application]) -> None:
    """M107: the leave is sent once, and the member leaves its group even without a response."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    script.faults.append(lambda request: DROP if request.api_key == HEARTBEAT else None)
    one.line.post(LeaveRequested())
    poll_until(lambda: one.is_gone, "the end of the leave", one)
    assert one.state is MemberState.UNSUBSCRIBED


def test_lease_that_expires_before_its_response_is_logged(
    join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process was suspended while the coordinator answered its first heartbeat."""
    monkeypatch.setattr(consumer_protocol, "HEARTBEATS_OF_SESSION", 0.0)
    one = join(auto_commit=False)
    poll_until(
        lambda: "No heartbeat was answered within the session" in caplog.text, "the end of the lease in the log", one
    )


def test_wake_up_is_set_when_the_session_may_be_over(
    script: CoordinatorScript, join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without heartbeat responses the hot path of `poll` is left, although no order waits."""
    monkeypatch.setattr(consumer_protocol, "HEARTBEATS_OF_SESSION", 0.2)
    one = join(auto_commit=False)
    # The last poll, which clears the wake-up, comes before the end of this lease or of a later one.
    poll_until(
        lambda: one.owns(6) and (one.line.view.lease_until or 0.0) > time.monotonic(), "six partitions and a lease", one
    )
    script.faults.append(lambda request: DROP if request.api_key == HEARTBEAT else None)
    wait_until(
        lambda: one.line.wake_up.is_set and (one.line.view.lease_until or 0.0) < time.monotonic(),
        "the wake-up at the end of the lease",
    )
    assert not one.line.has_orders
    assert (one.line.view.lease_until or 0.0) < time.monotonic()
    script.faults.clear()
    poll_until(lambda: (one.line.view.lease_until or 0.0) > time.monotonic(), "another lease", one)


def test_lease_that_ends_while_the_membership_thread_is_busy_stops_delivery(
    join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow `user_data()` or a slow password hash on the membership thread does not delay the stop of delivery."""
    monkeypatch.setattr(consumer_protocol, "HEARTBEATS_OF_SESSION", 0.2)
    one = join(auto_commit=False)
    # As in the session, a late poll keeps the wake-up set.
    one.line.wake_up.add_reason(lambda: (one.line.view.lease_until or 0.0) <= time.monotonic())
    poll_until(
        lambda: one.owns(6) and (one.line.view.lease_until or 0.0) > time.monotonic(), "six partitions and a lease", one
    )
    is_busy, may_go_on = threading.Event(), threading.Event()

    def compute() -> None:
        is_busy.set()
        assert may_go_on.wait(PATIENCE_S)

    assert one.thread._loop is not None
    one.thread._loop.call(compute)
    assert is_busy.wait(PATIENCE_S)
    one.poll()
    wait_until(lambda: one.line.wake_up.is_set, "the wake-up at the end of the lease")
    assert (one.line.view.lease_until or 0.0) <= time.monotonic()
    assert not one.line.has_orders
    may_go_on.set()
    poll_until(lambda: (one.line.view.lease_until or 0.0) > time.monotonic(), "another lease", one)


def test_lease_is_over_after_a_suspension_until_the_coordinator_confirms_the_session(
    join: Callable[..., Application], caplog: pytest.LogCaptureFixture
) -> None:
    """The lease's clock continues during a suspension; the member's clock stops, and its next event corrects it."""
    caplog.set_level("INFO", "consumer_membership")
    suspended_s = 0.0
    one = join(auto_commit=False, clock=lambda: time.monotonic() + suspended_s)
    poll_until(lambda: one.owns(6) and not one.line.lease_is_over, "six partitions and a lease", one)
    suspended_s = 3600.0
    assert one.line.lease_is_over or "The machine was suspended for 3600.0 s" in caplog.text
    poll_until(lambda: not one.line.lease_is_over, "another lease", one)
    assert "The machine was suspended for 3600.0 s" in caplog.text


def test_member_keeps_its_partitions_while_no_broker_is_reachable(
    broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """S08: after the brokers return, the member continues where it was."""
    one = join()
    poll_until(lambda: one.owns(6), "six partitions", one)
    for node_id in (1, 2):
        broker.stop_node(node_id)
    poll_until(lambda: one.line.view.waits_for == "group coordinator", "the lookup of the coordinator", one)
    poll_until(lambda: one.line.view.last_error is not None, "the network's error in the view", one)
    for node_id in (1, 2):
        broker.start_node(node_id)
    heartbeat = one.line.view.last_heartbeat_at
    poll_until(lambda: one.line.view.last_heartbeat_at != heartbeat and one.owns(6), "another heartbeat", one)
    assert one.orders == ["assign 6"]


@pytest.mark.parametrize("address", [("bro\0ker", 9092), ("127.0.0.1", 70_000)], ids=["NUL", "port"])
def test_coordinator_with_an_invalid_address_counts_as_unreachable(
    broker: ScriptedBroker,
    join: Callable[..., Application],
    caplog: pytest.LogCaptureFixture,
    address: tuple[str, int],
) -> None:
    """The member keeps looking up its coordinator, and joins once the brokers advertise valid addresses."""
    broker.advertised = {1: address, 2: address}
    one = join()
    problem = "the host 'bro\\x00ker' has a NUL" if "\0" in address[0] else "the port 70000 is not between 1 and 65535"
    poll_until(
        lambda: (
            f"ConsumerGroupHeartbeatRequest failed due to {speakable(address[0])}:{address[1]}: {problem}"
            in caplog.text
        ),
        "the failed heartbeat in the log",
        one,
    )
    assert "\0" not in caplog.text
    assert (one.line.view.state, one.problems) == (MemberState.JOINING, [])
    broker.advertised = {}
    poll_until(lambda: one.owns(6), "six partitions", one)


def test_poll_without_a_sample_counts_for_max_poll_interval(
    broker: ScriptedBroker, join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before max.poll.interval.ms counts as exceeded, the application's progress is sampled."""
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 3600.0)
    one = join(max_poll_interval_s=0.5)
    poll_until(lambda: one.owns(6), "six partitions", one)
    seen = len(broker.requests(HEARTBEAT))
    poll_until(lambda: len(broker.requests(HEARTBEAT)) > seen + 12, "twelve more heartbeats", one)  # one each 0.1 s
    assert (one.owns(6), one.problems) == (True, [])


def test_poll_counts_if_another_event_comes_before_the_timer_of_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy loop may handle an event before the timer of max.poll.interval.ms; it also samples polls then."""
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 3600.0)
    limit_s, polls = 0.2, itertools.count(1)
    line = Line()
    settings = ThreadSettings(
        member=MemberSettings(group_id="group", max_poll_interval_s=limit_s),
        protocols=CONSUMER_ONLY,
        connection=ConnectionSettings(bootstrap_servers=(("127.0.0.1", 9),)),
        start=StartSettings(),
        progress=lambda: (next(polls), 0),
    )
    thread = NetworkThread(line, settings, observer=LogObserver("client"))
    is_busy, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()
    states: list[MemberState] = []

    def compute() -> None:
        is_busy.set()
        assert may_go_on.wait(PATIENCE_S)

    def look() -> None:
        states.append(line.view.state)
        is_over.set()

    line.send(Subscribed(subscription=Subscription(topics=frozenset({TOPIC}))), Polled())
    assert thread._loop is not None
    thread._loop.call(compute)
    assert is_busy.wait(PATIENCE_S)
    busy_at = time.monotonic()
    line.post(CommitRequested(commit_id=1, offsets={}, timeout_s=PATIENCE_S))
    thread._loop.call(look)
    wait_until(lambda: time.monotonic() > busy_at + limit_s, "the end of max.poll.interval.ms")
    may_go_on.set()
    assert is_over.wait(PATIENCE_S)
    thread.stop(PATIENCE_S)
    assert states == [MemberState.JOINING]


def test_calm_member_samples_rarely_until_records_come(
    join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without records, a poll may be noticed late; a new record ends this calm state."""
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 0.01)
    one = join()
    poll_until(lambda: one.owns(6) and one.thread.is_calm, "a calm member", one)
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 3600.0)
    one.thread.sample_soon()
    poll_until(lambda: not one.thread.is_calm, "the end of the calm", one)


def test_member_whose_callback_raised_is_not_calm(
    script: CoordinatorScript, join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next poll calls the callback again, so the member must notice it soon."""
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 0.01)
    one = join()
    poll_until(lambda: one.owns(6) and one.thread.is_calm, "a calm member", one)
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 3600.0)
    one.raises_in_on_assign = True
    script.forget_group("group")
    poll_until(
        lambda: one.line.view.waits_for is WaitsFor.POLL_TO_RETRY_CALLBACK and not one.thread.is_calm,
        "a member whose callback raised, and that is not calm",
        one,
    )


def test_member_that_waits_for_a_response_is_calm(
    script: CoordinatorScript, join: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll does not end the wait, so the member needs polls only for max.poll.interval.ms."""
    monkeypatch.setattr(progress, "PROGRESS_SAMPLE_S", 0.01)
    script.faults.append(lambda request: DROP if request.api_key == HEARTBEAT else None)
    one = join()
    waiting = WaitsFor.JOIN_RESPONSE
    poll_until(lambda: one.line.view.waits_for is waiting and one.thread.is_calm, "a calm member that waits", one)


def test_view_reports_a_silent_port_as_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view has the error while the attempt to connect continues."""
    monkeypatch.setattr(transport, "SILENT_AFTER_S", 0.01)
    with listening() as server:
        line = Line()
        settings = ThreadSettings(
            member=MemberSettings(group_id="group"),
            protocols=CONSUMER_ONLY,
            connection=ConnectionSettings(bootstrap_servers=(("127.0.0.1", server),)),
            start=StartSettings(),
            progress=lambda: (0, 0),
        )
        thread = NetworkThread(line, settings, observer=LogObserver("client"))
        line.send(Subscribed(subscription=Subscription(topics=frozenset({TOPIC}))), Polled())
        wait_until(lambda: line.view.last_error is not None, "the silent port in the view")
        error = line.view.last_error
        thread.stop(PATIENCE_S)
    assert error is not None
    assert (error.name, error.message) == (
        "_TRANSPORT",
        (
            f"127.0.0.1:{server} accepted the connection and did not respond within 0.01 s; check that it is "
            "a Kafka listener"
        ),
    )


def test_broker_without_the_consumer_protocol_is_fatal_and_names_the_release(
    broker: ScriptedBroker, join: Callable[..., Application]
) -> None:
    """H32: a broker without the API ends the membership immediately, and the error message names the remedy."""
    del broker.versions[HEARTBEAT]
    one = join()
    poll_until(lambda: bool(one.problems) and one.state is MemberState.FATAL, "the fatal end", one)
    assert one.state is MemberState.FATAL
    assert "4.0" in one.problems[0].error.message
