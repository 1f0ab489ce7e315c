"""The demo from its start to its exit code: what happens to the group, step by step, and what each step must lead to.

One thread plays it: whatever a step waits for, it waits here, hears the members, counts their records and has the
screen redrawn.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TextIO, assert_never

from confluent_kafka import KafkaException

from consumer_membership.demo.application import Handled, Happened, Report, Standing
from consumer_membership.demo.brokers import DemoCluster, demo_cluster, offsets_at_end
from consumer_membership.demo.members import Ended, MemberProcess, Members
from consumer_membership.demo.mock import MockUnavailableError
from consumer_membership.demo.records import CheckResult, Run, SeenRecords, Stream, partition_of
from consumer_membership.demo.screen import (
    DemoStep,
    GroupSnapshot,
    LineScreen,
    Screen,
    StepState,
    discard,
    member_line,
    result_lines,
)
from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.foreground import sigterm_as_ctrl_c
from consumer_membership.installation import install_command

_INTERRUPTED = 130
#: How often the screen is redrawn.
_REDRAW_S = 0.15
#: Generous: bounds against hanging. What a step really takes is shown.
_JOIN_S = 30.0
_LEAVE_S = 15.0
_DRAIN_S = 20.0
#: How long after the end of a dead member's session its partitions may take to move.
_TAKEOVER_S = 20.0


class DemoError(Exception):
    """The demo cannot go on: a member ended by itself, the stream broke off, a step came to nothing."""


class TooLateError(DemoError):
    """What a step waits for did not come in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line may choose.

    `hold_s` is how long each step's result is looked at; `backend` and `version` say which broker, None the first that
    can be had and its default version.
    """

    backend: str | None = None
    version: str | None = None
    partitions: int = 12
    rate: int = 2_000
    hold_s: float = 3.0
    is_plain: bool = False


def run_demo(options: DemoOptions, out: TextIO) -> int:
    """Run the demo in the main thread: 0 if the check holds, 1 if not, 130 after Ctrl-C or SIGTERM.

    However it ends, nothing of it goes on running.
    """
    try:
        with sigterm_as_ctrl_c():
            return _run(options, out)
    except KeyboardInterrupt:
        _say(out, "Stopped; nothing is left running.")
        return _INTERRUPTED
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain about the same pipe once more at its exit.
        discard(out)
    except BrokerUnavailableError as error:
        _say(out, f"No broker: {error}")
    except (MockUnavailableError, DemoError) as error:
        _say(out, f"CHECK FAILED: {error}")
    except KafkaException as error:
        _say(out, f"CHECK FAILED: the broker refused a request of the demo: {error}")
    return 1


def _run(options: DemoOptions, out: TextIO) -> int:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    screen = _screen(options, out)
    _say(out, "Starting a broker; the first time on a machine it is fetched (a minute or two) ...")
    with demo_cluster(
        options.backend, options.version, topic=name, partitions=options.partitions, group=name
    ) as cluster:
        _say(
            out,
            f"{cluster.title} is ready at {cluster.bootstrap_servers}.",
            *cluster.remarks,
            f"{options.partitions} partitions, {options.rate:,} records/s; each member is a process of its own.",
            f"A silent member is dead after {cluster.session_timeout_s:.0f} s here (Kafka's default: 45 s).",
        )
        result = _result(cluster, name, options, screen)
    _say(out, "", *result_lines(result))
    return 0 if result.holds else 1


def _result(cluster: DemoCluster, name: str, options: DemoOptions, screen: Screen) -> CheckResult:
    partitions, servers = options.partitions, cluster.bootstrap_servers
    stream = Stream(servers, name, partitions=partitions, rate=options.rate)
    with closing(stream), screen:
        members = Members(servers, group=name, topic=name, partitions=partitions)
        demonstration = Demonstration(cluster, members, stream, screen, partitions=partitions)
        with members:
            demonstration.play(hold_s=options.hold_s)
    committed, end = offsets_at_end(servers, group=name, topic=name, partitions=partitions)
    return demonstration.records.check(
        produced=stream.produced,
        killed=[member.index for member in members.all if member.is_killed],
        committed=committed,
        end=end,
        strange=demonstration.strange,
        unacknowledged=stream.unacknowledged,
    )


class Demonstration:
    """Plays the steps, counts what the members saw, and has all of it shown."""

    def __init__(
        self, cluster: DemoCluster, members: Members, stream: Stream, screen: Screen, *, partitions: int
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._stream = stream
        self._screen = screen
        self._partitions = partitions
        self._acts: tuple[tuple[str, Callable[[], str]], ...] = (
            (f"one member takes all {partitions} partitions", self._begin),
            ("two more members join", self._scale_out),
            ("member-2 leaves cleanly (SIGTERM)", self._leave),
            ("member-3 dies (kill -9), member-4 replaces it", self._crash),
            ("the stream stops; drain and leave", self._end),
        )
        self._steps = [DemoStep(title=title) for title, _ in self._acts]
        #: By partition, the number that comes after the highest one seen.
        self._positions = {partition: partition for partition in range(partitions)}
        self._began = time.monotonic()
        self._redraw_at = 0.0
        self.records = SeenRecords(partitions)
        #: Records that members saw and that are not the demo's.
        self.strange = 0

    def play(self, *, hold_s: float) -> None:
        """Play all steps; after each of them, `hold_s` seconds to look at it.

        Raises:
            DemoError: the group did not come to what a step is to show.
        """
        for number, (_, act) in enumerate(self._acts):
            self._steps[number] = replace(self._steps[number], state=StepState.RUNNING)
            self._screen.begin_step(self._snapshot(), number)
            outcome = act()
            if number < len(self._acts) - 1:
                self._watch(hold_s)
            self._steps[number] = replace(self._steps[number], state=StepState.DONE, outcome=outcome)
            self._screen.end_step(self._snapshot(), number)

    # ---- the steps; each tells what it showed ----

    def _begin(self) -> str:
        self._members.start()
        self._stream.start()
        took = self._until(self._is_balanced, "the first member owns everything", _JOIN_S)
        return f"STABLE {took:.1f} s after its process started"

    def _scale_out(self) -> str:
        self._members.start()
        self._members.start()
        took = self._until(self._is_balanced, "three members share the partitions", _JOIN_S)
        return f"balanced {took:.1f} s after their processes started"

    def _leave(self) -> str:
        leaver = self._members.all[1]
        self._members.leave(leaver)
        took = self._until(self._is_balanced, "the others own what member-2 gave up", _LEAVE_S)
        self._until(lambda: leaver.has_ended, "member-2's process ends", _LEAVE_S)
        return f"balanced {took:.1f} s after the signal"

    def _crash(self) -> str:
        self._members.kill(self._members.all[2])
        session_s = self._cluster.session_timeout_s
        text = f"member-3  killed; the broker waits for the end of its session, {session_s:.0f} s"
        self._screen.tell(time.monotonic() - self._began, text)
        self._members.start()
        took = self._until(self._is_balanced, "the others own what member-3 had", session_s + _TAKEOVER_S)
        return f"balanced {took:.1f} s after the kill (session: {session_s:.0f} s)"

    def _end(self) -> str:
        self._stream.stop()
        try:
            took = self._until(lambda: self.records.seen >= self._stream.produced, "every record is seen", _DRAIN_S)
            outcome = f"drained {took:.1f} s after the last record"
        except TooLateError as late:
            # The check says which records are missing.
            outcome = str(late)
        for member in self._active():
            self._members.leave(member)
        self._until(lambda: all(each.has_ended for each in self._members.all), "all members' processes end", _LEAVE_S)
        return outcome

    # ---- waiting ----

    def _active(self) -> list[MemberProcess]:
        """The members that are meant to be in the group."""
        return [member for member in self._members.all if member.is_active]

    def _is_balanced(self) -> bool:
        """Whether all active members are STABLE and own every partition once."""
        active = self._active()
        owned = sorted(partition for member in active for partition in member.owned)
        return all(member.is_settled for member in active) and owned == list(range(self._partitions))

    def _until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> float:
        """Let things happen until this holds; how many seconds that took.

        Raises:
            TooLateError: it did not come in time.
            DemoError: something went wrong meanwhile.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout_s:
                standings = "".join(f"\n  {member_line(row)}" for row in self._snapshot().members)
                raise TooLateError(f"{what}: not within {timeout_s:.0f} s{standings}")
            self._let_happen(_REDRAW_S)
        return time.monotonic() - began

    def _watch(self, seconds: float) -> None:
        """Let things happen for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._let_happen(min(left, _REDRAW_S))

    def _let_happen(self, timeout_s: float) -> None:
        heard = self._members.next_report(timeout_s)
        if heard is not None:
            self._take_note(*heard)
        if self._stream.refusal is not None:
            raise DemoError(f"the stream of records broke off: {self._stream.refusal}")
        if (now := time.monotonic()) >= self._redraw_at:
            self._redraw_at = now + _REDRAW_S
            self._screen.draw(self._snapshot())

    def _take_note(self, member: MemberProcess, report: Report | Ended) -> None:
        match report:
            case Handled():
                self.strange += report.strange
                for run in report.runs:
                    self._count(member, run)
            case Happened():
                # The clock is the machine's, so the times of several processes compare.
                self._screen.tell(report.at - self._began, f"{member.name}  {report.text}")
            case Ended():
                if report.exit_code != 0 and not member.is_killed:
                    message = f"{member.name} ended by itself, exit code {report.exit_code}\n{report.last_output}"
                    raise DemoError(message)
            case Standing():
                pass  # the member has it
            case _:
                assert_never(report)

    def _count(self, member: MemberProcess, run: Run) -> None:
        self.records.add(member.index, run)
        member.handled += run.length
        partition = partition_of(run.first, self._partitions)
        after = run.first + run.length * self._partitions
        self._positions[partition] = max(self._positions[partition], after)

    # ---- what is shown ----

    def _snapshot(self) -> GroupSnapshot:
        produced = self._stream.produced
        for member in self._members.all:
            lags = (len(range(self._positions[one], produced, self._partitions)) for one in member.owned)
            member.lag = sum(lags)
        return GroupSnapshot(
            at=time.monotonic() - self._began,
            title=f"{self._cluster.title} at {self._cluster.bootstrap_servers}",
            remarks=self._cluster.remarks,
            partitions=self._partitions,
            steps=tuple(self._steps),
            members=tuple(self._members.all),
            produced=produced,
            seen=self.records.seen,
            twice=self.records.twice,
        )


def _screen(options: DemoOptions, out: TextIO) -> Screen:
    if options.is_plain or not out.isatty():
        return LineScreen(out)
    try:
        from consumer_membership.demo.table_screen import table_on  # noqa: PLC0415 - needs the extra
    except ImportError:
        _say(out, f"Lines instead of a table, since rich is missing: {install_command('cli')}")
        return LineScreen(out)
    return table_on(out)


def _say(out: TextIO, *lines: str) -> None:
    out.writelines(f"{line}\n" for line in lines)
    out.flush()
