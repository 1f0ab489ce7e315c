"""Groups with members of several clients, each in its own process (`tests.support.partners`), and checks of all.

The checks are valid with any leader: each partition has one owner and never two, every member continues at the
committed offset, and each record is delivered.
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

from tests.integration.fork_server import FORK_SERVER, Descriptor, redirect
from tests.support.partners.__main__ import live
from tests.support.partners.books import Account, Report, double_owners, repetitions
from tests.support.partners.life import Client, Lifetime, Strategy
from tests.support.partners.reporting import now_ms
from tests.support.waiting import PATIENCE_S, wait_until

#: The start of six processes, one of them a JVM, takes long on a busy machine.
PARTNERS_S = 90.0


def _live(life: Lifetime, stdout: Descriptor, stderr: Descriptor) -> None:
    redirect(stdout=stdout, stderr=stderr)
    live(life)


class Partner:
    """One process, which is killed at the end of its context. Its log is written to a file in `folder`."""

    def __init__(self, life: Lifetime, folder: Path) -> None:
        self.life = life
        self.account = Account()
        self.changed = threading.Condition()
        self._log = folder / f"{life.client_id}.log"
        reports, output = os.pipe()
        with self._log.open("wb") as log:
            self.process = FORK_SERVER.Process(target=_live, args=(life, DupFd(output), DupFd(log.fileno())))
            self.process.start()
        os.close(output)
        self._reader = threading.Thread(target=self._read, args=(os.fdopen(reports, "rb"),), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self, stdout: IO[bytes]) -> None:
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
        """The partitions that it reports as owned."""
        return self.account.owned

    def records(self) -> Counter[tuple[int, int]]:
        """Return how often it received each (partition, offset)."""
        with self.changed:
            return self.account.records.copy()

    def ask_to_leave(self) -> None:
        """Send SIGTERM, after which it leaves its group and ends; wait until it handles the signal."""
        self.wait(lambda a: bool(a.reports), "its first report")
        self.process.terminate()

    def left(self) -> None:
        """Wait for the end of a partner that received SIGTERM, and check that it left its group."""
        self.wait(lambda a: a.is_closed, "its leaving")
        self.process.join(PARTNERS_S)
        assert self.process.exitcode == 0, str(self)

    def leave(self) -> None:
        """Make it leave its group, and wait for its end."""
        self.ask_to_leave()
        self.left()

    def withhold(self) -> None:
        """Send SIGUSR1, after which it no longer commits."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGUSR1)
        self.wait(lambda a: a.withholds, "the end of its commits")

    def kill(self) -> None:
        """Kill it without a leave, and read all of its output."""
        self.process.kill()
        self.process.join(PARTNERS_S)
        self._reader.join(PARTNERS_S)

    def wait(self, condition: Callable[[Account], bool], what: str) -> None:
        """Wait until the condition holds; the failure message contains `what`."""

        def is_met() -> bool:
            met = condition(self.account)
            assert met or self.account.ended_at is None, f"{what}: not before its end; {self}"
            return met

        wait_until(is_met, what, PARTNERS_S, changed=self.changed, seen=lambda: self)


@dataclass(slots=True)
class MixedGroup:
    """One group with members of several clients."""

    bootstrap_servers: str
    group: str
    topic: str
    partitions: int
    folder: Path
    #: In the order of their start.
    members: list[Partner] = field(default_factory=list)
    former: list[Partner] = field(default_factory=list)
    _admin: AdminClient | None = None
    #: The newest generation with a known leader that has left since.
    _led_until: int = 0

    def __enter__(self) -> Self:
        self._commit_beginnings()
        return self

    def _commit_beginnings(self) -> None:
        """Commit the beginning of each partition before a member joins, so that members need no offset reset.

        If a rebalance interrupts librdkafka's offset reset, it resets again later, even if offsets were committed in
        the meantime (`test_cut_short_resets`). Its members would repeat records, which is not an error of the group.
        """
        outsider = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.group})
        try:
            beginning = [TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)]
            for done in outsider.commit(offsets=beginning, asynchronous=False):
                assert done.error is None, str(done)
        finally:
            outsider.close()

    def __exit__(self, *_: object) -> None:
        for partner in self.partners:
            partner.__exit__()

    @property
    def partners(self) -> list[Partner]:
        """All current and former members."""
        return self.former + self.members

    # ---- joins and leaves ----

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
            client_id=f"{client}-{len(self.partners)}",
            protocol=protocol,
            strategies=strategies,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )
        partner = Partner(life, self.folder)
        self.members.append(partner)
        return partner

    def leave(self, partner: Partner) -> None:
        """Make a member leave, and wait for its end."""
        self.members.remove(partner)
        self.former.append(partner)
        partner.leave()
        self._led_until = max(self._led_until, partner.account.leads or 0)

    def kill(self, partner: Partner) -> None:
        """Kill a member without a leave."""
        self.members.remove(partner)
        self.former.append(partner)
        partner.kill()

    def settled(self) -> None:
        """Wait until the group is stable and each member owns its assignment, and all own each partition once."""
        self.wait(self._is_settled, "each partition owned once, by the member that the coordinator assigned")

    def leader(self) -> Partner:
        """Return the current leader: the member that computed the newest assignment since a former leader left."""
        leading: list[Partner] = []

        def is_led() -> bool:
            leading[:] = [p for p in self.members if (p.account.leads or 0) > self._led_until]
            return bool(leading)

        self.wait(is_led, f"a leader after generation {self._led_until}")
        return max(leading, key=lambda partner: partner.account.leads or 0)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; the failure message contains `what` and all reports."""
        wait_until(holds, what, PARTNERS_S, seen=lambda: self)

    def _is_settled(self) -> bool:
        for partner in self.members:
            assert partner.process.is_alive(), f"it ended: {partner}"
        if sum(len(partner.owned) for partner in self.members) != self.partitions:
            return False
        described = self.describe()
        assigned = {
            member.client_id: frozenset(p.partition for p in member.assignment.topic_partitions)
            for member in described.members
        }
        # All checks read one snapshot: between two cooperative rebalances no member owns the partitions that move.
        is_complete = sorted(p for owned in assigned.values() for p in owned) == list(range(self.partitions))
        is_owned = assigned == {partner.life.client_id: partner.owned for partner in self.members}
        return is_complete and is_owned and described.state is ConsumerGroupState.STABLE

    def describe(self) -> ConsumerGroupDescription:
        """Return the coordinator's description of the group, requested by confluent-kafka."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        described: ConsumerGroupDescription = self._admin.describe_consumer_groups(
            [self.group], request_timeout=PATIENCE_S
        )[self.group].result()
        return described

    def __str__(self) -> str:
        return f"{self.group}: " + "\n".join(map(str, self.members))

    # ---- records ----

    def seen(self) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was delivered."""
        return sum((partner.records() for partner in self.partners), Counter())

    def everything_seen(self, written: Mapping[int, int]) -> None:
        """Wait until each record was delivered; `written` has the number of records of each partition."""

        def is_read() -> bool:
            return all(self._reached(partition) >= count for partition, count in written.items())

        self.wait(is_read, f"the last of {sum(written.values())} records")
        assert self.seen().keys() == {(p, offset) for p, count in written.items() for offset in range(count)}

    def _reached(self, partition: int) -> int:
        return max(partner.account.reached.get(partition, 0) for partner in self.partners)

    def check(self, *, allowed_error: str | None = None) -> None:
        """Check ownership, repetitions and errors, when the group is settled or all members have left.

        Errors whose text contains `allowed_error` are ignored.
        """
        accounts = {partner.life.client_id: partner.account for partner in self.partners}
        assert not (twice := double_owners(accounts)), "\n".join(twice)
        assert not (again := repetitions(accounts)), "\n".join(again)
        problems = [(name, t) for name, account in accounts.items() for t in account.reports if t.event == "error"]
        errors = [(name, t) for name, t in problems if allowed_error is None or allowed_error not in t.text]
        assert errors == [], str(errors)
