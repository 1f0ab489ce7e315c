"""Groups of many clients' members: each in a process of its own (`tests.support.partners`), and the books on all.

What is checked is what must hold whoever leads: each partition has one owner and never two, everybody goes on where
the coordinator's books said, and each record is given to somebody.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription

from tests.integration.worker import PATIENCE_S
from tests.runtime.guardian.processes import ROOT, wait_until
from tests.support.partners.life import Client, Life, Strategy

_ASKED_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of one partner (`tests.support.partners.speech`)."""

    at: int
    event: str
    partitions: frozenset[int] = frozenset()
    generation: int | None = None
    first: int = 0
    last: int = -1
    offsets: tuple[tuple[int, int], ...] = ()
    text: str = ""

    @classmethod
    def read(cls, line: bytes) -> Self:
        """One line of its stdout."""
        words: dict[str, Any] = json.loads(line)
        if "partition" in words:
            words["partitions"] = [words.pop("partition")]
        if "offsets" in words:
            words["offsets"] = tuple((partition, offset) for partition, offset in words["offsets"])
        return cls(**words | {"partitions": frozenset(words.pop("partitions", ()))})


@dataclass(slots=True)
class Account:
    """What one partner told so far, in its order; read it under the partner's condition or after its end."""

    told: list[Told] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    records: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: The offset behind the highest record of each partition.
    reached: dict[int, int] = field(default_factory=dict)
    #: The generation that it led last.
    leads: int | None = None
    is_closed: bool = False

    def take(self, told: Told) -> None:
        """Enter one event."""
        self.told.append(told)
        match told.event:
            case "assigned":
                self.owned |= told.partitions
            case "revoked" | "lost":
                self.owned -= told.partitions
            case "records":
                (partition,) = told.partitions
                self.records.update((partition, offset) for offset in range(told.first, told.last + 1))
                self.reached[partition] = max(told.last + 1, self.reached.get(partition, 0))
            case "leads":
                self.leads = told.generation
            case "closed":
                self.is_closed = True
            case "committed" | "refused" | "error":
                pass
            case _:
                raise AssertionError(f"an event that nobody knows: {told}")


class Partner:
    """One process; killed at the latest when its context is left. Its log goes to a file in `folder`."""

    def __init__(self, life: Life, folder: Path) -> None:
        self.life = life
        self.account = Account()
        self.changed = threading.Condition()
        self._has_ended = False
        self._log = folder / f"{life.client_id}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.partners", life.as_json()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        self._ear = threading.Thread(target=self._hear, args=(self.process.stdout,), daemon=True)
        self._ear.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._ear.join(PATIENCE_S)

    def _hear(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                with self.changed:
                    self.account.take(Told.read(line))
                    self.changed.notify_all()
        with self.changed:
            self._has_ended = True
            self.changed.notify_all()

    def __str__(self) -> str:
        a = self.account
        said = [told for told in a.told if told.event not in ("records", "committed")][-12:]
        log = self._log.read_text(errors="replace")[-3000:]
        return (
            f"{self.life.client_id}: has {sorted(a.owned)}, {a.records.total()} records, ended: {self._has_ended}, "
            f"{said}; its log:\n{log}"
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
        """SIGTERM: it leaves its group and ends."""
        self.process.terminate()

    def left(self) -> None:
        """Wait for the end of a partner that was asked to leave; it must have left in good order."""
        self.wait(lambda a: a.is_closed, "its leaving")
        assert self.process.wait(PATIENCE_S) == 0, str(self)

    def leave(self) -> None:
        """Have it leave its group, and wait for its end."""
        self.ask_to_leave()
        self.left()

    def kill(self) -> None:
        """End it without a goodbye; everything that it said is read when this returns."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._ear.join(PATIENCE_S)

    def wait(self, condition: Callable[[Account], bool], what: str) -> None:
        """Wait until this holds; `what` goes into the failure."""
        with self.changed:
            self.changed.wait_for(lambda: condition(self.account) or self._has_ended, PATIENCE_S)
            assert condition(self.account), f"{what}: not within {PATIENCE_S} s; {self}"


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
    #: The last generation that somebody who is gone is known to have led.
    _led_until: int = 0

    def __enter__(self) -> Self:
        return self

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
        """Start another member; what the words mean stands at `Life`."""
        life = Life(
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
        self._led_until = max(self._led_until, partner.account.leads or 0)
        self.members.remove(partner)
        self.gone.append(partner)
        partner.leave()

    def settled(self) -> None:
        """Wait until the coordinator is done with all members, and each has what it means for it: everything once."""
        self._wait(self._is_settled, "everything owned once, as the coordinator means it")

    def leader(self) -> Partner:
        """Who leads the group as it is: who computed the newest assignment since the last leader went."""
        leading: list[Partner] = []

        def is_led() -> bool:
            leading[:] = [p for p in self.members if (p.account.leads or 0) > self._led_until]
            return bool(leading)

        self._wait(is_led, f"somebody who leads after generation {self._led_until}")
        return max(leading, key=lambda partner: partner.account.leads or 0)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, what, PATIENCE_S)
        except AssertionError as failed:
            raise AssertionError(f"{failed}; {self}") from None

    def _is_settled(self) -> bool:
        for partner in self.members:
            assert partner.process.poll() is None, f"it ended: {partner}"
        described = self.describe()
        meant = {
            member.client_id: frozenset(p.partition for p in member.assignment.topic_partitions)
            for member in described.members
        }
        # Everything is asked of one picture: between two rebalances of a cooperative assignor nobody owns what moves.
        is_complete = sorted(p for owned in meant.values() for p in owned) == list(range(self.partitions))
        is_stable = described.state is ConsumerGroupState.STABLE and len(described.members) == len(self.members)
        return (
            is_stable and is_complete and meant == {partner.life.client_id: partner.owned for partner in self.members}
        )

    def describe(self) -> ConsumerGroupDescription:
        """The group as its coordinator knows it, by a client that is not ours."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        described: ConsumerGroupDescription = self._admin.describe_consumer_groups(
            [self.group], request_timeout=_ASKED_S
        )[self.group].result()
        return described

    def __str__(self) -> str:
        return f"{self.group}: " + "\n".join(map(str, self.members))

    # ---- the books ----

    def seen(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) was given to somebody."""
        return sum((partner.records() for partner in self.everybody), Counter())

    def everything_seen(self, written: Mapping[int, int]) -> None:
        """Wait until each record was given to somebody; `written` says how many each partition has."""

        def is_read() -> bool:
            return all(self._reached(partition) >= count for partition, count in written.items())

        self._wait(is_read, f"the last of {sum(written.values())} records")
        assert self.seen().keys() == {(p, offset) for p, count in written.items() for offset in range(count)}

    def _reached(self, partition: int) -> int:
        return max(partner.account.reached.get(partition, 0) for partner in self.everybody)

    def check(self) -> None:
        """What was never to happen, did not; to be called when everybody has left or is settled."""
        assert self.doubles() == []
        assert [wrong for partner in self.everybody for wrong in self.repetitions(partner)] == []
        errors = [(p.life.client_id, told) for p in self.everybody for told in p.account.told if told.event == "error"]
        assert errors == []

    def doubles(self) -> list[str]:
        """Each time that a partition was in two hands at a moment, in words."""
        found = []
        for partition in range(self.partitions):
            terms = sorted(term for partner in self.everybody for term in _terms(partner, partition))
            # Sorted by their begin: who overlaps with anybody overlaps with the one before or with one that is longer.
            until, by = 0, ""
            for begin, end, name in terms:
                if begin < until and name != by:
                    found.append(f"{partition}: {name} from {begin}, {by} until {until}")
                if end > until:
                    until, by = end, name
        return found

    def repetitions(self, partner: Partner) -> list[str]:
        """Each record that a member was given though it had been committed before it got the partition, in words."""
        found = []
        for partition in range(self.partitions):
            at: int | None = None
            for told in partner.account.told:
                if partition not in told.partitions:
                    continue
                if told.event == "assigned":
                    at = self._committed_before(partition, told.at)
                elif told.event == "records":
                    if at is None or told.first < at:
                        found.append(f"{partner.life.client_id} got {told} where {at} was committed")
                    at = told.last + 1
                else:
                    at = None
        return found

    def _committed_before(self, partition: int, at: int) -> int:
        """How far a partition was committed at that time, by what its members had been answered."""
        return max(
            (
                offset
                for partner in self.everybody
                for told in partner.account.told
                if told.event == "committed" and told.at < at
                for number, offset in told.offsets
                if number == partition
            ),
            default=0,
        )


#: Later than any event.
_STILL = 1 << 62


def _terms(partner: Partner, partition: int) -> Iterator[tuple[int, int, str]]:
    """From when until when it had the partition."""
    since: int | None = None
    for told in partner.account.told:
        if partition not in told.partitions:
            continue
        if told.event == "assigned" and since is None:
            since = told.at
        elif told.event in ("revoked", "lost") and since is not None:
            yield since, told.at, partner.life.client_id
            since = None
    if since is not None:
        # Who was killed had it no longer than it lived.
        until = _STILL if partner.process.poll() is None else partner.account.told[-1].at
        yield since, until, partner.life.client_id
