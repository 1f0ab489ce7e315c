"""The wake-up: while an order waits or delivery has to stop, the hot path of `poll` returns no record."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as PartitionOffset
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from consumer_membership import Consumer
from consumer_membership.membership.effects import CommitCompleted, Problem, RaiseToApplication
from consumer_membership.membership.events import CommitRequested, Step
from consumer_membership.runtime.line import WakeUp
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition
from tests.clients.application import Called, at, record, subscribed
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from _typeshed import TraceFunction

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
SOON_S = 1_000.0
REFUSED = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="no right to read")

#: An ordered step: the number of its attempt, and the step that is reported as finished.
Ordered: TypeAlias = tuple[int, Step]


def commit(consumer: Consumer, offset: int = 1) -> None:
    """Commit an offset and wait for the response."""
    consumer.commit(offsets=[PartitionOffset(TOPIC, 0, offset)], asynchronous=False)


def test_wake_up_that_is_set_while_the_reasons_are_read_stays_set() -> None:
    """A reason that becomes true during the review, in another thread or a signal handler, is not lost."""
    wake_up = WakeUp()
    waiting: list[str] = []

    def comes_late() -> bool:
        if wake_up.is_set and not waiting:
            waiting.append("an order")
            wake_up.set()
        return False

    wake_up.add_reason(lambda: bool(waiting))
    wake_up.add_reason(comes_late)
    wake_up.set()
    wake_up.review()
    assert wake_up.is_set
    waiting.append("another")
    wake_up.review()
    assert wake_up.is_set


def test_wake_up_is_cleared_by_a_review_without_a_reason() -> None:
    """One poll leaves the hot path, and the next poll takes it again."""
    wake_up = WakeUp()
    wake_up.add_reason(lambda: False)
    wake_up.set()
    wake_up.review()
    assert not wake_up.is_set


def review_with_an_order_before(instruction: int) -> tuple[WakeUp, bool]:
    """Let another thread add an order before this instruction of a review; return whether it was reached."""
    wake_up, waiting = WakeUp(), list[str]()
    wake_up.add_reason(lambda: bool(waiting))
    wake_up.set()
    reached = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code is not WakeUp.review.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(reached) == instruction:
            waiting.append("an order")
            wake_up.set()
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        wake_up.review()
    finally:
        sys.settrace(former)
    return wake_up, bool(waiting)


def test_wake_up_that_is_set_before_any_instruction_of_a_review_stays_set() -> None:
    """Without a GIL, another thread may add an order between any two instructions of a review; it is not lost."""
    for instruction in itertools.count():
        wake_up, is_reached = review_with_an_order_before(instruction)
        if not is_reached:
            break
        assert wake_up.is_set, f"lost before instruction {instruction}"
    assert instruction > 10


@pytest.mark.slow
@pytest.mark.parametrize(("end", "called"), [("lost", ["lost"]), ("fatal", []), ("lease", []), ("revoked", ["revoke"])])
def test_poll_returns_no_record_after_a_change_during_a_synchronous_commit(
    consumers: ConsumerFactory, topic: str, end: str, called: list[str]
) -> None:
    """A loss, error, lease end or revocation that arrives during a commit stops the next poll, whatever is buffered."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    wait_until(lambda: consumer._ready, "buffered records", between=lambda: record(consumer))
    member = consumer.member
    match end:
        case "lost":
            member.lose()
        case "fatal":
            member.order(RaiseToApplication(error=REFUSED, problem=Problem.FATAL))
        case "lease":
            member.view = replace(member.view, lease_until=time.monotonic() - 1.0)
            consumer._use().line.wake_up.set()
        case _:
            member.pause(None)
            member.revoke(None)
    commit(consumer)
    message = consumer.poll(0)
    assert message is None or message.error() is not None
    assert [name for name, _ in calls] == ["assign", *called]
    member.view = replace(member.view, lease_until=None)


class Application(RuleBasedStateMachine):
    """A consumer that two threads call, its scripted member, and the events that each thread causes for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = self.called = 0
        self.completed: list[int] = []
        self.called_back: list[int] = []
        self.errors = 0
        self.ordered: list[Ordered] = []
        self.offset = 0
        self.waiting: Thread | None = None
        self.consumer = ScriptedConsumer(
            {"group.id": "g", "log_level": 0, "enable.auto.commit": False},
            on_commit=lambda *_: self.called_back.append(1),
        )
        self.member = self.consumer.member
        self.session = self.consumer._use()
        self.consumer.subscribe([TOPIC], on_revoke=self.revoke, on_lost=lambda *_: None)
        assert self.consumer.poll(0) is None

    def revoke(self, consumer: Consumer, _: list[PartitionOffset]) -> None:
        """Commit, as applications do when they release partitions."""
        if self.member.answers_commits:
            commit(consumer)

    # ---- the member ----

    @property
    def is_fenced(self) -> bool:
        """Whether a loss has not been performed yet."""
        return any(step is Step.LOSE for _, step in self.unfinished)

    @property
    def unfinished(self) -> list[Ordered]:
        """The steps that have not been performed yet; a later attempt cancels earlier steps."""
        finished = {(step.attempt, step.step) for step in self.member.steps}
        return [one for one in self.ordered if one[0] == self.member.attempt and one not in finished]

    @precondition(lambda self: self.waiting is None)  # an assignment waits for commits of its partitions
    @rule(records=strategies.integers(1, 6))
    def assigns(self, records: int) -> None:
        """Assign partitions; their records are fetched immediately."""
        self.ordered.append((self.member.assign(dict.fromkeys(PARTITIONS, 0)), Step.ASSIGN))
        self.polls(in_other_thread=False)
        if not self.unfinished:
            batch = [Message(topic=TOPIC, partition=i % 2, offset=self.offset + i, value=b"x") for i in range(records)]
            self.offset += records
            self.session.buffer.landed.append(batch)
            self.session.buffer.take_in()

    @rule()
    def revokes(self) -> None:
        """Revoke partitions."""
        attempt = self.member.pause(PARTITIONS[:1])
        self.member.revoke(PARTITIONS[:1])
        self.ordered += [(attempt, Step.PAUSE), (attempt, Step.REVOKE)]

    @rule()
    def loses(self) -> None:
        """Report that another member owns the partitions."""
        self.ordered.append((self.member.lose(), Step.LOSE))

    @rule()
    def is_refused(self) -> None:
        """Report an error to the application."""
        self.errors += 1
        self.member.order(RaiseToApplication(error=REFUSED, problem=Problem.REFUSED))

    @rule()
    def completes_a_commit(self) -> None:
        """Answer an asynchronous commit."""
        offsets = {PARTITIONS[0]: OffsetAndMetadata(offset=1)}
        self.completed.append(1)
        self.member.order(CommitCompleted(commit_id=0, offsets=offsets, errors=dict.fromkeys(offsets)))

    @rule(left_s=strategies.sampled_from([-1.0, SOON_S, None]))
    def moves_the_lease(self, left_s: float | None) -> None:
        """Extend, end or remove the lease; a timer of the membership thread notices its end."""
        until = None if left_s is None else time.monotonic() + left_s
        self.member.view = replace(self.member.view, lease_until=until)
        if left_s is not None and left_s < 0:
            self.consumer._use().line.wake_up.set()

    @rule()
    def reports(self) -> None:
        """Let librdkafka report something for a callback."""

        def called() -> None:
            self.called += 1

        self.reported += 1
        self.session._handles.reports.note(called)

    # ---- the application ----

    @rule(in_other_thread=strategies.booleans())
    def polls(self, in_other_thread: bool) -> None:  # noqa: FBT001 - Hypothesis gives it by name
        """Poll once; no record is returned if delivery has to stop."""
        has_to_stop = self.is_fenced or self.lease_is_over
        message = self.in_thread(lambda: self.consumer.poll(0), in_other_thread)
        assert message is None or isinstance(message, Message)
        if message is not None and message.error() is not None:
            self.errors -= 1
            return
        assert message is None or not has_to_stop

    @rule(limit=strategies.integers(0, 2), in_other_thread=strategies.booleans())
    def consumes(self, limit: int, in_other_thread: bool) -> None:  # noqa: FBT001
        """Consume once."""
        messages = self.in_thread(lambda: self.consumer.consume(limit, 0), in_other_thread)
        assert isinstance(messages, list)
        self.errors -= sum(message.error() is not None for message in messages)

    @precondition(lambda self: self.waiting is None)
    @rule(in_other_thread=strategies.booleans())
    def commits_and_waits(self, in_other_thread: bool) -> None:  # noqa: FBT001
        """Commit synchronously; the response arrives immediately."""
        self.in_thread(lambda: commit(self.consumer), in_other_thread)

    @precondition(lambda self: self.waiting is None)
    @rule()
    def begins_to_wait_for_a_commit(self) -> None:
        """Let the other thread wait for a response while this one continues."""
        self.member.answers_commits = False
        before = len(self.member.of(CommitRequested))
        self.waiting = Thread(lambda: commit(self.consumer))
        self.member.wait_for(CommitRequested, before + 1)

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def gets_the_answer(self) -> None:
        """Answer the commit that the other thread waits for."""
        assert self.waiting is not None
        self.member.answer_commit(self.member.of(CommitRequested)[-1])
        self.waiting.outcome()
        self.waiting, self.member.answers_commits = None, True

    @rule()
    def pauses_and_resumes(self) -> None:
        """Move records out of the buffer and back."""
        held = self.consumer.assignment()
        self.consumer.pause(held)
        self.consumer.resume(held)

    # ---- the invariant ----

    @property
    def lease_is_over(self) -> bool:
        """Whether the lease has ended."""
        until = self.member.view.lease_until
        return until is not None and until < time.monotonic()

    @invariant()
    def wake_up_is_set_while_something_waits(self) -> None:
        """The rule holds after any call in either thread."""
        reasons = {
            "steps": self.unfinished,
            "errors": self.errors,
            "on_commit": len(self.completed) - len(self.called_back),
            "reports": self.reported - self.called,
            "lease": self.lease_is_over,
        }
        assert self.consumer._wake_up.is_set or not any(reasons.values()), reasons

    def in_thread(self, action: object, in_other_thread: bool) -> object:  # noqa: FBT001
        """Return the result of an action, in the other thread or in this one."""
        assert callable(action)
        return Thread(action).outcome() if in_other_thread else action()

    def teardown(self) -> None:
        """Close the consumer."""
        self.member.view = replace(self.member.view, lease_until=None)
        if self.waiting is not None:
            self.gets_the_answer()
        self.consumer.close()


TestApplication = Application.TestCase
TestApplication.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestApplication.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]  # as a marked class has
