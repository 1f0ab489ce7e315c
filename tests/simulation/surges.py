"""Deployments that start each new process before they end an old process, so that instance ids are handed over.

With fixed ids, the new process has the slot and the id of an old process, which ends when the id is handed over. With a
pool, the new process has its own slot, and the oldest process is closed when the new one is ready, as by a Kubernetes
Deployment with maxSurge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption, TopicPartition
from tests.simulation import internals
from tests.simulation.process_invariants import check

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.run import Run

#: A fault affects the new or the old process within this time after the start of the new process.
FAULT_WITHIN_S = 4.0
#: The longest time for which a deployment waits until a process is ready.
READY_WITHIN_S = 6.0
#: The longest duration of a hand-over without faults, without the session in which a replaced holder may appear to be
#: alive.
HAND_OVER_S = 10.0
_POLL_S = 0.2


class Surges:
    """The deployments of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._simulation = run.simulation
        self._random = run.random
        self._faults: dict[str, Callable[[Process], None]] = {
            "kill": lambda process: process.kill(),
            "stop": self._stop,
            "cut off": self._cut_off,
            "break connection": lambda process: process.break_connections("connection reset"),
            "close": lambda process: process.application.leave(LeaveOption.DEFAULT, closes=True),
            "move coordinator": self._move,
            "slow callback": self._slow,
            "raise": self._raise,
        }
        #: The stopped processes.
        self._stopped: set[Process] = set()
        self._shares: dict[str | None, frozenset[TopicPartition]] = {}
        self._epoch = 0

    # ---- actions and faults ----

    def begin(self, old: Process) -> None:
        """Start one or two new processes to replace this process, with faults of the old and new processes."""
        run, profile = self._run, self._run.profile
        live = self._simulation.live_processes
        if not profile.hand_over_faults and len(live) > (
            run.pool_size if run.is_pooled else len({one.slot for one in live})
        ):
            return
        count = self._random.choice((1, 1, 2)) if profile.hand_over_faults else 1
        for _ in range(count):
            slot = max(run.slots) + 1 if run.is_pooled else old.slot
            run.start(slot, self._random.random() * 0.1, is_additional=True)
            if run.is_pooled:
                self._simulation.after(_POLL_S, partial(self._end_oldest, slot, self._simulation.now + READY_WITHIN_S))
        for _ in range(self._random.choice((0, 1, 1, 2)) if profile.hand_over_faults else 0):
            fault = self._faults[self._random.choice(profile.hand_over_faults)]
            self._simulation.after(FAULT_WITHIN_S * self._random.random(), partial(self._inject, fault, old.slot))

    def _end_oldest(self, slot: int, until: float) -> None:
        """Close the oldest process when the new process of this slot is ready, or late."""
        run, simulation = self._run, self._simulation
        new = run.slots[slot]
        if simulation.are_faults_over:
            return
        is_ready = new is not None and new.alive and (new.view.is_warm or new.state is MemberState.STABLE)
        if not is_ready and simulation.now < until:
            simulation.after(_POLL_S, lambda: self._end_oldest(slot, until))
            return
        oldest = next(
            (one for one in simulation.live_processes if not one.application.is_leaving and one is not new), None
        )
        if oldest is not None:
            run.slots[oldest.slot] = None
            oldest.application.leave(LeaveOption.DEFAULT, closes=True)

    def _inject(self, fault: Callable[[Process], None], slot: int) -> None:
        live = [one for one in self._simulation.live_processes if self._run.is_pooled or one.slot == slot]
        if live and not self._simulation.are_faults_over:
            victim = self._random.choice(live)
            self._simulation.log(f"fault of {victim.name}")
            fault(victim)

    def _stop(self, process: Process) -> None:
        if process in self._stopped:
            return
        self._stopped.add(process)
        process.stop()
        length_s = self._run.timing.session_s * (0.1 + 1.4 * self._random.random())
        self._simulation.after(length_s, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if process in self._stopped:
            self._stopped.discard(process)
            process.resume()

    def _cut_off(self, process: Process) -> None:
        process.cut_off(is_cut=True, with_helper=self._random.random() < 0.5)
        length_s = self._run.timing.session_s * (0.1 + 1.4 * self._random.random())
        self._simulation.after(length_s, lambda: process.cut_off(is_cut=False))

    def _move(self, _: Process) -> None:
        """Make another node the coordinator of the group or of the helper group."""
        simulation = self._simulation
        node, loading_s = self._random.choice((1, 2, 3)), self._random.random()
        if self._random.random() < 0.5:
            simulation.helper.move(node, simulation.now, loading_s)
        else:
            simulation.move_coordinator(node, loading_s)

    def _slow(self, process: Process) -> None:
        behavior = process.application.behavior
        behavior.callback_s = behavior.warm_s = 2.0 * self._random.random()

    def _raise(self, process: Process) -> None:
        process.application.behavior.raises = self._random.randint(1, 3)

    # ---- recovery ----

    def end(self) -> None:
        """End the faults: wait until hand-overs that have begun are completed, and then close surplus processes."""
        for process in list(self._stopped):
            self._resume(process)
        self._keep_live_processes()
        delay_s = self._random.choice((0.0, HAND_OVER_S + self._run.timing.session_s))
        self._simulation.after(delay_s if self._run.profile.hand_over_faults else HAND_OVER_S, self._end_surplus)

    def _keep_live_processes(self) -> None:
        """Record the live processes, which need no replacement."""
        slots = self._run.slots
        for process in self._simulation.live_processes:
            if not process.application.is_leaving:
                slots[process.slot] = process
        if self._run.is_pooled:
            live = {one.slot for one in self._simulation.live_processes}
            empty = [slot for slot in slots if slot not in live]
            for slot in empty[max(0, self._run.pool_size - len(live)) :]:
                slots[slot] = None

    def _end_surplus(self) -> None:
        """Close the oldest processes that have a subscription if there are more of them than ids."""
        run, profile = self._run, self._run.profile
        live = [one for one in self._simulation.live_processes if one.subscription and not one.application.is_leaving]
        newest = {one.slot: one for one in live}
        kept = set(live[-run.pool_size :] if run.is_pooled else newest.values())
        surplus = [one for one in live if one not in kept]
        if not profile.hand_over_faults and not run.is_pooled:
            check(not surplus, f"hand-overs did not end: {[one.name for one in surplus]} and their successors live")
        for process in surplus:
            process.application.leave(LeaveOption.DEFAULT, closes=True)
        run.slots.update({one.slot: None for one in surplus if run.slots[one.slot] is one})
        # A process that ended is started again.
        self._simulation.after(1.0, self._end_surplus)

    # ---- a clean run ----

    def settled(self) -> None:
        """Record the partitions of each id before the first deployment of a clean run."""
        self._shares, self._epoch = self._now()

    def check_end(self) -> None:
        """Check that ids have their former partitions, the group did not change, and the oldest processes ended."""
        check(self._now() == (self._shares, self._epoch), f"{self._now()} is not {(self._shares, self._epoch)}")
        younger = self._simulation.invariants.hand_overs.out_of_turn
        check(not younger, f"{younger} released their ids although older processes held ids")

    def _now(self) -> tuple[dict[str | None, frozenset[TopicPartition]], int]:
        shares = {
            internals.instance_id(one.member): one.application.fetchable for one in self._simulation.live_processes
        }
        return shares, self._simulation.group_epoch
