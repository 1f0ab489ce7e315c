"""A group on a real broker, its successive members, and the records that each of them received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consumer_membership.admin import GroupAdmin, GroupDescription
from consumer_membership.devbroker import Broker
from tests.integration.environments import CONSUMER
from tests.integration.offsets import committed
from tests.integration.victim import Victim
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.victim import Point

PARTITIONS = 12
#: The number of records that `produce` adds to each partition.
DEPTH = 10
VICTIM = "victim"
#: Longer than any test: only the test or a revocation commits.
NEVER_MS = 600_000


@dataclass(slots=True)
class GroupUnderTest:
    """A topic, a group, its successive members, and the records that each of them received."""

    broker: Broker
    topic: str
    group_id: str
    folder: Path
    members: ExitStack
    #: The membership options of its members (`environments`).
    mode: Mapping[str, object] = field(default_factory=lambda: CONSUMER)
    victims: list[Victim] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    produced: int = 0
    #: Each (partition, offset) that a killed victim had received and, according to the coordinator, not committed.
    expected_repeats: Counter[tuple[int, int]] = field(default_factory=Counter)

    # ---- actors ----

    def victim(
        self,
        dies_at: Point | None = None,
        *,
        is_armed: bool = False,
        request_timeout_s: float | None = None,
        servers: str | None = None,
        **config: object,
    ) -> Victim:
        """Start a process of the static member."""
        victim = Victim(
            servers or self.broker.bootstrap_servers,
            self.group_id,
            self.topic,
            self.folder,
            dies_at=dies_at,
            is_armed=is_armed,
            request_timeout_s=request_timeout_s,
            **{**self.mode, "group_instance_id": VICTIM, "auto_commit_interval_ms": NEVER_MS, **config},
        )
        self.victims.append(self.members.enter_context(victim))
        return victim

    def worker(self, instance_id: str) -> Worker:
        """Start another static member, in a thread."""
        config: dict[str, Any] = {**self.mode, "group_instance_id": instance_id, "auto_commit_interval_ms": NEVER_MS}
        worker = Worker(self.broker.bootstrap_servers, self.group_id, [self.topic], **config)
        self.workers.append(self.members.enter_context(worker))
        return worker

    # ---- records ----

    def produce(self) -> None:
        """Write DEPTH more records with consecutive numbers to each partition."""
        count = PARTITIONS * DEPTH
        pairs = [(None, str(self.produced + number).encode()) for number in range(count)]
        produce(self.broker.bootstrap_servers, self.topic, pairs)
        self.produced += count

    def leave_uncommitted(self, victim: Victim, *, held: int) -> None:
        """Make it commit DEPTH records of each of its partitions, and receive DEPTH more of each."""
        self.produce()
        victim.wait(lambda a: len(a.records) == held * DEPTH, "the first records")
        assert set(victim.commit().values()) == {DEPTH}
        self.produce()
        victim.wait(lambda a: len(a.records) == 2 * held * DEPTH, "records that it does not commit")

    @property
    def depth(self) -> int:
        """The number of records in each partition."""
        return self.produced // PARTITIONS

    def seen(self) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was delivered to an application."""
        seen = Counter((p, o) for victim in self.victims for p, o, _ in victim.account.records)
        seen.update((p, o) for worker in self.workers for _, p, o, _ in worker.notes.records)
        return seen

    def numbers(self) -> set[int]:
        """Return the numbers of the records that were delivered to an application."""
        numbers = {number for victim in self.victims for _, _, number in victim.account.records}
        return numbers | {int(value) for worker in self.workers for *_, value in worker.notes.records}

    def expect_redelivery(self, victim: Victim) -> dict[int, int]:
        """Return the committed offsets after this process was killed: its records beyond them may be redelivered."""
        offsets = self.committed()
        for known in victim.account.commits:
            assert all(offsets[p] >= at for p, at in known.items()), "a confirmed commit is missing"
        self.expected_repeats.update((p, o) for p, o, _ in victim.account.records if o >= offsets[p])
        return offsets

    def wait_for_all_records(self, victim: Victim) -> None:
        """Wait until each record was delivered; `victim` is the current process."""
        victim.wait(lambda a: not self.missing_of(a.owned), "all records of its partitions")
        for worker in self.workers:
            worker.wait(lambda w: not self.missing_of(partitions_of(w)), "all records of its partitions")

    def missing_of(self, partitions: frozenset[int]) -> set[int]:
        """Return the records of these partitions that were not delivered yet."""
        return {number for number in set(range(self.produced)) - self.numbers() if number % PARTITIONS in partitions}

    # ---- the coordinator's state ----

    def committed(self) -> dict[int, int]:
        """Return the committed offset of each partition."""
        return committed(self.broker, self.group_id, self.topic, PARTITIONS)

    def describe(self) -> GroupDescription:
        """Return the coordinator's description of the group."""
        return GroupAdmin({"bootstrap.servers": self.broker.bootstrap_servers}).describe(self.group_id).group

    def target(self, described: GroupDescription) -> frozenset[int]:
        """Return the target assignment of the member with the victim's instance id."""
        (member,) = [member for member in described.members if member.instance_id == VICTIM]
        assert member.target is not None
        return frozenset(partition for _, partition in member.target)

    def check(self) -> None:
        """Check that no record is lost, and that exactly the uncommitted records of killed processes are repeated."""
        seen = self.seen()
        assert self.numbers() == set(range(self.produced))
        assert Counter({place: count - 1 for place, count in seen.items() if count > 1}) == self.expected_repeats


@contextmanager
def new_group(broker: Broker, folder: Path, mode: Mapping[str, object] = CONSUMER) -> Iterator[GroupUnderTest]:
    """Yield a new group with a new topic; its members end with the context."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    with ExitStack() as members:
        yield GroupUnderTest(
            broker=broker, topic=topic, group_id=unique("group"), folder=folder, members=members, mode=mode
        )


def partitions_of(worker: Worker) -> frozenset[int]:
    """Return the numbers of the member's partitions."""
    return frozenset(partition for _, partition in worker.owned)
