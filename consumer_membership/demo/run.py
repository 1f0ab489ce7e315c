"""Run the demo: the steps, the condition that each step must reach, the check, and the exit code.

One thread runs everything: while it waits for a condition, it receives reports, counts records and redraws the screen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TextIO, assert_never

from confluent_kafka import KafkaException

from consumer_membership.demo.application import Handled, MemberEvent, MemberStatus, Report
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
#: The interval between redraws of the screen.
_REDRAW_S = 0.15
#: Generous limits so that the demo cannot hang; the output has the measured times.
_JOIN_S = 30.0
_LEAVE_S = 15.0
_DRAIN_S = 20.0
#: The limit for moving a killed member's partitions after the end of its session.
_TAKEOVER_S = 20.0


class DemoError(Exception):
    """The demo cannot continue: a member ended unexpectedly, the stream stopped, or a step failed."""


class TooLateError(DemoError):
    """The condition of a step was not reached in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the command line.

    `hold_s` is the pause after each step in seconds. The defaults of `backend` and `version` are the first available
    backend and its default version.
    """

    backend: str | None = None
    version: str | None = None
    partitions: int = 12
    rate: int = 2_000
    hold_s: float = 3.0
    is_plain: bool = False


def run_demo(options: DemoOptions, out: TextIO) -> int:
    """Run the demo in the main thread; return 0 if the check passed, 1 if not, 130 after Ctrl-C or SIGTERM.

    All processes of the demo have ended when it returns.
    """
    try:
        with sigterm_as_ctrl_c():
            return _run(options, out)
    except KeyboardInterrupt:
        _print(out, "Stopped; all processes of the demo have ended.")
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would report the closed pipe again at exit.
        discard(out)
    except BrokerUnavailableError as error:
        _print(out, f"No broker: {error}")
    except (MockUnavailableError, DemoError) as error:
        _print(out, f"CHECK FAILED: {error}")
    except KafkaException as error:
        _print(out, f"CHECK FAILED: the broker rejected a request of the demo: {error}")
    return 1


def _run(options: DemoOptions, out: TextIO) -> int:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    screen = _screen(options, out)
    _print(out, "Starting a broker; the first start downloads it, which takes a minute or two ...")
    with demo_cluster(
        options.backend, options.version, topic=name, partitions=options.partitions, group=name
    ) as cluster:
        _print(
            out,
            f"{cluster.title} is ready at {cluster.bootstrap_servers}.",
            *cluster.remarks,
            f"{options.partitions} partitions, {options.rate:,} records/s; each member runs in its own process.",
            f"The session timeout of this demo is {cluster.session_timeout_s:.0f} s (Kafka's default: 45 s).",
        )
        result = _result(cluster, name, options, screen)
    _print(out, "", *result_lines(result))
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
        foreign=demonstration.foreign,
        unacknowledged=stream.unacknowledged,
    )


class Demonstration:
    """Runs the steps, counts the consumed records, and updates the screen."""

    def __init__(
        self, cluster: DemoCluster, members: Members, stream: Stream, screen: Screen, *, partitions: int
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._stream = stream
        self._screen = screen
        self._partitions = partitions
        self._acts: tuple[tuple[str, Callable[[], str]], ...] = (
            (f"one member joins and owns all {partitions} partitions", self._begin),
            ("two more members join", self._scale_out),
            ("member-2 leaves cleanly (SIGTERM)", self._leave),
            ("member-3 is killed (kill -9), member-4 replaces it", self._crash),
            ("the stream stops; drain and leave", self._end),
        )
        self._steps = [DemoStep(title=title) for title, _ in self._acts]
        #: By partition, the number after the highest one consumed.
        self._positions = {partition: partition for partition in range(partitions)}
        self._began = time.monotonic()
        self._redraw_at = 0.0
        self.records = SeenRecords(partitions)
        #: Consumed records that are not the demo's.
        self.foreign = 0

    def play(self, *, hold_s: float) -> None:
        """Run all steps, with a pause of `hold_s` seconds after each.

        Raises:
            DemoError: A step did not reach its condition.
        """
        for number, (_, act) in enumerate(self._acts):
            self._steps[number] = replace(self._steps[number], state=StepState.RUNNING)
            self._screen.begin_step(self._snapshot(), number)
            outcome = act()
            if number < len(self._acts) - 1:
                self._watch(hold_s)
            self._steps[number] = replace(self._steps[number], state=StepState.DONE, outcome=outcome)
            self._screen.end_step(self._snapshot(), number)

    # ---- the steps; each returns its result ----

    def _begin(self) -> str:
        self._members.start()
        self._stream.start()
        took = self._until(self._is_balanced, "the first member owns all partitions", _JOIN_S)
        return f"STABLE {took:.1f} s after its process started"

    def _scale_out(self) -> str:
        self._members.start()
        self._members.start()
        took = self._until(self._is_balanced, "three members share the partitions", _JOIN_S)
        return f"balanced {took:.1f} s after their processes started"

    def _leave(self) -> str:
        leaver = self._members.all[1]
        self._members.leave(leaver)
        took = self._until(self._is_balanced, "the other members own member-2's partitions", _LEAVE_S)
        self._until(lambda: leaver.has_ended, "member-2's process has ended", _LEAVE_S)
        return f"balanced {took:.1f} s after the signal"

    def _crash(self) -> str:
        self._members.kill(self._members.all[2])
        session_s = self._cluster.session_timeout_s
        text = f"member-3  killed; its session ends after {session_s:.0f} s"
        self._screen.add_event(time.monotonic() - self._began, text)
        self._members.start()
        took = self._until(self._is_balanced, "the other members own member-3's partitions", session_s + _TAKEOVER_S)
        return f"balanced {took:.1f} s after the kill (session: {session_s:.0f} s)"

    def _end(self) -> str:
        self._stream.stop()
        try:
            took = self._until(lambda: self.records.seen >= self._stream.produced, "every record is consumed", _DRAIN_S)
            outcome = f"drained {took:.1f} s after the last record"
        except TooLateError as late:
            # The check reports the missing records.
            outcome = str(late)
        for member in self._active():
            self._members.leave(member)
        self._until(lambda: all(each.has_ended for each in self._members.all), "all processes have ended", _LEAVE_S)
        return outcome

    # ---- waiting ----

    def _active(self) -> list[MemberProcess]:
        """Return the members that should be in the group."""
        return [member for member in self._members.all if member.is_active]

    def _is_balanced(self) -> bool:
        """Whether all active members are STABLE and each partition has exactly one owner."""
        active = self._active()
        owned = sorted(partition for member in active for partition in member.owned)
        return all(member.is_settled for member in active) and owned == list(range(self._partitions))

    def _until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> float:
        """Process reports until the condition is true; return the seconds that it took.

        Raises:
            TooLateError: The condition was not reached in time.
            DemoError: A member or the stream failed.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout_s:
                members = "".join(f"\n  {member_line(row)}" for row in self._snapshot().members)
                raise TooLateError(f"timeout of {timeout_s:.0f} s exceeded while waiting until {what}{members}")
            self._process_reports(_REDRAW_S)
        return time.monotonic() - began

    def _watch(self, seconds: float) -> None:
        """Process reports for this number of seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._process_reports(min(left, _REDRAW_S))

    def _process_reports(self, timeout_s: float) -> None:
        received = self._members.next_report(timeout_s)
        if received is not None:
            self._process_report(*received)
        if self._stream.refusal is not None:
            raise DemoError(f"the producer failed: {self._stream.refusal}")
        if (now := time.monotonic()) >= self._redraw_at:
            self._redraw_at = now + _REDRAW_S
            self._screen.draw(self._snapshot())

    def _process_report(self, member: MemberProcess, report: Report | Ended) -> None:
        match report:
            case Handled():
                self.foreign += report.foreign
                for run in report.runs:
                    self._count(member, run)
            case MemberEvent():
                # All processes use the machine's monotonic clock, so their times are comparable.
                self._screen.add_event(report.at - self._began, f"{member.name}  {report.text}")
            case Ended():
                if report.exit_code != 0 and not member.is_killed:
                    message = f"{member.name} ended unexpectedly, exit code {report.exit_code}\n{report.last_output}"
                    raise DemoError(message)
            case MemberStatus():
                pass  # stored in the member
            case _:
                assert_never(report)

    def _count(self, member: MemberProcess, run: Run) -> None:
        self.records.add(member.index, run)
        member.handled += run.length
        partition = partition_of(run.first, self._partitions)
        after = run.first + run.length * self._partitions
        self._positions[partition] = max(self._positions[partition], after)

    # ---- output ----

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
        _print(out, f"Printing lines instead of a table, because rich is not installed: {install_command('cli')}")
        return LineScreen(out)
    return table_on(out)


def _print(out: TextIO, *lines: str) -> None:
    out.writelines(f"{line}\n" for line in lines)
    out.flush()
