"""States as numbers: equal parts are stored once, and each change of a part is computed once.

A state is `(process of each slot, coordinator, orphans, budgets)`; each item is a number in a table of this model. An
orphan is a request whose sender died before the coordinator handled it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from consumer_membership.membership.member import MemberCore
from tests.exploration.cluster import Address, Cluster, SpontaneousEvent
from tests.exploration.configurations import IN_ORDER, KINDS, Configuration
from tests.exploration.fork import fork, key_of
from tests.exploration.moves import moves_of
from tests.exploration.parts import (
    EMPTY,
    UNAFFORDABLE,
    UNKNOWN,
    WAITS,
    Label,
    LocalStep,
    ProcessSummary,
    State,
    Step,
    Table,
    Transition,
    summary_of,
)
from tests.exploration.process import Process
from tests.simulation.process_invariants import Violation

#: The place of each kind in the budgets.
PLACE = {kind: number for number, kind in enumerate(KINDS)}


class Model:
    """The states of one configuration with the rules of one broker (by name); `make_member` creates its members."""

    def __init__(self, config: Configuration, rules: str, make_member: Callable[..., MemberCore] = MemberCore) -> None:
        self.config, self.rules, self.make_member = config, rules, make_member
        self.slots = range(len(config.slots))
        self.processes: Table[Process | None] = Table(key_of)
        self.clusters: Table[Cluster] = Table(Cluster.key)
        self.requests: Table[Hashable] = Table(key_of)
        self.replies: Table[object] = Table(key_of)
        self.orphans: Table[tuple[int, ...]] = Table(lambda orphans: orphans)
        self.budgets: Table[tuple[int, ...]] = Table(lambda budgets: budgets)
        self.summaries: list[ProcessSummary | None] = [None]
        self.processes.number(None)
        self.replies.number(None)
        self._local_steps: dict[int, list[LocalStep]] = {}
        self._deliveries: dict[int, list[tuple[str, int, int]]] = {}
        self._transitions: dict[tuple[int, int | SpontaneousEvent], Transition] = {}
        self._handled: dict[tuple[int, str, int, int], tuple[int, str | None]] = {}
        self._spent: dict[tuple[int, int], int] = {}
        self._pairs: dict[tuple[int, int], str | None] = {}
        self._spontaneous_events: dict[int, list[SpontaneousEvent]] = {}

    # ---- the first state ----

    def first(self) -> State:
        """Return the first state, in which the present processes have just subscribed."""
        config = self.config
        cluster = config.cluster(self.rules)
        slots = [self._newcomer(slot, 0) if slot < config.present else EMPTY for slot in self.slots]
        budgets = self.budgets.number(tuple(config.budgets.get(kind, 0) for kind in KINDS))
        return (*slots, self.clusters.number(cluster), self.orphans.number(()), budgets)

    def _newcomer(self, slot: int, number: int) -> int:
        process = self.config.start(f"m{slot}{'abcdefgh'[number]}", number, slot, self.make_member)
        return self._store(process)

    def _store(self, process: Process) -> int:
        process.log.clear()
        number = self.processes.number(process)
        if number == len(self.summaries):
            self.summaries.append(summary_of(process))
        return number

    # ---- parts ----

    def local_steps(self, number: int) -> list[LocalStep]:
        """Return the steps of a process without the coordinator."""
        found = self._local_steps.get(number)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = self._local_steps[number] = [
                LocalStep(move, UNAFFORDABLE if move.budget is None else PLACE[move.budget])
                for move in moves_of(process)
            ]
        return found

    def after(self, number: int, local: LocalStep) -> int:
        """Return the number of the process after this step."""
        if local.after == UNKNOWN:
            process, move = self.processes.values[number], local.move
            assert process is not None
            local.after, local.violation = self._changed(process, lambda copy: copy.apply(move))
        return local.after

    def _changed(self, process: Process, change: Callable[[Process], None]) -> tuple[int, str | None]:
        copy = fork(process)
        try:
            change(copy)
        except Violation as violation:
            return EMPTY, str(violation)
        return self._store(copy), None

    def deliveries(self, number: int) -> list[tuple[str, int, int]]:
        """Return the requests that the coordinator may handle next: method for the reply, index, and request number."""
        found = self._deliveries.get(number)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = [
                (delivery.how, delivery.place, self.requests.number(delivery.request))
                for delivery in process.deliveries()
            ]
            self._deliveries[number] = found
        return found

    def _on_handled(self, number: int, how: str, place: int, reply: int) -> tuple[int, str | None]:
        """Return the number of the process after the reply to one of its requests, or after the request has to wait."""
        key = (number, how, place, reply)
        found = self._handled.get(key)
        if found is None:
            process, answer = self.processes.values[number], self.replies.values[reply]
            assert process is not None
            found = self._handled[key] = self._changed(process, lambda copy: copy.handled(how, place, answer))  # type: ignore[arg-type]  # stored as hashable values
        return found

    def changed(self, number: int, how: str) -> int:
        """Return the number of the process after a call of this method."""
        key = (number, how, 0, 0)
        found = self._handled.get(key)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = self._handled[key] = self._changed(process, lambda copy: getattr(copy, how)())
        return found[0]

    def transition(self, cluster: int, what: int | SpontaneousEvent) -> Transition:
        """Return the transition of the coordinator for a request (its number) or a spontaneous event."""
        found = self._transitions.get((cluster, what))
        if found is None:
            copy = fork(self.clusters.values[cluster])
            reply = WAITS
            if isinstance(what, SpontaneousEvent):
                copy.apply_event(what)
            else:
                reply = self.replies.number(copy.execute(self.requests.values[what]))  # type: ignore[arg-type]  # stored as hashable values
            copy.canonicalise()
            released = tuple((address, self.replies.number(answer)) for address, answer in copy.released)
            noted = (released, tuple(copy.dropped), tuple(copy.removed), tuple(copy.committed))
            copy.released, copy.dropped, copy.removed, copy.committed = [], [], [], []
            found = self._transitions[cluster, what] = Transition(self.clusters.number(copy), reply, *noted)
        return found

    def spontaneous_events(self, cluster: int) -> list[SpontaneousEvent]:
        """Return the spontaneous events that the coordinator allows."""
        found = self._spontaneous_events.get(cluster)
        if found is None:
            found = self._spontaneous_events[cluster] = list(self.clusters.values[cluster].spontaneous_events())
        return found

    def spend(self, budgets: int, kind: int) -> int:
        """Return the budgets after this cost, or UNAFFORDABLE if the budget is used up."""
        found = self._spent.get((budgets, kind))
        if found is None:
            left = list(self.budgets.values[budgets])
            left[kind] -= 1
            left[0] -= KINDS[kind] not in IN_ORDER
            found = UNAFFORDABLE if min(left[kind], left[0]) < 0 else self.budgets.number(tuple(left))
            self._spent[budgets, kind] = found
        return found

    # ---- steps ----

    def steps(self, state: State) -> Iterator[Step]:
        """Yield all possible next steps."""
        slots = len(self.slots)
        budgets = state[-1]
        for slot in self.slots:
            number = state[slot]
            if number == EMPTY:
                yield from self._start(state, slot)
                continue
            before, behind = state[:slot], state[slot + 1 : -1]
            for local in self.local_steps(number):
                left = budgets if local.budget < 0 else self.spend(budgets, local.budget)
                if left >= 0:
                    after = local.after if local.after != UNKNOWN else self.after(number, local)
                    yield Step(Label("local", slot, local.move), (*before, after, *behind, left), local.violation)
            for how, place, request in self.deliveries(number):
                yield self.execute(state, slot, how, place, request)
            left = self.spend(budgets, PLACE["crash"])
            if left >= 0:
                yield from self._crash(state, slot, left)
        cluster, orphans = state[slots], self.orphans.values[state[slots + 1]]
        for event in self.spontaneous_events(cluster):
            yield from self.steps_of_event(state, event)
        for place, request in enumerate(orphans):
            if request not in orphans[:place]:
                transition = self.transition(cluster, request)
                rest = self.orphans.number(orphans[:place] + orphans[place + 1 :])
                yield self._step(Label("orphan", -1, request), (*state[: slots + 1], rest, budgets), transition)

    def _start(self, state: State, slot: int) -> Iterator[Step]:
        left = self.spend(state[-1], PLACE["start"])
        if left >= 0:
            number = self.config.budgets["start"] - self.budgets.values[left][PLACE["start"]]
            newcomer = self._newcomer(slot, number)
            yield Step(Label("start", slot), (*state[:slot], newcomer, *state[slot + 1 : -1], left))

    def _crash(self, state: State, slot: int, left: int) -> Iterator[Step]:
        """Yield the deaths of a process, after which the coordinator immediately handles some of its last requests.

        It handles the other requests later (orphans), or never.
        """
        process = self.processes.values[state[slot]]
        assert process is not None
        state = (*state[:slot], EMPTY, *state[slot + 1 : -1], left)
        if self.config.overtakes:
            orphans = [self.requests.number(request) for request in process.left_behind]
            number = self.orphans.number(tuple(sorted((*self.orphans.values[state[-2]], *orphans))))
            yield Step(Label("crash", slot), (*state[:-2], number, left))
            return
        yield Step(Label("crash", slot), state)
        for handled, request in enumerate(process.unseen):
            transition = self.transition(state[len(self.slots)], self.requests.number(request))
            step = self._step(Label("crash", slot, handled + 1), state, transition)
            yield step
            if step.violation is not None:
                return
            state = step.state

    def execute(self, state: State, slot: int, how: str, place: int, request: int) -> Step:
        """Return the step in which the coordinator handles a request of the process in this slot."""
        transition = self.transition(state[len(self.slots)], request)
        after, violation = self._on_handled(state[slot], how, place, transition.reply)
        label = Label("execute", slot, (how, place, request, transition.reply))
        if violation is not None:
            return Step(label, state, violation)
        return self._step(label, (*state[:slot], after, *state[slot + 1 :]), transition)

    def _step(self, label: Label, state: State, transition: Transition) -> Step:
        """Return the step after a transition of the coordinator: send its answers, and excuse removed members."""
        slots = len(self.slots)
        if transition.removed or transition.released or transition.dropped:
            numbers = list(state[:slots])
            for slot, number in enumerate(numbers):
                summary = self.summaries[number]
                if summary is not None and summary.member_id in transition.removed:
                    numbers[slot] = self.changed(number, "excuse")
            news = [(address, "answered", reply) for address, reply in transition.released]
            news += [(address, "dropped", WAITS) for address in transition.dropped]
            for address, how, reply in news:
                to = self._slot_named(numbers, address)
                if to is not None:
                    numbers[to], violation = self._on_handled(numbers[to], how, address.place, reply)
                    if violation is not None:
                        return Step(label, state, violation)
            state = (*numbers, *state[slots:])
        after = (*state[:slots], transition.after, *state[slots + 1 :])
        return Step(label, after, self._commit_violation(after, transition))

    def _slot_named(self, numbers: list[int], address: Address) -> int | None:
        """Return the slot of the process that receives an answer, or None if it is dead."""
        for slot, number in enumerate(numbers):
            summary = self.summaries[number]
            if summary is not None and summary.name == address.name:
                return slot
        return None

    def steps_of_event(self, state: State, event: SpontaneousEvent) -> Iterator[Step]:
        """Yield the steps of a spontaneous event at the coordinator, if it is possible and within the budgets."""
        cluster = state[len(self.slots)]
        is_live = any(self._is_live(state, one) for one in event.about)
        if event.needs_live_member and not is_live:
            return
        budget = event.budget if is_live or not event.about else None
        left = state[-1] if budget is None else self.spend(state[-1], PLACE[budget])
        if left < 0:
            return
        if event.is_long:
            if any(
                summary is not None and summary.is_answered
                for summary in (self.summaries[state[one]] for one in self.slots)
            ):
                # No answer stays in flight for as long as a session.
                return
            # A session is long, so no member's last answer is recent when it ends.
            aged = (
                self.changed(number, "age_confirmation") if number else EMPTY for number in state[: len(self.slots)]
            )
            state = (*aged, *state[len(self.slots) :])
        yield self._step(Label(event.name, -1, event), (*state[:-1], left), self.transition(cluster, event))

    def _is_live(self, state: State, who: str) -> bool:
        """Return whether a live process has this member id or this name."""
        for slot in self.slots:
            summary = self.summaries[state[slot]]
            if summary is not None and ((summary.is_member and summary.member_id == who) or summary.name == who):
                return True
        return False

    # ---- rules for several processes ----

    def violation(self, state: State) -> str | None:
        """Return the rule that this state breaks, or None."""
        slots = state[: len(self.slots)]
        for place, one in enumerate(slots):
            for other in slots[place + 1 :]:
                if one and other:
                    key = (one, other)
                    if key not in self._pairs:
                        self._pairs[key] = self._pair_violation(one, other)
                    if self._pairs[key] is not None:
                        return self._pairs[key]
        return None

    def _pair_violation(self, one: int, other: int) -> str | None:
        a, b = self.summaries[one], self.summaries[other]
        if a is None or b is None or a.is_excused or b.is_excused:
            return None
        both = sorted(a.fetchable & b.fetchable)
        if both:
            return f"{both} is fetchable by {a.member_id} and {b.member_id}"
        if a.instance_id is not None and a.instance_id == b.instance_id and a.fetchable and b.fetchable:
            return f"instance id {a.instance_id} has two unfenced holders that both fetch: {a.member_id}, {b.member_id}"
        return None

    def _commit_violation(self, state: State, transition: Transition) -> str | None:
        """Return a violation if the coordinator accepted a commit of a partition that another member fetches.

        The rule also holds for commits of a member that does not know yet that it is fenced.
        """
        for member_id, partitions in transition.committed:
            for slot in self.slots:
                summary = self.summaries[state[slot]]
                if summary is None:
                    continue
                both = sorted(summary.fetchable & partitions)
                if summary.member_id != member_id and not summary.is_excused and both:
                    return f"{member_id} commits {both}, which {summary.member_id} fetches"
        return None
