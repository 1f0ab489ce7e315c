"""A consumer in its own process with its guardian, as in a user's application."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.runtime.guardian.processes import Application
from tests.support.waiting import PATIENCE_S, wait_until

_PROGRAM = """
import json, logging, select
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
from consumer_membership import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
beats = set()
while True:
    consumer.poll(0.05)
    view = consumer.membership()
    beats.add(view.last_heartbeat_at)
    if not select.select([0], [], [], 0)[0]:
        continue
    match order().split():
        case ["credentials", user, password]:
            consumer.set_sasl_credentials(user, password)
            report("set")
        case ["close"]:
            consumer.close()
            break
        case ["exit"]:
            sys.exit(0)
        case _:
            report(view.member_id or "-", len(beats), view.state, *sorted(p.partition for p in view.owned))
"""


@dataclass(frozen=True, slots=True)
class MembershipReport:
    """A consumer's report of its membership; the id is "-" until a classic member has one."""

    member_id: str
    heartbeats: int
    state: str
    owned: tuple[int, ...]


class ConsumerProcess(Application):
    """A consumer process; `log` is its log file."""

    def __init__(self, bootstrap: str, group: str, topic: str, log: Path, **config: object) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "heartbeat.interval.ms": 200,
            "crash.guardian.enable": True,
        }
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        self.log = log
        with log.open("ab") as stderr:
            super().__init__(_PROGRAM, json.dumps(settings), topic, stderr=stderr)

    def report(self) -> MembershipReport:
        """Return the current report of the consumer."""
        self.order("report")
        member_id, heartbeats, state, *owned = self.read_words()
        return MembershipReport(member_id, int(heartbeats), state, tuple(map(int, owned)))

    def set_credentials(self, user: str, password: str) -> None:
        """Set the credentials for later authentications."""
        self.order(f"credentials {user} {password}")
        assert self.read_words() == ["set"]

    def settled(self, count: int, patience_s: float = PATIENCE_S) -> MembershipReport:
        """Wait until the consumer is STABLE and owns this many partitions; return its report."""

        def look() -> MembershipReport | None:
            latest = self.report()
            return latest if latest.state == "STABLE" and len(latest.owned) == count else None

        return wait_until(look, f"STABLE with {count} partitions", patience_s)

    def guardian_lines(self) -> list[str]:
        """Return the lines that the guardian wrote into the log."""
        return [line for line in self.log.read_text().splitlines() if "its process" in line]

    def children(self) -> list[psutil.Process]:
        """Return all processes below the consumer's process."""
        return psutil.Process(self.process.pid).children(recursive=True)
