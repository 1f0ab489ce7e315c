"""Start and stop the verifiable consumers of one group, and wait for their events."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tests.kafkatest.clients import Client, MemberOptions, arguments, command
from tests.kafkatest.ledger import BrokenRuleError, GroupLedger, MemberLedger, MemberState
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
_LOG_END = 1500


@dataclass(slots=True)
class Member:
    """One verifiable consumer, which may be restarted. A static member keeps its instance id."""

    client: Client
    ledger: MemberLedger
    log: Path
    instance_id: str | None = None
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The member's name in messages."""
        return self.ledger.name


@dataclass(slots=True)
class Group:
    """The members of one group; a context manager that ends their processes.

    `config` is the content of the properties file that all members receive.
    """

    bootstrap_servers: str
    group_id: str
    topic: str
    partitions: int
    folder: Path
    options: MemberOptions
    config: Mapping[str, str] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    ledger: GroupLedger = field(default_factory=GroupLedger)
    broken: list[BrokenRuleError] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.kill()
                member.process.wait()
            if member.reader is not None:
                member.reader.join()

    # ---- members ----

    def add(self, client: Client, *, instance_id: str | None = None) -> Member:
        """Return a new member without starting it."""
        name = f"{client}-{len(self.members)}"
        member = Member(
            client=client, ledger=MemberLedger(name), log=self.folder / f"{name}.log", instance_id=instance_id
        )
        self.members.append(member)
        return member

    def start(self, *members: Member) -> None:
        """Start the processes of these members with the group's current options."""
        for member in members:
            command_line = arguments(
                self.options,
                bootstrap_servers=self.bootstrap_servers,
                group=self.group_id,
                topic=self.topic,
                instance_id=member.instance_id,
            )
            if self.config:
                properties = self.folder / "consumer.properties"
                properties.write_text("".join(f"{key}={value}\n" for key, value in self.config.items()))
                command_line += ["--consumer.config", str(properties)]
            with member.log.open("ab") as log:
                process = subprocess.Popen(
                    command(member.client, command_line),
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert process.stdout is not None
            member.process = process
            member.reader = threading.Thread(
                target=self._read, args=(member, process.stdout, self.options), name=member.name, daemon=True
            )
            member.reader.start()

    def stop(self, *members: Member) -> None:
        """Close these members with SIGTERM and wait until their processes have ended."""
        for member in members:
            assert member.process is not None
            member.process.send_signal(signal.SIGTERM)
        for member in members:
            assert member.process is not None
            assert member.reader is not None
            member.process.wait(PATIENCE_S)
            member.reader.join(PATIENCE_S)
        self._check()

    def _read(self, member: Member, stdout: IO[str], options: MemberOptions) -> None:
        with stdout:
            for line in stdout:
                with self.changed:
                    try:
                        self.ledger.apply(member.ledger, json.loads(line), is_eager=options.is_eager)
                    except BrokenRuleError as error:
                        self.broken.append(error)
                    self.changed.notify_all()
        with self.changed:
            member.ledger.end()
            self.changed.notify_all()

    # ---- the reported events ----

    def in_state(self, state: MemberState, members: Sequence[Member] | None = None) -> list[Member]:
        """Return the members (of these, default: of the group) that are in this state."""
        chosen = self.members if members is None else members
        return [member for member in chosen if member.ledger.state is state]

    @property
    def rebalances(self) -> int:
        """The largest number of assignments that a member has received."""
        return max(member.ledger.assigned_count for member in self.members)

    @property
    def consumed(self) -> int:
        """The number of records that all members reported."""
        return sum(member.ledger.consumed for member in self.members)

    @property
    def assignment(self) -> dict[str, frozenset[int]]:
        """The assigned partitions of each member."""
        return {member.name: frozenset(member.ledger.assignment) for member in self.members}

    def owner(self, partition: int) -> Member | None:
        """Return the member that owns the partition."""
        return next((member for member in self.members if partition in member.ledger.assignment), None)

    def has_valid_assignment(self) -> bool:
        """Whether each partition is assigned to exactly one member."""
        assigned = [partition for partitions in self.assignment.values() for partition in partitions]
        return sorted(assigned) == list(range(self.partitions))

    # ---- waiting ----

    def wait(self, condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Read events until this condition holds.

        Raises:
            BrokenRuleError: An event broke a rule.
            AssertionError: The condition did not hold in time.
        """

        def holds() -> bool:
            self._check()
            return bool(condition())

        wait_until(holds, what, patience_s, changed=self.changed, seen=self.report)

    def await_joined(self, number: int, members: Sequence[Member] | None = None) -> None:
        """Wait until this number of members has an assignment, which may be empty."""
        self.wait(lambda: len(self.in_state(MemberState.JOINED, members)) == number, f"{number} joined members")

    def await_consumed(self, number: int = 1) -> None:
        """Wait until members have reported this number of additional records."""
        enough = self.consumed + number
        self.wait(lambda: self.consumed >= enough, f"{number} additional records")

    def await_valid_assignment(self) -> None:
        """Wait until each partition is assigned to exactly one member."""
        self.wait(self.has_valid_assignment, f"a valid assignment of {self.partitions} partitions")

    def report(self) -> str:
        """Return the members' states and the ends of their logs, for error messages."""
        lines = []
        for member in self.members:
            ledger = member.ledger
            lines.append(
                f"{member.name}: {ledger.state.name}, owns {sorted(ledger.assignment)}, {ledger.consumed} records, "
                f"{ledger.assigned_count} assignments, {ledger.revoked_count} revocations; its log:"
            )
            if member.log.exists():
                lines.append(member.log.read_text(errors="replace")[-_LOG_END:])
        return "\n".join(lines)

    def _check(self) -> None:
        if self.broken:
            raise self.broken[0]
