"""Groups of many clients' members: each in a process of its own (`tests.support.partners`), and the books on all.

The checks hold with any leader: each partition has one owner and never two, every member continues where
the coordinator's committed offsets are, and each record is delivered.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Self

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription

from tests.integration.nursery import NURSERY, Descriptor, take_up
from tests.support.partners.__main__ import live
from tests.support.partners.books import Account, Report, double_owners, repetitions
from tests.support.partners.life import Client, Lifetime, Strategy
from tests.support.partners.reporting import now_ms
from tests.support.waiting import PATIENCE_S, wait_until

#: On a busy machine six processes, one of them a JVM, take long to start.
PARTNERS_S = 90.0


def _live(life: Lifetime, stdout: Descriptor, stderr: Descriptor) -> None:
    take_up(stdout=stdout, stderr=stderr)
    live(life)


class Partner:
    """One process; killed at the latest when its context is left. Its log goes to a file in `folder`."""

    def __init__(self, life: Lifetime, folder: Path) -> None:
        self.life = life
        self.account = Account()
        self.changed = threading.Condition()
        self._log = folder / f"{life.client_id}.log"
        reports, says = os.pipe()
        with self._log.open("wb") as log:
            self.process = NURSERY.Process(target=_live, args=(life, DupFd(says), DupFd(log.fileno())))
            self.process.start()
        os.close(says)
        self._ear = threading.Thread(target=self._hear, args=(os.fdopen(reports, "rb"),), daemon=True)
        self._ear.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _hear(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                with self.changed:
                    self.account.take(Report.read(line))
                    self.changed.notify_all()
        with self.changed:
            self.account.ended_at = now_ms()
            self.changed.notify_all()

    def __str__(self) -> str:
        a = self.account
        latest = [report for report in a.reports if report.event not in ("records", "committed")][-12:]
        log = self._log.read_text(errors="replace")[-3000:]
        return (
            f"{self.life.client_id}: has {sorted(a.owned)}, {a.records.total()} records, ended: {a.ended_at}, "
            f"{latest}; its log:\n{log}"
        )

    @property
    def owned(self) -> frozenset[int]:
        """What it has, by its own words."""
        return self.account.owned

    def records(self) -> Counter[tuple[int, int]]:
        """How often it was given each (partition, offset)."""
        with self.changed:
            return self.account.records.copy()

    def ask_to_leave(self) -> None:
        """SIGTERM: it leaves its group and ends; not before it listens to that."""
        self.wait(lambda a: bool(a.reports), "its first word")
        self.process.terminate()

    def left(self) -> None:
        """Wait for the end of a partner that was asked to leave; it must have left in good order."""
        self.wait(lambda a: a.is_closed, "its leaving")
        self.process.join(PARTNERS_S)
        assert self.process.exitcode == 0, str(self)

    def leave(self) -> None:
        """Have it leave its group, and wait for its end."""
        self.ask_to_leave()
        self.left()

    def withhold(self) -> None:
        """SIGUSR1: it commits no more."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGUSR1)
        self.wait(lambda a: a.withholds, "its commits being withheld")

    def kill(self) -> None:
        """End it without a leave; all its output is read when this returns."""
        self.process.kill()
        self.process.join(PARTNERS_S)
        self._ear.join(PARTNERS_S)

    def wait(self, condition: Callable[[Account], bool], what: str) -> None:
        """Wait until this holds; `what` goes into the failure."""

        def is_so() -> bool:
            met = condition(self.account)
            assert met or self.account.ended_at is None, f"{what}: not before its end; {self}"
            return met

        wait_until(is_so, what, PARTNERS_S, changed=self.changed, seen=lambda: self)


@dataclass(slots=True)
class Company:
    """One group of many clients' members."""

    bootstrap_servers: str
    group: str
    topic: str
    partitions: int
    folder: Path
    #: In the order in which they came.
    members: list[Partner] = field(default_factory=list)
    gone: list[Partner] = field(default_factory=list)
    _admin: AdminClient | None = None
    #: The last generation that a member that left is known to have led.
    _led_until: int = 0

    def __enter__(self) -> Self:
        self._commit_the_beginning()
        return self

    def _commit_the_beginning(self) -> None:
        """Commit every partition's beginning before a member joins, so that no member has to look it up.

        librdkafka starts again, a moment later, if a rebalance interrupts this request, whatever has been committed
        meanwhile (`test_cut_short_resets`): what its members were given twice so would be no fault of the group.
        """
        outsider = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.group})
        try:
            beginning = [TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)]
            for done in outsider.commit(offsets=beginning, asynchronous=False):
                assert done.error is None, str(done)
        finally:
            outsider.close()

    def __exit__(self, *_: object) -> None:
        for partner in self.everybody:
            partner.__exit__()

    @property
    def everybody(self) -> list[Partner]:
        """Who is or was a member."""
        return self.gone + self.members

    # ---- who comes and goes ----

    def join(
        self,
        client: Client,
        *strategies: Strategy,
        protocol: str = "classic",
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
    ) -> Partner:
        """Start another member; `Lifetime` explains the arguments."""
        life = Lifetime(
            client=client,
            bootstrap_servers=self.bootstrap_servers,
            group=self.group,
            topic=self.topic,
            client_id=f"{client}-{len(self.everybody)}",
            protocol=protocol,
            strategies=strategies,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )
        partner = Partner(life, self.folder)
        self.members.append(partner)
        return partner

    def dismiss(self, partner: Partner) -> None:
        """Have it leave, and wait for its end."""
        self.members.remove(partner)
        self.gone.append(partner)
        partner.leave()
        self._led_until = max(self._led_until, partner.account.leads or 0)

    def kill(self, partner: Partner) -> None:
        """End it without a goodbye."""
        self.members.remove(partner)
        self.gone.append(partner)
        partner.kill()

    def settled(self) -> None:
        """Wait until the coordinator is done with all members, and each has what it means for it: everything once."""
        self.wait(self._is_settled, "everything owned once, as the coordinator means it")

    def leader(self) -> Partner:
        """Who leads the group as it is: who computed the newest assignment since the last leader went."""
        leading: list[Partner] = []

        def is_led() -> bool:
            leading[:] = [p for p in self.members if (p.account.leads or 0) > self._led_until]
            return bool(leading)

        self.wait(is_led, f"somebody who leads after generation {self._led_until}")
        return max(leading, key=lambda partner: partner.account.leads or 0)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until this holds; `what` and all reports go into the failure."""
        wait_until(holds, what, PARTNERS_S, seen=lambda: self)

    def _is_settled(self) -> bool:
        for partner in self.members:
            assert partner.process.is_alive(), f"it ended: {partner}"
        if sum(len(partner.owned) for partner in self.members) != self.partitions:
            return False
        described = self.describe()
        meant = {
            member.client_id: frozenset(p.partition for p in member.assignment.topic_partitions)
            for member in described.members
        }
        # All checks read one snapshot: between two cooperative rebalances no member owns the partitions that move.
        is_complete = sorted(p for owned in meant.values() for p in owned) == list(range(self.partitions))
        is_meant = meant == {partner.life.client_id: partner.owned for partner in self.members}
        return is_complete and is_meant and described.state is ConsumerGroupState.STABLE

    def describe(self) -> ConsumerGroupDescription:
        """The group as its coordinator knows it, by a client that is not ours."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        described: ConsumerGroupDescription = self._admin.describe_consumer_groups(
            [self.group], request_timeout=PATIENCE_S
        )[self.group].result()
        return described

    def __str__(self) -> str:
        return f"{self.group}: " + "\n".join(map(str, self.members))

    # ---- the books ----

    def seen(self) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was delivered."""
        return sum((partner.records() for partner in self.everybody), Counter())

    def everything_seen(self, written: Mapping[int, int]) -> None:
        """Wait until each record was delivered; `written` has the number of records of each partition."""

        def is_read() -> bool:
            return all(self._reached(partition) >= count for partition, count in written.items())

        self.wait(is_read, f"the last of {sum(written.values())} records")
        assert self.seen().keys() == {(p, offset) for p, count in written.items() for offset in range(count)}

    def _reached(self, partition: int) -> int:
        return max(partner.account.reached.get(partition, 0) for partner in self.everybody)

    def check(self, *, may_tell: str | None = None) -> None:
        """What was never to happen, did not; to be called when the group is settled, or all members have left.

        `may_tell` are words of an error that is no fault.
        """
        accounts = {partner.life.client_id: partner.account for partner in self.everybody}
        assert not (twice := double_owners(accounts)), "\n".join(twice)
        assert not (again := repetitions(accounts)), "\n".join(again)
        problems = [(name, t) for name, account in accounts.items() for t in account.reports if t.event == "error"]
        errors = [(name, t) for name, t in problems if may_tell is None or may_tell not in t.text]
        assert errors == [], str(errors)
