"""Small rounds for planted bugs: one broker, one topic, and members in their own processes, for about ten seconds.

`run_planted` runs rounds with each bug of `planted.BUGS` until a rule reports the bug, at most `ROUNDS` times.
`run_sound` runs the same rounds with the correct package, which must break no rule.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as PartitionOffset
from confluent_kafka.admin import AdminClient

from consumer_membership import devbroker
from consumer_membership.recorder.recording import read
from tests.chaos import history as h
from tests.chaos.checker import Verdict, check
from tests.chaos.planted import BUGS, VARIABLE, Planted, Script, Setup
from tests.chaos.recorded import Checked, check_recording
from tests.chaos.small_member import RECORDING, MemberSetup
from tests.support.kafka import create_topic, unique
from tests.support.waiting import wait_until

#: A bug must be reported in one of this many rounds.
ROUNDS = 3
PARTITIONS = 4
#: How long one step of a round may take: several sessions. On a busy machine it may take longer, until each running
#: member has written this many samples since the step began; on an idle machine that takes 15 s.
_STEP_S, _STEP_SAMPLES, _LONGEST_STEP_S = 25.0, 150, 240.0
_RECORD_INTERVAL_S = 0.004
#: A member must receive this many records of each partition before the next step.
_SOME = 10
#: This many records are written before the harness suspends a member, which does not poll meanwhile.
_UNPOLLED = 100
SESSION_MS, HEARTBEAT_MS = 3000, 300
#: Each member must write a sample this long after all records were received; samples are written every 0.1 s.
_STEADY_S = 0.5

PROPERTIES = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
}


class NotReachedError(Exception):
    """The round did not reach a step in time; it ends without `Settled`."""


class Load:
    """Writes numbered records to all partitions in turn, until `stop` is called."""

    def __init__(self, bootstrap: str, topic: str, writer: h.HistoryWriter) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._topic = topic
        self._writer = writer
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: set[tuple[int, int]] = set()

    def start(self) -> None:
        """Begin to write records."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all records are acknowledged."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(_RECORD_INTERVAL_S):
            value, partition = str(number // PARTITIONS), number % PARTITIONS
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1
        self._producer.flush(_STEP_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset = message.partition() or 0, message.offset() or 0
            number = int(message.value() or b"0")
            self.acknowledged.add((partition, offset))
            self._writer.write(h.Produced(partition=h.Partition(self._topic, partition), offset=offset, number=number))


class Follower:
    """Reads the histories of the members while they grow."""

    def __init__(self, folder: Path) -> None:
        self._reader = h.HistoryReader(folder)
        #: By process: the latest statement, the number of statements, and the received records.
        self.statements: dict[str, h.Statement] = {}
        self.samples: Counter[str] = Counter()
        self.received: dict[str, set[tuple[int, int]]] = {}

    def update(self) -> None:
        """Read the new events."""
        for entry in self._reader.new_entries():
            self._take(entry)

    def _take(self, entry: h.Entry) -> None:
        match entry.event:
            case h.Statement() as statement:
                self.statements[entry.process] = statement
                self.samples[entry.process] += 1
            case h.Received(partition=partition, offset=offset):
                self.received.setdefault(entry.process, set()).add((partition.number, offset))
            case _:
                pass

    def owns(self, process: str, count: int) -> bool:
        """Whether the process is STABLE and owns this many partitions."""
        statement = self.statements.get(process)
        return statement is not None and statement.state == "STABLE" and len(statement.owned) == count


class Round:
    """One round: its members and its history. A context manager that ends all processes."""

    def __init__(self, bootstrap: str, folder: Path, setup: Setup, bug: str | None) -> None:
        self._bootstrap, self._folder, self._setup, self._bug = bootstrap, folder, setup, bug
        self.topic = create_topic(bootstrap, unique("chaos"), PARTITIONS)
        self.group = unique("chaos")
        self._writer = h.HistoryWriter(folder, "harness")
        self.load = Load(bootstrap, self.topic, self._writer)
        self.follower = Follower(folder)
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._observer_ends = threading.Event()
        self._observer = threading.Thread(target=self._observe)

    def __enter__(self) -> Self:
        self.load.start()
        self._observer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.load.stop()
        self._observer_ends.set()
        self._observer.join()
        for process in self._members.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._writer.close()

    def run(self) -> Verdict:
        """Run the script and check the history."""
        with suppress(NotReachedError):
            (self._without_faults if self._setup.script is Script.NO_FAULTS else self._with_faults)()
            self._settle()
        return check(h.read_all(self._folder))

    # ---- the scripts ----

    def _without_faults(self) -> None:
        self._start("a")
        self._reach(lambda: self._consumes("a", PARTITIONS), "a owns all partitions")
        self._start("b")
        self._reach(lambda: self._consumes("a", 2) and self._consumes("b", 2), "b owns half of the partitions")
        self._end("a")
        self._reach(lambda: self._consumes("b", PARTITIONS), "b owns all partitions")
        self._start("c")
        self._reach(lambda: self._consumes("b", 2) and self._consumes("c", 2), "c owns half of the partitions")

    def _with_faults(self) -> None:
        for name in ("a", "b"):
            self._start(name)
        self._reach(
            lambda: self._consumes("a", 2) and self._consumes("b", 2), "a and b own half of the partitions each"
        )
        self._writer.write(h.FaultBegan(fault="stop", target="a"))
        stopped = psutil.Process(self._members["a"].pid)
        # The member has fetched records that it has not polled when it is suspended.
        stopped.send_signal(signal.SIGUSR1)
        more = len(self.load.acknowledged) + _UNPOLLED
        self._reach(lambda: len(self.load.acknowledged) > more, "a has records that it has not polled")
        stopped.suspend()
        try:
            self._reach(lambda: self._consumes("b", PARTITIONS), "b owns all partitions")
        finally:
            stopped.resume()
        self._writer.write(h.FaultEnded(fault="stop", target="a"))
        self._reach(lambda: self._consumes("a", 2) and self._consumes("b", 2), "a owns half of the partitions again")
        self._writer.write(h.Killed(member="b"))
        self._members["b"].kill()
        self._reach(lambda: self._consumes("a", PARTITIONS), "a owns all partitions")
        self._start("c")
        self._reach(lambda: self._consumes("a", 2) and self._consumes("c", 2), "c owns half of the partitions")

    def _settle(self) -> None:
        self.load.stop()
        self._reach(self._has_all, "all records are received")
        steady_from = h.now_ns() + round(_STEADY_S * 1e9)
        running = self._running_members
        self._reach(
            lambda: all(self.follower.statements[name].begun_ns > steady_from for name in running),
            "each member has written a statement after that",
        )
        self._writer.write(h.Settled())
        for name in running:
            self._end(name)

    def _has_all(self) -> bool:
        received = set().union(*self.follower.received.values())
        return received >= self.load.acknowledged

    def _consumes(self, name: str, count: int) -> bool:
        """Whether the member is STABLE, owns this many partitions, and has received some records of each of them."""
        if not self.follower.owns(name, count):
            return False
        owned = {item.number for item in self.follower.statements[name].owned}
        received = self.follower.received.get(name, set())
        return all(sum(partition == one for partition, _ in received) >= _SOME for one in owned)

    def _reach(self, condition: Callable[[], bool], what: str) -> None:
        begun_at, before = time.monotonic(), Counter(self.follower.samples)
        is_reached = False

        def is_over() -> bool:
            nonlocal is_reached
            self.follower.update()
            is_reached = condition()
            late_s = time.monotonic() - begun_at - _STEP_S
            samples = [self.follower.samples[name] - before[name] for name in self._running_members]
            return is_reached or (late_s > 0 and min(samples, default=_STEP_SAMPLES) >= _STEP_SAMPLES)

        with suppress(AssertionError):
            wait_until(is_over, what, _LONGEST_STEP_S)
        if not is_reached:
            print(f"    not reached: {what}", flush=True)
            raise NotReachedError(what)

    @property
    def _running_members(self) -> list[str]:
        """The members whose processes run. A suspended process does not count, because it writes no samples."""
        return [
            name
            for name, process in self._members.items()
            if process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
        ]

    # ---- members ----

    def _start(self, name: str) -> None:
        setup = self._setup
        config: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self.group,
            "group.protocol": setup.protocol,
            "auto.offset.reset": "earliest",
            "rebalance.callbacks": "incremental",
        }
        if setup.protocol == "classic":
            config |= {
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        if setup.has_leases:
            config["ownership.lease.enable"] = True
        member_setup = MemberSetup(
            group=self.group,
            topic=self.topic,
            config=config,
            commits=setup.commits,
            slow_revoke_s=setup.slow_revoke_s,
            session_s=SESSION_MS / 1000,
        )
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        if self._bug is not None:
            environment[VARIABLE] = self._bug
        command = [
            sys.executable,
            "-m",
            "tests.chaos.small_member",
            str(self._folder),
            name,
            json.dumps(asdict(member_setup)),
        ]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._members[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _end(self, name: str) -> None:
        process = self._members[name]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STEP_S)
        except subprocess.TimeoutExpired as error:
            raise NotReachedError(f"{name} ends") from error

    def _observe(self) -> None:
        partitions = [PartitionOffset(self.topic, number) for number in range(PARTITIONS)]
        while not self._observer_ends.wait(0.3):
            request = [ConsumerGroupTopicPartitions(self.group, partitions)]
            with suppress(KafkaException):  # the group does not exist yet
                found = self._admin.list_consumer_group_offsets(request)[self.group].result(10).topic_partitions
                offsets = tuple(h.Offset(one.topic, one.partition, one.offset) for one in found if one.offset >= 0)
                self._writer.write(h.OffsetsObserved(group=self.group, offsets=offsets))


# ---- the runs ----


def run_planted(names: Sequence[str] = (), bootstrap: str | None = None) -> int:
    """Run rounds with these bugs, or with all bugs; print a line for each. Return 1 if a bug was not reported."""
    unknown = set(names) - BUGS.keys()
    if unknown:
        print(f"unknown planted bug: {', '.join(sorted(unknown))}; use one of {', '.join(BUGS)}", file=sys.stderr)
        return 2
    bugs = {name: BUGS[name] for name in names or BUGS}
    return _with_broker(bootstrap, lambda servers: sum([not _is_reported(servers, *bug) for bug in bugs.items()]))


def run_sound(bootstrap: str | None = None, setups: Iterable[Setup] | None = None) -> int:
    """Run the rounds of the planted bugs with the correct package. Return 1 if a rule was broken."""
    chosen = setups or dict.fromkeys(bug.setup for bug in BUGS.values() if bug.setup is not None)
    return _with_broker(bootstrap, lambda servers: sum([not _is_sound(servers, setup) for setup in chosen]))


def _with_broker(bootstrap: str | None, run: Callable[[str], int]) -> int:
    if bootstrap is not None:
        return min(1, run(bootstrap))
    with devbroker.start(properties=PROPERTIES) as broker:
        return min(1, run(broker.bootstrap_servers))


def _is_sound(bootstrap: str, setup: Setup) -> bool:
    verdict, recordings = _round(bootstrap, setup, None)
    result = "BROKEN" if verdict.violations or recordings.findings else "sound"
    print(f"{result}: {setup}: {verdict.figures}, {recordings.responses} responses checked", flush=True)
    for violation in verdict.violations[:20]:
        print(f"    {violation}", flush=True)
    for finding in recordings.findings[:20]:
        print(f"    {finding.at:.3f} entry {finding.number}: {finding.text}", flush=True)
    return not verdict.violations and not recordings.findings


def _is_reported(bootstrap: str, name: str, bug: Planted) -> bool:
    if bug.setup is None:
        is_reported = _fails_checker_tests(name)
        print(f"{'reported' if is_reported else 'MISSED'} {name}: by the checker's tests", flush=True)
        return is_reported
    found: dict[str, int] = {}
    for number in range(1, ROUNDS + 1):
        verdict, _ = _round(bootstrap, bug.setup, name)
        for violation in verdict.violations:
            found[violation.rule] = found.get(violation.rule, 0) + 1
        if verdict.rules & bug.rules:
            print(f"reported {name}: round {number}, {found}", flush=True)
            return True
    print(f"MISSED {name}: {ROUNDS} rounds, {found}", flush=True)
    return False


def _round(bootstrap: str, setup: Setup, bug: str | None) -> tuple[Verdict, Checked]:
    """Run a round; return the verdict and the check of the responses in its members' recordings."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, Round(bootstrap, Path(name), setup, bug) as one:
        verdict = one.run()
        checked = [check_recording(read(path)) for path in sorted(Path(name).glob(f"*{RECORDING}"))]
        findings = tuple(finding for each in checked for finding in each.findings)
        return verdict, Checked(responses=sum(each.responses for each in checked), findings=findings)


def _fails_checker_tests(name: str) -> bool:
    program = (
        "import sys, pytest\nfrom tests.chaos import planted\n"
        f"planted.apply({name!r})\n"
        "sys.exit(pytest.main(['-q', '-n0', '-p', 'no:cacheprovider', 'tests/chaos/test_checker.py']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=120)
    return ended.returncode == 1
