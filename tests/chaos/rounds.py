"""One round: members start, faults begin and end, the group consumes to the end, and the checker checks the history.

The folder of the round has the history, the log and the recording of each member. It is kept if the round failed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from consumer_membership.recorder.recording import read
from tests.chaos import history as h
from tests.chaos.checker import Verdict, check
from tests.chaos.faults import KINDS, inject
from tests.chaos.plan import FaultPlan, Loop, RoundPlan
from tests.chaos.recorded import check_recording
from tests.chaos.testbed import Cluster, Testbed

#: How long a group may need to receive its first record, its records before a fault, and all records after the faults.
BEGIN_S, FAULT_S, SETTLE_S = 90.0, 60.0, 120.0
#: A Spark job begins later than other members: it starts a JVM and three interpreters, perhaps on a busy machine.
JOBS_BEGIN_S = 600.0
#: How many records are produced after the faults, and how long the members run after the last record.
AFTER, STEADY_S = 100, 4.0
_STEADY_WITHIN_S = 45.0
_STEADY_VERDICTS = frozenset({"consuming", "idle", "paused"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a round.

    `problems` has problems of the harness itself, and responses that the simulated coordinator could not give.
    `seconds` is the duration of the round.
    """

    plan: RoundPlan
    verdict: Verdict
    problems: tuple[str, ...]
    seconds: float
    folder: Path

    @property
    def has_passed(self) -> bool:
        """Whether no rule was broken and the harness had no problems."""
        return not self.verdict.violations and not self.problems


def run_round(cluster: Cluster, plan: RoundPlan, folder: Path) -> Outcome:
    """Run a round in this folder."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.txt").write_text(f"{plan}\n")
    problems: list[str] = []
    with Testbed(cluster, plan.members, folder) as testbed:
        if not testbed.wait(testbed.have_jobs_begun, JOBS_BEGIN_S):
            problems.append(f"no task of a Spark job owns a partition after {JOBS_BEGIN_S:.0f} s")
        elif not testbed.wait(lambda: len(testbed.progress.read().received) > 0, BEGIN_S):
            problems.append(f"no record was received within {BEGIN_S:.0f} s")
        else:
            _inject_faults(testbed, plan.faults, problems)
        _settle(testbed, problems)
        for node_id in cluster.broker.node_ids if problems else ():
            (folder / f"node-{node_id}.txt").write_text(cluster.broker.log_tail(node_id))
    problems += [*testbed.producer.failures, *testbed.problems, *_impossible_responses(folder)]
    problems += [f"{name}: {error}" for name, error in sorted(testbed.progress.read().refused.items())]
    verdict = check(h.read_all(folder))
    lines = [*problems, *map(str, verdict.violations)]
    (folder / "verdict.txt").write_text("\n".join([str(plan), str(verdict.figures), *lines, ""]))
    return Outcome(
        plan=plan, verdict=verdict, problems=tuple(problems), seconds=time.monotonic() - began, folder=folder
    )


def _impossible_responses(folder: Path) -> list[str]:
    """Return the recorded heartbeat responses that the simulated coordinator could not give."""
    return [
        f"{path.name} {finding.number}: {finding.text}"
        for path in sorted(folder.glob("*.recording"))
        for finding in check_recording(read(path)).findings
    ]


def _inject_faults(testbed: Testbed, faults: tuple[FaultPlan, ...], problems: list[str]) -> None:
    """Begin each fault when the group has received the number of records in its plan; return when all are over."""
    received = len(testbed.progress.read().received)
    is_over = threading.Event()
    threads = []

    def run(fault: FaultPlan) -> None:
        try:
            inject(testbed, fault.kind, fault.target, fault.choice, is_over, fault.duration_s)
        except Exception as error:  # noqa: BLE001 - the round reports it and still ends its processes
            problems.append(f"fault {fault.kind}: {error!r}")

    for fault in faults:
        # A fault may prevent the group from receiving records. Then the next fault begins after `FAULT_S`, during it.
        after = received + fault.after
        testbed.wait(lambda: len(testbed.progress.read().received) >= after, FAULT_S)  # noqa: B023 - called at once
        thread = threading.Thread(target=run, args=[fault], name=fault.kind, daemon=True)
        thread.start()
        threads.append(thread)
    for thread, fault in zip(threads, faults, strict=True):
        thread.join(KINDS[fault.kind].longest_s + 300.0)
        if thread.is_alive():
            problems.append(f"fault {fault.kind} did not end")


def _settle(testbed: Testbed, problems: list[str]) -> None:
    """Repair the cluster, consume to the end, and wait until the members are in a steady state."""
    testbed.heal()
    enough = len(testbed.progress.read().acknowledged) + AFTER
    if not testbed.wait(lambda: len(testbed.progress.read().acknowledged) >= enough, SETTLE_S):
        # A round with so few records after the faults proves nothing.
        problems.append(f"fewer than {AFTER} records were written within {SETTLE_S:.0f} s after the faults")
    testbed.producer.stop()
    if not testbed.wait(lambda: testbed.progress.read().missing == 0, SETTLE_S):
        problems.append(f"{testbed.progress.missing} records were not received within {SETTLE_S:.0f} s")
        return
    settled_at = time.monotonic()
    if not testbed.wait(lambda: time.monotonic() > settled_at + STEADY_S and _is_steady(testbed), _STEADY_WITHIN_S):
        problems.append(f"no steady state {_STEADY_WITHIN_S:.0f} s after the last record: {_states(testbed)}")
    testbed.history.write(h.Settled())


def _states(testbed: Testbed) -> dict[str, str]:
    testbed.progress.read()
    members = [
        member for member in testbed.members.values() if member.is_running and member.plan.loop is not Loop.MANUAL
    ]
    return {
        name: f"{statement.state} {statement.verdict}"
        for name, statement in testbed.progress.states.items()
        if any(h.is_of(name, member.name) for member in members)
    }


def _is_steady(testbed: Testbed) -> bool:
    return all(
        state.partition(" ")[0] == "STABLE" and state.partition(" ")[2] in _STEADY_VERDICTS
        for state in _states(testbed).values()
    )
