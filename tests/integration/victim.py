"""The handle of a member in its own process (`tests.support.victim`): it sends orders, reads reports, and kills it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Self

import psutil

from tests.integration.fork_server import FORK_SERVER, Descriptor
from tests.support import victim
from tests.support.recordings import assert_all_replay
from tests.support.victim import Lifetime, Order, Point
from tests.support.waiting import PATIENCE_S, wait_until


def _live(life: Lifetime, orders: Descriptor, reports: Descriptor, log: Descriptor) -> None:
    victim.live(life, orders.detach(), reports.detach(), log.detach())


@dataclass(slots=True)
class Account:
    """The reports of one process in their order; read them under the victim's condition or after its end."""

    #: The partition, the offset and the number of each record.
    records: list[tuple[int, int, int]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    calls: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[int, int]] = field(default_factory=list)
    refused_commits: list[int] = field(default_factory=list)
    member_ids: list[str] = field(default_factory=list)
    state: str = ""
    owned: frozenset[int] = frozenset()
    is_armed: bool = False
    died_at: str | None = None
    is_closed: bool = False

    def add(self, report: dict[str, Any]) -> None:
        """Add one report."""
        match report:
            case {"number": number, "partition": partition, "offset": offset}:
                self.records.append((partition, offset, number))
            case {"state": state}:
                self.states.append(state)
            case {"call": call, "partitions": partitions}:
                self.calls.append((call, tuple(partitions)))
                # The poll may have reported a loss before: the state after the poll counts, not the earlier report.
                self.state = "" if call == "assign" else self.state
            case {"in_state": state, "owned": owned, "member_id": member_id}:
                self.state, self.owned = state, frozenset(owned)
                if member_id not in self.member_ids:
                    self.member_ids.append(member_id)
            case {"error": _}:
                self.errors.append(report)
            case {"committed": offsets}:
                self.commits.append({int(partition): offset for partition, offset in offsets.items()})
            case {"commit_refused": code}:
                self.refused_commits.append(code)
            case {"armed": True}:
                self.is_armed = True
            case {"dies": point}:
                self.died_at = point
            case {"closed": True}:
                self.is_closed = True
            case _:
                raise AssertionError(f"an unknown report: {report}")


class Victim:
    """One process, which is killed at the end of its context. Its log is written to a file in `folder`."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        folder: Path,
        *,
        dies_at: Point | None = None,
        is_armed: bool = False,
        request_timeout_s: float | None = None,
        **config: object,
    ) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            # Incremental callbacks, and not those for programs of eager groups (`test_eager_callbacks`).
            "rebalance.callbacks": "incremental",
            "recorder.directory": str(folder / "recordings"),
        }
        settings |= {key.replace("_", "."): value for key, value in config.items() if value is not None}
        self._life = Lifetime(
            config=settings, topic=topic, dies_at=dies_at, is_armed=is_armed, request_timeout_s=request_timeout_s
        )
        self.account = Account()
        self.changed = threading.Condition()
        self._has_ended = False
        self._recordings = folder / "recordings"
        self._log = folder / f"victim-{len(list(folder.glob('victim-*')))}.log"
        orders, self._orders = os.pipe()
        self._commits_ordered = 0
        reports, output = os.pipe()
        with self._log.open("wb") as log:
            given = (orders, output, log.fileno())
            self.process = FORK_SERVER.Process(target=_live, args=(self._life, *map(DupFd, given)))
            self.process.start()
        os.close(orders)
        os.close(output)
        self._reader = threading.Thread(target=self._read, args=(os.fdopen(reports, "rb"),), daemon=True)
        self._reader.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.ended()
        self.process.close()
        os.close(self._orders)

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                with self.changed:
                    self.account.add(json.loads(line))
                    self.changed.notify_all()
        with self.changed:
            self._has_ended = True
            self.changed.notify_all()

    def __str__(self) -> str:
        a = self.account
        log = self._log.read_text(errors="replace")[-3000:]
        return (
            f"victim {self.pid}: {a.state} {sorted(a.owned)}, {len(a.records)} records, {a.states[-6:]}, "
            f"{a.calls[-6:]}, {a.errors}, died at {a.died_at}, ended: {self._has_ended}; its log:\n{log}"
        )

    # ---- orders ----

    def order(self, order: Order) -> None:
        """Send an order."""
        self._commits_ordered += order is Order.COMMIT
        os.write(self._orders, f"{order}\n".encode())

    def commit(self) -> dict[int, int]:
        """Make it commit its reported records; return the offsets of its last commit."""
        self.order(Order.COMMIT)
        ordered = self._commits_ordered
        # Each order has one outcome, in their order; a stopped process reports the outcomes of earlier orders late.
        self.wait(lambda a: len(a.commits) + len(a.refused_commits) >= ordered, "the outcome of a commit")
        return self.account.commits[-1]

    def arm(self) -> None:
        """Make it die at its point from now on."""
        self.order(Order.ARM)
        self.wait(lambda a: a.is_armed, "the report that it is armed")

    def close(self) -> None:
        """Make it close its consumer, and wait for its end."""
        self.order(Order.CLOSE)
        self.wait(lambda a: a.is_closed, "its close")
        assert self.ended() == 0, str(self)

    def kill(self) -> None:
        """Kill it without a leave, and read all of its output."""
        self.process.kill()
        assert self.ended() == -signal.SIGKILL

    def stop(self) -> None:
        """Suspend it as a debugger or a hypervisor does, and wait until it is stopped."""
        process = psutil.Process(self.pid)
        process.suspend()
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "its stop")

    def resume(self) -> None:
        """Let it continue after `stop`."""
        psutil.Process(self.pid).resume()

    # ---- waiting ----

    def ended(self) -> int:
        """Wait for its end and for all of its output; return its exit code."""
        self.process.join(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.exitcode is not None, f"it did not end: {self}"
        # A process writes a recording before it dies at a point, and when it closes.
        assert_all_replay(self._recordings)
        return self.process.exitcode

    def died(self) -> None:
        """Wait for its death, and check that it died at its point."""
        self.wait(lambda a: a.died_at is not None, "its death")
        assert self.ended() == -signal.SIGKILL, str(self)
        assert list(self._recordings.glob("*.gz")), "it did not write its recording"

    def wait(self, condition: Callable[[Account], bool], what: str) -> None:
        """Wait until the condition holds; the failure message contains `what`."""

        def is_met() -> bool:
            met = condition(self.account)
            assert met or not self._has_ended, f"{what}: not before its end; {self}"
            return met

        wait_until(is_met, what, changed=self.changed, seen=lambda: self)

    def settled(self, count: int) -> frozenset[int]:
        """Wait until it is STABLE and owns this many partitions; return their numbers."""
        self.wait(lambda a: a.state == "STABLE" and len(a.owned) == count, f"STABLE with {count} partitions")
        return self.account.owned
