# both kinds of consumers
"""Incidents of groups, caused on a real broker with confluent-kafka's consumer and this package's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions, ResourceType

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin, GroupDescription
from consumer_membership.observe.findings import Cause
from consumer_membership.translation.offset_metadata import FinishedOffsets, encode
from tests.support.acls import delete_rule, forbid
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, delete_topic, open_transaction, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

RAW, OURS = RawConsumer, Consumer
#: A function that is called between two samples of the group, for example to write records.
Between = Callable[[], object]


def nothing() -> None:
    """Do nothing."""


def application(kind: Any, servers: str, group: str, *topics: str, **config: object) -> ConsumerThread[Any]:
    """Return a thread with a consumer of this kind; it begins to poll when its context is entered."""
    settings: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 50,
    }
    consumer = kind(settings | {key.replace("_", "."): value for key, value in config.items()})
    return ConsumerThread(consumer, topics)


@dataclass(slots=True)
class Stage:
    """A broker on which tests cause incidents."""

    servers: str

    @property
    def admin(self) -> GroupAdmin:
        """Return an admin of the broker."""
        return GroupAdmin({"bootstrap.servers": self.servers}, timeout_s=PATIENCE_S)

    def topic(self, partitions: int = 2, records: int = 0) -> str:
        """Create a topic with records."""
        name = create_topic(self.servers, unique("topic"), partitions)
        if records:
            produce(self.servers, name, records)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions, and return when the broker serves them."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        wait_until(
            lambda: len(admin.list_topics(topic, PATIENCE_S).topics[topic].partitions) == partitions,
            f"{partitions} partitions of {topic}",
        )

    def write(self, topic: str, count: int = 10) -> None:
        """Write more records."""
        produce(self.servers, topic, count)

    def commit(self, group: str, *offsets: tuple[str, int, int]) -> None:
        """Commit these offsets without a member."""
        consumer = RawConsumer({"bootstrap.servers": self.servers, "group.id": group})
        consumer.commit(offsets=[Partition(*one) for one in offsets], asynchronous=False)
        consumer.close()

    def until(self, group: str, is_so: Callable[[GroupDescription], bool]) -> None:
        """Wait until the group's description satisfies the predicate."""

        def described() -> bool:
            found = self.admin.survey(group, in_depth=False).group
            return found is not None and is_so(found)

        wait_until(described, "the state of the group", seen=lambda: self.admin.survey(group, in_depth=False).group)

    def settled(self, group: str, members: int) -> None:
        """Wait until the group is stable with this many members."""
        self.until(group, lambda one: (one.state, len(one.members)) == ("Stable", members))

    def caught_up(self, group: str) -> None:
        """Wait until all records are committed."""
        wait_until(lambda: self.admin.describe(group).lag == 0, "everything committed")


Made = Callable[[Stage, str], AbstractContextManager[Between]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident. `make` causes it, and returns the function to call between two samples.

    With `is_limited`, the incident needs a broker with narrow limits.
    """

    name: str
    cause: Cause
    make: Made
    is_limited: bool = False


INCIDENTS: list[Incident] = []


def incident(
    cause: Cause,
    *variants: tuple[str, dict[str, Any]],
    is_limited: bool = False,
    registry: list[Incident] = INCIDENTS,
) -> Callable[[Any], Any]:
    """Register an incident, once for each of its variants."""

    def register(function: Any) -> Any:
        for name, options in variants or (("", {}),):

            @contextmanager
            def make(stage: Stage, group: str, options: dict[str, Any] = options) -> Iterator[Between]:
                with ExitStack() as stack:
                    yield function(stage, group, stack, **options)

            title = "-".join(filter(None, (function.__name__, name)))
            registry.append(Incident(name=title, cause=cause, make=make, is_limited=is_limited))
        return function

    return register


BOTH = (("raw-classic", {"kind": RAW, "protocol": "classic"}), ("ours", {"kind": OURS, "protocol": "consumer"}))
ALL = (*BOTH, ("raw-consumer", {"kind": RAW, "protocol": "consumer"}))


def app(stage: Stage, stack: ExitStack, kind: Any, group: str, *topics: str, **config: object) -> ConsumerThread[Any]:
    """Start an application and stop it with the stack."""
    return stack.enter_context(application(kind, stage.servers, group, *topics, **config))


@incident(Cause.GROUP_NOT_FOUND)
def nobody_ever_joined(_: Stage, __: str, ___: ExitStack) -> Between:
    """The group's name is misspelled."""
    return nothing


def denied(stage: Stage, stack: ExitStack, kind: ResourceType, name: str) -> None:
    """Deny DESCRIBE until the incident is over."""
    rule = forbid(stage.servers, kind, name, AclOperation.DESCRIBE)
    stack.callback(delete_rule, stage.servers, rule)


@incident(Cause.GROUP_AUTHORIZATION_FAILED)
def group_is_denied(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The observer is not authorized to describe the group."""
    stage.commit(group, (stage.topic(), 0, 0))
    denied(stage, stack, ResourceType.GROUP, group)
    return nothing


@incident(Cause.TOPIC_AUTHORIZATION_FAILED, *BOTH)
def topic_is_denied(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The observer may not describe the topic; the members joined before the ACL was created."""
    topic = stage.topic()
    app(stage, stack, kind, group, topic, group_protocol=protocol).has(2)
    denied(stage, stack, ResourceType.TOPIC, topic)
    return nothing


@incident(Cause.TOPIC_MISSING, *ALL[1:])
def topic_is_misspelt(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The subscribed topic does not exist; librdkafka's classic member does not even join for it."""
    app(stage, stack, kind, group, unique("misspelt"), group_protocol=protocol)
    stage.settled(group, 1)
    return nothing


@incident(Cause.TOPIC_MISSING)
def topic_is_deleted(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The topic is deleted while a member consumes it."""
    topic = stage.topic()
    app(stage, stack, OURS, group, topic, group_protocol="consumer").has(2)
    delete_topic(stage.servers, topic)
    stage.until(group, lambda one: one.state == "Stable" and not one.members[0].assignment)
    return nothing


@incident(Cause.PATTERN_WITHOUT_TOPIC, ("ours", {"kind": OURS}), ("raw", {"kind": RAW}))
def pattern_matches_nothing(stage: Stage, group: str, stack: ExitStack, kind: Any) -> Between:
    """The pattern matches no topic; the broker resolves the pattern and reports no error."""
    app(stage, stack, kind, group, f"^{unique('nothing')}.*", group_protocol="consumer")
    stage.settled(group, 1)
    return nothing


@incident(Cause.OFFSET_BEYOND_END)
def offset_is_beyond_the_end(stage: Stage, group: str, _: ExitStack) -> Between:
    """The committed offset exceeds the end, as after a topic was recreated."""
    stage.commit(group, (stage.topic(1, 10), 0, 1_000))
    return nothing


@incident(Cause.OFFSET_BEFORE_START)
def retention_was_faster(stage: Stage, group: str, _: ExitStack) -> Between:
    """Records were deleted before the group read them."""
    topic = stage.topic(1, 10)
    stage.commit(group, (topic, 0, 2))
    admin = AdminClient({"bootstrap.servers": stage.servers})
    for future in admin.delete_records([Partition(topic, 0, 8)]).values():
        future.result()
    return nothing


@incident(Cause.OPEN_TRANSACTION, *BOTH)
def transaction_is_left_open(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A read_committed reader waits at the transaction's first record, whatever is written after it."""
    topic = stage.topic(1, 10)
    reader = app(stage, stack, kind, group, topic, group_protocol=protocol, isolation_level="read_committed").has(1)
    stage.caught_up(group)
    producer = open_transaction(stage.servers, topic, unique("left-open"))
    stack.callback(producer.abort_transaction, PATIENCE_S)
    assert reader.notes.assigned
    return lambda: stage.write(topic)


@incident(Cause.REBALANCE_STORM, *BOTH)
def members_come_and_go(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """One more member joins before each sample."""
    topic = stage.topic(8)
    app(stage, stack, kind, group, topic, group_protocol=protocol).has(8)
    members = [1]

    def another() -> None:
        app(stage, stack, kind, group, topic, group_protocol=protocol)
        members.append(1)
        stage.until(group, lambda one: len(one.members) == len(members))

    return another


@incident(Cause.STUCK_REBALANCE, *ALL)
def member_does_not_give_up(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A member does not poll while another one joins."""
    topic = stage.topic(4)
    first = app(stage, stack, kind, group, topic, group_protocol=protocol).has(4)
    first.freeze()
    app(stage, stack, kind, group, topic, group_protocol=protocol)
    waiting = {"PreparingRebalance", "Reconciling"}
    stage.until(group, lambda one: len(one.members) >= 2 - (protocol == "classic") and one.state in waiting)
    return nothing


@incident(
    Cause.STATIC_MEMBER_AWAY,
    ("ours", {"kind": OURS, "records": 10}),
    ("raw", {"kind": RAW, "records": 10}),
    ("nothing-to-read", {"kind": RAW, "records": 0}),
)
def static_member_is_away(stage: Stage, group: str, _: ExitStack, kind: Any, records: int) -> Between:
    """A static member closed, and its partitions are reserved for it."""
    topic = stage.topic()
    with application(kind, stage.servers, group, topic, group_protocol="consumer", group_instance_id="one") as member:
        member.has(2)
        stage.settled(group, 1)
    stage.until(group, lambda one: one.members[0].is_away)
    return lambda: stage.write(topic) if records else None


@incident(Cause.NO_MEMBERS, *BOTH)
def everybody_left(stage: Stage, group: str, _: ExitStack, kind: Any, protocol: str) -> Between:
    """All members left, and producers still write."""
    topic = stage.topic(1, 10)
    with application(kind, stage.servers, group, topic, group_protocol=protocol) as member:
        member.has(1)
        stage.caught_up(group)
    stage.write(topic)
    stage.until(group, lambda one: not one.members)
    return nothing


@incident(Cause.COMMITS_WITHOUT_MEMBERS)
def partitions_assigned_by_hand(stage: Stage, group: str, _: ExitStack) -> Between:
    """A program with manually assigned partitions is healthy: it commits while producers write."""
    topic, reached = stage.topic(1, 10), [0]

    def go_on() -> None:
        stage.write(topic)
        reached[0] += 5
        stage.commit(group, (topic, 0, reached[0]))

    go_on()
    return go_on


@incident(Cause.TOPIC_NOT_SUBSCRIBED, *BOTH)
def topic_was_dropped(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A deployment no longer subscribes to one of its topics."""
    forgotten, topic = stage.topic(1, 10), stage.topic()
    stage.commit(group, (forgotten, 0, 3))
    app(stage, stack, kind, group, topic, group_protocol=protocol).has(2)
    stage.settled(group, 1)
    return nothing


@incident(Cause.PARTITION_UNASSIGNED)
def topic_has_grown(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The leader of a classic group has old metadata."""
    topic = stage.topic(2)
    app(stage, stack, RAW, group, topic, topic_metadata_refresh_interval_ms=-1).has(2)
    stage.grow(topic, 4)
    stage.settled(group, 1)
    return nothing


@incident(Cause.NEVER_COMMITTED, *ALL)
def member_never_commits(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A member reads records and never commits."""
    topic = stage.topic(2, 10)
    app(stage, stack, kind, group, topic, group_protocol=protocol, enable_auto_commit=False).has(2)
    stage.settled(group, 1)
    return lambda: stage.write(topic)


@incident(Cause.MEMBER_STALLED, *ALL)
def handler_hangs(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A member reads and commits records, and then its handler hangs on a record."""
    topic = stage.topic(2, 10)
    member = app(stage, stack, kind, group, topic, group_protocol=protocol).has(2)
    stage.settled(group, 1)
    stage.caught_up(group)
    member.freeze()
    stage.write(topic)
    return lambda: stage.write(topic)


@incident(Cause.MEMBER_STALLED, *BOTH)
def one_of_two_hangs(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """One of two members hangs; the other member progresses, so the sum of their progress would hide the stall."""
    topic = stage.topic(2, 10)
    members = [app(stage, stack, kind, group, topic, group_protocol=protocol) for _ in range(2)]
    for member in members:
        member.has(1)
    stage.settled(group, 2)
    stage.caught_up(group)
    members[0].freeze()
    stage.write(topic)
    return lambda: stage.write(topic)


@incident(Cause.PARTITION_STALLED, *BOTH)
def partition_is_paused(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """A paused partition is not resumed, while the member's other partition progresses."""
    topic = stage.topic(2, 10)
    member = app(stage, stack, kind, group, topic, group_protocol=protocol).has(2)
    stage.settled(group, 1)
    stage.caught_up(group)
    member.do(lambda consumer: consumer.pause([Partition(topic, 0)]))
    stage.write(topic)

    def go_on() -> None:
        stage.write(topic)
        wait_until(lambda: stage.admin.describe(group).partitions[1].lag == 0, "the other partition's end")

    return go_on


@incident(Cause.COMMIT_HELD_BACK, ("raw-consumer", {"kind": RAW, "protocol": "consumer"}), BOTH[1])
def one_record_is_unfinished(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The member finishes all records except the first, and lists them in the metadata of its commits."""
    topic = stage.topic(1, 10)
    member = app(stage, stack, kind, group, topic, group_protocol=protocol, enable_auto_commit=False).has(1)
    stage.settled(group, 1)
    high = [2]

    def go_on() -> None:
        high[0] += 1
        text = encode(FinishedOffsets(base=0, high=high[0], unfinished=(0,)), 4095)
        at = [Partition(topic, 0, 0, text)]
        member.do(lambda consumer: consumer.commit(offsets=at, asynchronous=False))

    go_on()
    return go_on


def advancing(stage: Stage, topic: str, group: str, member: ConsumerThread[Any], step: int, written: int) -> Between:
    """Let the member commit `step` more offsets, and write `written` more records, before each sample."""
    at = [0]

    def go_on() -> None:
        at[0] += step
        member.do(lambda consumer: consumer.commit(offsets=[Partition(topic, 0, at[0])], asynchronous=False))
        produce(stage.servers, topic, written)

    go_on()
    stage.settled(group, 1)
    return go_on


@incident(Cause.TOO_SLOW, *BOTH)
def reader_is_slower_than_writers(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The reader progresses and its lag grows."""
    topic = stage.topic(1, 300)
    config = {"group_protocol": protocol, "enable_auto_commit": False}
    member = app(stage, stack, kind, group, topic, **config).has(1)
    return advancing(stage, topic, group, member, 5, 100)


@incident(Cause.SKEWED_LAG)
def one_key_has_all(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Partition 0 receives nearly all records."""
    topic = stage.topic(5)
    producer = Producer({"bootstrap.servers": stage.servers})
    for _ in range(1_000):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    member = app(stage, stack, RAW, group, topic, enable_auto_commit=False).has(5)
    at = [0]

    def go_on() -> None:
        at[0] += 10
        member.do(lambda consumer: consumer.commit(offsets=[Partition(topic, 0, at[0])], asynchronous=False))

    go_on()
    return go_on


@incident(Cause.TOO_MANY_MEMBERS, *BOTH)
def members_are_idle(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """Three members share two partitions."""
    topic = stage.topic(2)
    for _ in range(3):
        app(stage, stack, kind, group, topic, group_protocol=protocol)
    stage.until(
        group, lambda one: one.state == "Stable" and sorted(len(m.assignment) for m in one.members) == [0, 1, 1]
    )
    return nothing


@incident(Cause.MIXED_SUBSCRIPTIONS, *BOTH)
def two_applications_share_a_group(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """Each application subscribes to its own topic."""
    for _ in range(2):
        app(stage, stack, kind, group, stage.topic(2), group_protocol=protocol)
    stage.until(group, lambda one: one.state == "Stable" and [len(m.assignment) for m in one.members] == [2, 2])
    return nothing


@incident(Cause.SKEWED_ASSIGNMENT)
def range_gives_the_first_more(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Two members share three topics of three partitions."""
    topics = [stage.topic(3) for _ in range(3)]
    for _ in range(2):
        app(stage, stack, RAW, group, *topics, partition_assignment_strategy="range")
    stage.until(group, lambda one: one.state == "Stable" and {len(m.assignment) for m in one.members} == {3, 6})
    return nothing


@incident(Cause.CONVERSION_UNFINISHED)
def one_member_is_not_upgraded(stage: Stage, group: str, stack: ExitStack) -> Between:
    """A group of the consumer protocol has a classic member."""
    topic = stage.topic(2)
    app(stage, stack, RAW, group, topic, partition_assignment_strategy="cooperative-sticky").has(2)
    app(stage, stack, OURS, group, topic, group_protocol="consumer").has(1)
    stage.settled(group, 2)
    return nothing


@incident(Cause.GROUP_FULL, *BOTH, is_limited=True)
def group_is_full(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The group accepts no more members."""
    topic = stage.topic(2)
    for _ in range(2):
        app(stage, stack, kind, group, topic, group_protocol=protocol)
    stage.until(group, lambda one: one.state == "Stable" and [len(m.assignment) for m in one.members] == [1, 1])
    return nothing


@incident(Cause.SHORT_SESSION, is_limited=True)
def session_is_one_heartbeat(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The broker's session timeout equals one heartbeat interval."""
    app(stage, stack, RAW, group, stage.topic(2), group_protocol="consumer").has(2)
    stage.settled(group, 1)
    return nothing


@incident(Cause.CONVERSION_DISABLED, is_limited=True)
def conversion_is_switched_off(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Members of the consumer protocol cannot join the classic group."""
    app(stage, stack, RAW, group, stage.topic(2)).has(2)
    stage.settled(group, 1)
    return nothing


@incident(Cause.OFFSETS_EXPIRE, is_limited=True)
def offsets_are_kept_for_an_hour(stage: Stage, group: str, _: ExitStack) -> Between:
    """The broker keeps the offsets of an empty group for an hour."""
    stage.commit(group, (stage.topic(1), 0, 0))
    return nothing
