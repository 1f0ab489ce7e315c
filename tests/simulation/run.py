"""One run of a profile: a phase with faults, recovery without faults, and a check of the steady state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.recorder.ring import Recorder
from consumer_membership.testing.coordinators.rules import ClassicRules, Rules
from consumer_membership.types import ConflictPolicy, LeaveOption, Subscription, TopicPartition
from tests.simulation import internals
from tests.simulation.application import Behavior
from tests.simulation.handler_invariants import Situation
from tests.simulation.invariants import SLOWEST_CALLBACK_S
from tests.simulation.network import REQUEST_TIMEOUT_S, Faults
from tests.simulation.process import Process
from tests.simulation.process_invariants import Violation, check
from tests.simulation.processor import DRAIN_TIMEOUT_S, HANDLER_TIMEOUT_S, Options, Parts, ProcessorApplication
from tests.simulation.profiles import Processing, Profile
from tests.simulation.simulation import GROUP, Simulation
from tests.simulation.surges import HAND_OVER_S, Surges
from tests.simulation.trace import as_text

#: The duration of the faults, and of the steady state at the end, in which members must only send heartbeats.
FAULT_PHASE_S = 12.0
STEADY_S = 3.0
#: The time limit in which processors handle the remaining records. A run that fails here takes all of this time.
CATCH_UP_S = 60.0
#: The application's time limits in a run. They are small so that runs are short.
MAX_POLL_INTERVAL_S = 5.0
LEAVE_TIMEOUT_S = 4.0
DRAIN_S = 1.0
#: A pool with more ids than a run has processes and stale members.
POOL = tuple(f"pool-{number}" for number in range(16))
#: The time until quick heartbeats have the normal interval again (`membership.heartbeat`: five intervals of 0.2 s, then
#: each is 1.6 times longer).
QUICK_HEARTBEATS_S = 5.0


class SimulationFailure(AssertionError):  # noqa: N818 - the usual term
    """A run violated an invariant. The message contains the seed, the profile and the end of the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run."""

    settled_after_s: float
    handovers: int
    repeated: int
    #: How many instance ids a successor received in time because the holder released its id.
    handed_over: int = 0
    #: How often each situation occurred in the processors.
    situations: Counter[Situation] = field(default_factory=Counter)


def simulate(
    seed: int,
    profile: Profile,
    make_member: Callable[..., MemberCore | Recorder] = MemberCore,
    parts: Parts | None = None,
) -> Outcome:
    """Run one seed; `parts` are the parts of its processors. Raises SimulationFailure if the run fails."""
    run = Run(seed, profile, make_member, parts or Parts())
    try:
        return run.run()
    except Exception as error:
        simulation = run.simulation
        where = f"seed {seed}, profile '{profile.name}', at {simulation.now:.4f}"
        raise SimulationFailure(f"{simulation.trace()}\n{where}: {type(error).__name__}: {error}") from error


class Timing(NamedTuple):
    """The session timeout, the heartbeat interval of settled members, and the longest duration of a rebalance."""

    session_s: float
    heartbeat_s: float
    gathers_s: float

    @classmethod
    def of(cls, rules: Rules | ClassicRules, classic: ClassicSettings) -> Timing:
        """Return the timing of a group with these rules."""
        if isinstance(rules, Rules):
            return cls(rules.session_timeout_s, rules.heartbeat_interval_s, rules.assignment_interval_s)
        # A cooperative rebalance has two join phases, and each waits for the slowest member.
        return cls(classic.session_timeout_s, classic.heartbeat_interval_s, 2 * MAX_POLL_INTERVAL_S)


class Run:
    """One run of a profile: its simulation, and the faults that it injects."""

    def __init__(
        self, seed: int, profile: Profile, make_member: Callable[..., MemberCore | Recorder], parts: Parts
    ) -> None:
        self.profile = profile
        self.simulation = simulation = Simulation(seed, rules=profile.rules[0], make_member=make_member)
        self.random = simulation.random
        rules = self.random.choice(profile.rules)
        simulation.coordinator.rules = rules  # type: ignore[attr-defined]  # both coordinators have rules
        self.timing = Timing.of(rules, simulation.protocols.classic)
        # With a short refresh interval, the leader of a classic group soon notices created topics.
        quick = replace(simulation.protocols.classic, refresh_interval_s=self.timing.heartbeat_s)
        simulation.protocols = replace(simulation.protocols, classic=quick)
        simulation.faults = replace(profile.faults)
        simulation.inbox_delay_s = profile.inbox_delay_s
        self.auto_commit = self.random.random() < 0.7 and profile.processing is None
        self.policy = ConflictPolicy.TAKEOVER
        self.is_pooled = profile.is_pooled
        if profile.hands_over:
            self.is_pooled = self.random.random() < 0.4
            self.policy = ConflictPolicy.HAND_OVER
            simulation.may_describe = not profile.hand_over_faults or self.random.random() < 0.9
            simulation.helper.is_refused = bool(profile.hand_over_faults) and self.random.random() < 0.1
        elif profile.is_pooled:
            self.policy = ConflictPolicy.WAIT
        elif profile.is_static:
            simulation.may_describe = self.random.random() < 0.7
            self.policy = self.random.choice((*ConflictPolicy, ConflictPolicy.TAKEOVER))
        self.active_s = self.random.choice((0.0, 0.0, 0.25))
        self.names = ["a", "b", "c"][: self.random.randint(1, 3)]
        for name in self.names:
            # Each process needs a partition: a holder without partitions receives no request for a hand-over.
            is_full = profile.hands_over and profile.is_clean
            simulation.create_topic(name, 3 if is_full else self.random.randint(1, 3))
        self.slots: dict[int, Process | None] = {}
        self.pool_size = len(POOL)
        self._surges = Surges(self)
        #: Whether stale members may remain until their sessions expire.
        leaves = {"crash", "node down", "cut off", "surge"}
        self.leaves_stale_members = bool(profile.actions.keys() & leaves) or profile.faults.request_lost > 0
        if profile.processing is not None:
            options = self._options(profile.processing)
            simulation.coordinator.offset_metadata_max_bytes = self.random.choice(profile.processing.broker_limits)
            simulation.make_application = lambda process, behavior, _: ProcessorApplication(
                process, behavior, options, parts
            )
        #: Processes that are about to start.
        self._starting = 0
        self._actions: dict[str, Callable[[], None]] = {
            "scale": self._scale,
            "resubscribe": self._resubscribe,
            "change subscription": self._change_subscription,
            "create topic": self._create_topic,
            "delete topic": self._delete_topic,
            "stop polling": lambda: self._stop_polling(MAX_POLL_INTERVAL_S * (1 + self.random.random())),
            "pause between polls": lambda: self._stop_polling(MAX_POLL_INTERVAL_S * self.random.random()),
            "raise": self._raise,
            "slow callback": self._slow_callback,
            "crash": self._crash,
            "bounce": self._bounce,
            "break connection": self._break_connection,
            "cut off": self._cut_off,
            "move coordinator": self._move_coordinator,
            "node down": self._node_down,
            "remove": self._remove,
            "duplicate instance id": self._start_duplicate,
            "surge": self._surge,
        }

    # ---- the course of a run ----

    def run(self) -> Outcome:
        """Run the phase with faults, recover, check the steady state, and close all members."""
        simulation = self.simulation
        count = self.random.randint(1, 3)
        if self.profile.hands_over:
            self.pool_size = count
        for slot in range(count):
            self.start(slot, self.random.random() * 2)
        is_clean_hand_over = self.profile.hands_over and self.profile.is_clean
        if is_clean_hand_over:
            simulation.run(2.0)
            simulation.settle(self._bound_s())
            self._surges.settled()
        self._schedule_action()
        simulation.run(simulation.now + FAULT_PHASE_S)
        self._end_faults()
        settled_after = self._settle()
        if self.profile.processing is not None:
            self._catch_up()
        self._check_steady_state()
        if is_clean_hand_over:
            self._surges.check_end()
        ends = self._ends()
        self._close()
        repeated = simulation.ledger.repeated
        if self.profile.processing is not None:
            simulation.handler_invariants.check_end(ends)
            repeated = simulation.handler_invariants.repeated
        if self.profile.is_clean and (self.auto_commit or self.profile.processing is not None):
            check(repeated == 0, f"{repeated} records were delivered twice although every handover was clean")
        return Outcome(
            settled_after_s=settled_after,
            handovers=simulation.invariants.handovers,
            repeated=repeated,
            handed_over=simulation.invariants.hand_overs.completed,
            situations=simulation.handler_invariants.situations,
        )

    def _end_faults(self) -> None:
        simulation = self.simulation
        simulation.log("faults are over")
        simulation.are_faults_over = True
        simulation.faults = Faults(latency_s=self.profile.faults.latency_s)
        simulation.nodes_down.clear()
        # Includes every process: of two processes with the same instance id, `slots` contains only the newer process.
        for process in simulation.live_processes:
            process.cut_off(is_cut=False)
            behavior = process.application.behavior
            behavior.callback_s, behavior.warm_s, behavior.raises = 0.0, 0.0, 0
            if process.application.callback is None:
                process.application.wake()
        if self.profile.hands_over:
            self._surges.end()
        for slot, process in self.slots.items():  # type: ignore[assignment]  # the first loop also uses this name
            if process is not None and not process.alive:
                self.start(slot, 0.1)

    def _bound_s(self) -> float:
        """Return the longest time in seconds that the group may take to settle after the faults."""
        timing = self.timing
        under_way = 2 * REQUEST_TIMEOUT_S + SLOWEST_CALLBACK_S + 2.0
        stale_members = timing.session_s if self.leaves_stale_members else 0.0
        # A handler that cannot be cancelled ends its processor, and a new processor replaces it.
        stuck = HANDLER_TIMEOUT_S + DRAIN_TIMEOUT_S if self.profile.processing is not None else 0.0
        # A surplus process is closed, and then the remaining process can join with its id.
        surplus = HAND_OVER_S + 2 * timing.session_s if self.profile.hands_over else 0.0
        return under_way + stale_members + 4 * timing.heartbeat_s + timing.gathers_s + stuck + surplus

    def _settle(self) -> float:
        simulation, bound = self.simulation, self._bound_s()
        since = simulation.now
        # A member notices a lost request only at its timeout. Until then it may look settled although it has missed a
        # decision of the coordinator.
        noticed_at = since + REQUEST_TIMEOUT_S + self.timing.heartbeat_s
        while not simulation.is_settled or self._starting or simulation.now < noticed_at:
            if simulation.now - since > bound:
                raise Violation(f"not settled {bound:.1f} s after the faults: {self._snapshot()}")
            simulation.run(simulation.now + 0.1)
        return simulation.now - since

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the end of the received records of each partition."""
        simulation = self.simulation
        return {partition: simulation.ledger.prefix(partition) for partition in simulation.wanted}

    def _catch_up(self) -> None:
        """Let the processors handle all records that excluded processors received; those may be many."""
        simulation = self.simulation
        simulation.is_idle = True
        until = simulation.now + CATCH_UP_S
        while simulation.handler_invariants.behind(self._ends()) and simulation.now < until:
            simulation.run(simulation.now + 0.5)

    def _check_steady_state(self) -> None:
        """Check the steady state: no change of state, and one heartbeat in each interval."""
        simulation = self.simulation
        simulation.is_idle = True
        simulation.run(simulation.now + QUICK_HEARTBEATS_S)
        check(simulation.is_settled, f"the group did not stay settled: {self._snapshot()}")
        simulation.invariants.state_changes.clear()
        before = {
            process: simulation.invariants.heartbeats_of(process)
            for process in simulation.live_processes
            if process.subscription
        }
        simulation.run(simulation.now + STEADY_S)
        check(not simulation.invariants.state_changes, f"states changed while nothing happened: {self._snapshot()}")
        for process, heartbeats in before.items():
            sent = simulation.invariants.heartbeats_of(process) - heartbeats
            most = STEADY_S / self.timing.heartbeat_s + 1
            check(sent <= most, f"{process.name} is settled and idle and sent {sent} heartbeats in {STEADY_S} s")
            check(sent >= most - 2, f"{process.name} sent {sent} heartbeats in {STEADY_S} s: too few")

    def _close(self) -> None:
        """Close all members, and check that they end in time and have left the group."""
        simulation = self.simulation
        since = simulation.now
        processes = simulation.live_processes
        for process in processes:
            process.application.leave(LeaveOption.LEAVE, closes=True)
        simulation.run(since + 2.0, when=lambda: not simulation.live_processes)
        check(not simulation.live_processes, f"close took longer than 2 s: {self._snapshot()}")
        members = simulation.coordinator.members(GROUP)
        check(not members, f"after all members left, the coordinator still has {sorted(members)}")

    def _snapshot(self) -> str:
        simulation = self.simulation
        lines = []
        for process in simulation.live_processes:
            member, application = process.member, process.application
            lines.append(
                f"\n    {process.name} {internals.state(member)} epoch {internals.epoch(member)}"
                f" {internals.phase(member).name}"
                f" holds {sorted(application.held)} frozen {sorted(application.frozen)}"
                f" subscribes {sorted(process.subscription.topics)} failed {process.failed}"
            )
        lines.append(
            f"\n    at {simulation.now:.3f} the coordinator has {as_text(simulation.coordinator.groups.get(GROUP))}"
        )
        return "".join(lines)

    def _options(self, of: Processing) -> Options:
        """Draw the options of this run's processors."""
        choice = self.random.choice
        return Options(
            order=choice(of.orders),
            kind=choice(of.kinds),
            concurrency=choice((1, 3, 6)),
            max_queued=choice((4, 12, 30)),
            max_batch=choice((1, 3)),
            max_wait_s=choice((0.0, 0.0, 0.2)),
            metadata_limit=choice(of.metadata_limits),
            has_dead_letters=choice(of.has_dead_letters),
            temporary=of.temporary,
            permanent=of.permanent,
            stuck=of.stuck,
        )

    # ---- actions and faults ----

    def _schedule_action(self) -> None:
        if not self.profile.actions:
            return
        simulation = self.simulation

        def take_action() -> None:
            if self.simulation.are_faults_over:
                return
            names = list(self.profile.actions)
            name = self.random.choices(names, weights=[self.profile.actions[one] for one in names])[0]
            simulation.log(name)
            self._actions[name]()
            self._schedule_action()

        simulation.after(self.profile.action_interval_s * (0.5 + self.random.random()), take_action)

    def _settings(self, slot: int) -> MemberSettings:
        return MemberSettings(
            group_id=GROUP,
            instance_id=f"i{slot}" if self._has_instance_id(slot) else None,
            instance_pool=POOL[: self.pool_size] if self.is_pooled else (),
            conflict_policy=self.policy,
            max_poll_interval_s=MAX_POLL_INTERVAL_S,
            auto_commit=self.auto_commit,
            auto_commit_interval_s=1.0,
            active_heartbeat_interval_s=self.active_s,
            leave_timeout_s=LEAVE_TIMEOUT_S,
            drain_timeout_s=DRAIN_S,
        )

    def _has_instance_id(self, slot: int) -> bool:
        """Return whether the process in this slot is a static member with a fixed instance id."""
        return self.profile.is_static and not self.is_pooled and not (self.profile.is_mixed and slot % 2)

    def start(self, slot: int, delay_s: float, *, is_additional: bool = False) -> None:
        """Start a process in this slot after this number of seconds.

        If the slot already has a live process, only an additional process (`is_additional`) is started.
        """
        simulation = self.simulation
        self.slots.setdefault(slot, None)
        self._starting += 1

        def start() -> None:
            self._starting -= 1
            if (present := self.slots[slot]) is not None and present.alive and not is_additional:
                return
            number = simulation.next_number("application")
            behavior = Behavior(is_eager=number % 4 != 0, callbacks_until_incremental=3 if number % 4 == 1 else None)
            if self.profile.processing is not None:
                behavior = Behavior(think_s=0.1, batch=4)
            elif not self.auto_commit:
                behavior.commits_every = self.random.choice((1, 3))
                behavior.commits_in_revoke = self.random.random() < 0.5
            process = simulation.start(
                slot, settings=self._settings(slot), behavior=behavior, subscription=self._some_subscription()
            )
            self.slots[slot] = process
            self._supervise(process)

        simulation.after(delay_s, start)

    def _supervise(self, process: Process) -> None:
        """Close a process whose member failed permanently, and start another process in its slot."""

        def check_process() -> None:
            if not process.alive:
                return
            if process.failed:
                process.application.leave(LeaveOption.DEFAULT, closes=True)
                if self.slots[process.slot] is process:
                    self.start(process.slot, 0.5)
            self.simulation.after(0.5, check_process)

        self.simulation.after(0.5, check_process)

    def _some_subscription(self) -> Subscription:
        names = self.names
        if self.random.random() < 0.6 or (self.profile.hands_over and self.profile.is_clean):
            return Subscription(topics=frozenset(names))
        return Subscription(topics=frozenset(self.random.sample(names, self.random.randint(1, len(names)))))

    def _one(self) -> Process | None:
        live = [process for process in self.simulation.live_processes if not process.application.is_leaving]
        return self.random.choice(live) if live else None

    def _scale(self) -> None:
        """Start a process, or close a process."""
        empty = [slot for slot, process in self.slots.items() if process is None or not process.alive]
        process = self._one()
        if process is None or (self.random.random() < 0.5 and (empty or len(self.slots) < 4)):
            self.start(empty[0] if empty else len(self.slots), 0.0)
        else:
            self.slots[process.slot] = None
            option = self.random.choice((LeaveOption.LEAVE, LeaveOption.LEAVE, LeaveOption.DEFAULT))
            self.leaves_stale_members |= self.profile.is_static
            process.application.leave(option, closes=True)

    def _resubscribe(self) -> None:
        process = self._one()
        if process is None or process.application.callback is not None:
            return
        process.application.leave(LeaveOption.DEFAULT, closes=False)
        subscription = self._some_subscription()

        def subscribe() -> None:
            if process.alive and not process.application.is_leaving and not process.subscription:
                process.subscription = subscription
                process.application.subscribe(subscription)
            elif process.alive and not self.simulation.are_faults_over:
                self.simulation.after(0.3, subscribe)

        self.simulation.after(self.random.random() * 2, subscribe)

    def _change_subscription(self) -> None:
        process = self._one()
        if process is not None and process.subscription:
            process.subscription = self._some_subscription()
            process.application.subscribe(process.subscription)

    def _create_topic(self) -> None:
        name = f"t{self.simulation.next_number('topic')}"
        self.names.append(name)
        self.simulation.create_topic(name, self.random.randint(1, 2))

    def _delete_topic(self) -> None:
        if len(self.names) > 1:
            name = self.random.choice(self.names)
            self.names.remove(name)
            self.simulation.delete_topic(name)

    def _stop_polling(self, pause_s: float) -> None:
        process = self._one()
        if process is not None:
            process.application.poll_after(pause_s, is_in_poll=False)

    def _raise(self) -> None:
        process = self._one()
        if process is not None:
            process.application.behavior.raises = self.random.randint(1, 3)

    def _slow_callback(self) -> None:
        process = self._one()
        if process is not None:
            process.application.behavior.callback_s = SLOWEST_CALLBACK_S * self.random.random()

    def _crash(self) -> None:
        process = self._one()
        if process is not None:
            process.kill()
            if self.random.random() < 0.7:
                self.start(process.slot, self.random.random() * 3)
            else:
                self.slots[process.slot] = None

    def _start_duplicate(self) -> None:
        """Start a second process with the same instance id, as a wrong configuration or a replacement does."""
        process = self._one()
        if process is None or self.policy is not ConflictPolicy.TAKEOVER:
            return
        self.leaves_stale_members = True
        for _ in range(self.random.choice((1, 1, 2))):
            self.start(process.slot, self.random.random() * 0.1, is_additional=True)

    def _surge(self) -> None:
        """Start a new process beside a running process, which hands over its instance id."""
        process = self._one()
        if process is not None:
            self._surges.begin(process)

    def _bounce(self) -> None:
        process = self._one()
        if process is not None:
            process.application.leave(LeaveOption.DEFAULT, closes=True)
            self._start_when_ended(process)

    def _start_when_ended(self, process: Process) -> None:
        self._starting += 1

        def check_process() -> None:
            if process.alive:
                self.simulation.after(0.2, check_process)
            else:
                self._starting -= 1
                self.start(process.slot, self.random.random())

        self.simulation.after(0.2, check_process)

    def _break_connection(self) -> None:
        process = self._one()
        if process is not None:
            process.break_connections("connection reset")

    def _cut_off(self) -> None:
        """Cut the path between one process and the coordinator for about a session timeout."""
        process = self._one()
        if process is not None:
            process.cut_off(is_cut=True)
            length_s = self.timing.session_s * (0.5 + self.random.random())
            self.simulation.after(length_s, lambda: process.cut_off(is_cut=False))

    def _move_coordinator(self) -> None:
        simulation = self.simulation
        simulation.move_coordinator(simulation.coordinator.node_id % 3 + 1, self.random.random())
        if self.random.random() < 0.5:
            for process in simulation.live_processes:
                process.break_connections("the broker stopped")

    def _node_down(self) -> None:
        simulation = self.simulation
        node = simulation.coordinator.node_id
        simulation.nodes_down.add(node)
        for process in simulation.live_processes:
            process.break_connections("the broker died")

        def up() -> None:
            simulation.nodes_down.discard(node)

        simulation.after(self.random.random() * 3, up)

    def _remove(self) -> None:
        members = self.simulation.coordinator.members(GROUP)
        if members:
            self.simulation.expel(self.random.choice(sorted(members)))
