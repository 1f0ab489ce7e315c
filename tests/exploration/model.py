"""States as numbers: equal parts are stored once, and what happens to a part is worked out once.

A state is `(process of each slot, coordinator, orphans, budgets)`, each a number in a table of this model. An orphan is
a request whose sender died before the coordinator handled it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from consumer_membership.membership.member import MemberCore
from tests.exploration.cluster import Address, Cluster, Happening
from tests.exploration.configurations import IN_ORDER, KINDS, Configuration
from tests.exploration.fork import fork, key_of
from tests.exploration.moves import moves_of
from tests.exploration.parts import (
    EMPTY,
    UNAFFORDABLE,
    UNKNOWN,
    WAITS,
    Act,
    Face,
    Label,
    Local,
    State,
    Step,
    Table,
    face_of,
)
from tests.exploration.process import Process
from tests.simulation.process_invariants import Violation

#: The place of each kind in the budgets.
PLACE = {kind: number for number, kind in enumerate(KINDS)}


class Model:
    """The states of one configuration under one broker's rules (by name); `make_member` makes its members."""

    def __init__(self, config: Configuration, rules: str, make_member: Callable[..., MemberCore] = MemberCore) -> None:
        self.config, self.rules, self.make_member = config, rules, make_member
        self.slots = range(len(config.slots))
        self.processes: Table[Process | None] = Table(key_of)
        self.clusters: Table[Cluster] = Table(Cluster.key)
        self.questions: Table[Hashable] = Table(key_of)
        self.replies: Table[object] = Table(key_of)
        self.orphans: Table[tuple[int, ...]] = Table(lambda orphans: orphans)
        self.budgets: Table[tuple[int, ...]] = Table(lambda budgets: budgets)
        self.faces: list[Face | None] = [None]
        self.processes.number(None)
        self.replies.number(None)
        self._locals: dict[int, list[Local]] = {}
        self._asks: dict[int, list[tuple[str, int, int]]] = {}
        self._acts: dict[tuple[int, int | Happening], Act] = {}
        self._told: dict[tuple[int, str, int, int], tuple[int, str | None]] = {}
        self._spent: dict[tuple[int, int], int] = {}
        self._pairs: dict[tuple[int, int], str | None] = {}
        self._happenings: dict[int, list[Happening]] = {}

    # ---- the first state ----

    def first(self) -> State:
        """Where the exploration begins: the present processes have just subscribed."""
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
        if number == len(self.faces):
            self.faces.append(face_of(process))
        return number

    # ---- parts ----

    def locals(self, number: int) -> list[Local]:
        """The steps of a process without the coordinator."""
        found = self._locals.get(number)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = self._locals[number] = [
                Local(move, UNAFFORDABLE if move.budget is None else PLACE[move.budget]) for move in moves_of(process)
            ]
        return found

    def after(self, number: int, local: Local) -> int:
        """What becomes of a process by a step of its own."""
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

    def asks(self, number: int) -> list[tuple[str, int, int]]:
        """The requests of a process that the coordinator may handle next: how to tell of it, which, the question."""
        found = self._asks.get(number)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = [(ask.how, ask.place, self.questions.number(ask.question)) for ask in process.asks()]
            self._asks[number] = found
        return found

    def _tell(self, number: int, how: str, place: int, reply: int) -> tuple[int, str | None]:
        """What becomes of a process by the answer to one of its requests, or by the news that it has to wait."""
        key = (number, how, place, reply)
        found = self._told.get(key)
        if found is None:
            process, answer = self.processes.values[number], self.replies.values[reply]
            assert process is not None
            found = self._told[key] = self._changed(process, lambda copy: copy.told(how, place, answer))  # type: ignore[arg-type]  # kept as what can be hashed
        return found

    def changed(self, number: int, how: str) -> int:
        """What becomes of a process by this method of it."""
        key = (number, how, 0, 0)
        found = self._told.get(key)
        if found is None:
            process = self.processes.values[number]
            assert process is not None
            found = self._told[key] = self._changed(process, lambda copy: getattr(copy, how)())
        return found[0]

    def act(self, cluster: int, what: int | Happening) -> Act:
        """What a question (its number) or a happening does to the coordinator."""
        found = self._acts.get((cluster, what))
        if found is None:
            copy = fork(self.clusters.values[cluster])
            reply = WAITS
            if isinstance(what, Happening):
                copy.happen(what)
            else:
                reply = self.replies.number(copy.execute(self.questions.values[what]))  # type: ignore[arg-type]  # kept as what can be hashed
            copy.canonicalise()
            released = tuple((address, self.replies.number(answer)) for address, answer in copy.released)
            noted = (released, tuple(copy.dropped), tuple(copy.removed), tuple(copy.committed))
            copy.released, copy.dropped, copy.removed, copy.committed = [], [], [], []
            found = self._acts[cluster, what] = Act(self.clusters.number(copy), reply, *noted)
        return found

    def happenings(self, cluster: int) -> list[Happening]:
        """Return the spontaneous events that the coordinator allows."""
        found = self._happenings.get(cluster)
        if found is None:
            found = self._happenings[cluster] = list(self.clusters.values[cluster].happenings())
        return found

    def spend(self, budgets: int, kind: int) -> int:
        """The budgets after paying; UNAFFORDABLE where there is nothing left."""
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
        """Everything that may happen next."""
        slots = len(self.slots)
        budgets = state[-1]
        for slot in self.slots:
            number = state[slot]
            if number == EMPTY:
                yield from self._start(state, slot)
                continue
            before, behind = state[:slot], state[slot + 1 : -1]
            for local in self.locals(number):
                left = budgets if local.budget < 0 else self.spend(budgets, local.budget)
                if left >= 0:
                    after = local.after if local.after != UNKNOWN else self.after(number, local)
                    yield Step(Label("local", slot, local.move), (*before, after, *behind, left), local.violation)
            for how, place, question in self.asks(number):
                yield self.execute(state, slot, how, place, question)
            left = self.spend(budgets, PLACE["crash"])
            if left >= 0:
                yield from self._crash(state, slot, left)
        cluster, orphans = state[slots], self.orphans.values[state[slots + 1]]
        for happening in self.happenings(cluster):
            yield from self.happen(state, happening)
        for place, question in enumerate(orphans):
            if question not in orphans[:place]:
                act = self.act(cluster, question)
                rest = self.orphans.number(orphans[:place] + orphans[place + 1 :])
                yield self._step(Label("orphan", -1, question), (*state[: slots + 1], rest, budgets), act)

    def _start(self, state: State, slot: int) -> Iterator[Step]:
        left = self.spend(state[-1], PLACE["start"])
        if left >= 0:
            number = self.config.budgets["start"] - self.budgets.values[left][PLACE["start"]]
            newcomer = self._newcomer(slot, number)
            yield Step(Label("start", slot), (*state[:slot], newcomer, *state[slot + 1 : -1], left))

    def _crash(self, state: State, slot: int, left: int) -> Iterator[Step]:
        """A process dies: of what it sent last, some is handled at once, and the rest never, or later (orphans)."""
        process = self.processes.values[state[slot]]
        assert process is not None
        state = (*state[:slot], EMPTY, *state[slot + 1 : -1], left)
        if self.config.overtakes:
            orphans = [self.questions.number(question) for question in process.left_behind]
            number = self.orphans.number(tuple(sorted((*self.orphans.values[state[-2]], *orphans))))
            yield Step(Label("crash", slot), (*state[:-2], number, left))
            return
        yield Step(Label("crash", slot), state)
        for handled, question in enumerate(process.unseen):
            act = self.act(state[len(self.slots)], self.questions.number(question))
            step = self._step(Label("crash", slot, handled + 1), state, act)
            yield step
            if step.violation is not None:
                return
            state = step.state

    def execute(self, state: State, slot: int, how: str, place: int, question: int) -> Step:
        """The coordinator handles a request of the process in this slot."""
        act = self.act(state[len(self.slots)], question)
        after, violation = self._tell(state[slot], how, place, act.reply)
        label = Label("execute", slot, (how, place, question, act.reply))
        if violation is not None:
            return Step(label, state, violation)
        return self._step(label, (*state[:slot], after, *state[slot + 1 :]), act)

    def _step(self, label: Label, state: State, act: Act) -> Step:
        """The state with the coordinator moved on, its answers under way, and the members that it removed excused."""
        slots = len(self.slots)
        if act.removed or act.released or act.dropped:
            numbers = list(state[:slots])
            for slot, number in enumerate(numbers):
                face = self.faces[number]
                if face is not None and face.member_id in act.removed:
                    numbers[slot] = self.changed(number, "excuse")
            news = [(address, "answered", reply) for address, reply in act.released]
            news += [(address, "dropped", WAITS) for address in act.dropped]
            for address, how, reply in news:
                to = self._slot_named(numbers, address)
                if to is not None:
                    numbers[to], violation = self._tell(numbers[to], how, address.place, reply)
                    if violation is not None:
                        return Step(label, state, violation)
            state = (*numbers, *state[slots:])
        after = (*state[:slots], act.after, *state[slots + 1 :])
        return Step(label, after, self._commit_violation(after, act))

    def _slot_named(self, numbers: list[int], address: Address) -> int | None:
        """The slot of the process that an answer goes to; None: it is dead."""
        for slot, number in enumerate(numbers):
            face = self.faces[number]
            if face is not None and face.name == address.name:
                return slot
        return None

    def happen(self, state: State, happening: Happening) -> Iterator[Step]:
        """Let a spontaneous event happen at the coordinator, if it is possible and can be paid for."""
        cluster = state[len(self.slots)]
        lives = any(self._lives(state, one) for one in happening.about)
        if happening.needs_life and not lives:
            return
        budget = happening.budget if lives or not happening.about else None
        left = state[-1] if budget is None else self.spend(state[-1], PLACE[budget])
        if left < 0:
            return
        if happening.is_long:
            if any(face is not None and face.is_answered for face in (self.faces[state[one]] for one in self.slots)):
                # No answer is under way for as long as a session lasts.
                return
            # A session is long: nobody's last answer, as this model has it, was a moment ago.
            aged = (self.changed(number, "grow_old") if number else EMPTY for number in state[: len(self.slots)])
            state = (*aged, *state[len(self.slots) :])
        yield self._step(Label(happening.name, -1, happening), (*state[:-1], left), self.act(cluster, happening))

    def _lives(self, state: State, who: str) -> bool:
        """Whether a living process is this member, or has this name."""
        for slot in self.slots:
            face = self.faces[state[slot]]
            if face is not None and ((face.is_member and face.member_id == who) or face.name == who):
                return True
        return False

    # ---- what must hold of several processes ----

    def violation(self, state: State) -> str | None:
        """The rule that this state breaks."""
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
        a, b = self.faces[one], self.faces[other]
        if a is None or b is None or a.is_excused or b.is_excused:
            return None
        both = sorted(a.fetchable & b.fetchable)
        if both:
            return f"{both} is fetchable by {a.member_id} and {b.member_id}"
        if a.instance_id is not None and a.instance_id == b.instance_id and a.fetchable and b.fetchable:
            return f"instance id {a.instance_id} has two unfenced holders that both fetch: {a.member_id}, {b.member_id}"
        return None

    def _commit_violation(self, state: State, act: Act) -> str | None:
        """No commit is accepted of what another member fetches: not even from one that is fenced without knowing it."""
        for member_id, partitions in act.committed:
            for slot in self.slots:
                face = self.faces[state[slot]]
                if face is None:
                    continue
                both = sorted(face.fetchable & partitions)
                if face.member_id != member_id and not face.is_excused and both:
                    return f"{member_id} commits {both}, which {face.member_id} fetches"
        return None
