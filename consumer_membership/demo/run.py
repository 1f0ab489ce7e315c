"""The demo from its start to its exit code."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TextIO

from confluent_kafka import KafkaException

from consumer_membership.demo.cluster import Cluster, demo_cluster, offsets_at_end
from consumer_membership.demo.crew import Crew
from consumer_membership.demo.ledger import Verdict
from consumer_membership.demo.mock import MockUnavailableError
from consumer_membership.demo.scenario import play, titles
from consumer_membership.demo.screen import PlainScreen, Screen, discard, verdict_lines
from consumer_membership.demo.stage import ScenarioError, Stage
from consumer_membership.demo.stream import Stream
from consumer_membership.devbroker import BrokerUnavailableError

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line may choose.

    `hold_s` is how long each step's result is looked at; `way` and `version` say which broker, None the first that
    can be had and its default version.
    """

    way: str | None = None
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
        with _sigterm_as_ctrl_c():
            return _run(options, out)
    except KeyboardInterrupt:
        _say(out, "Stopped; nothing is left running.")
        return _INTERRUPTED
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain about the same pipe once more at its exit.
        discard(out)
    except BrokerUnavailableError as error:
        _say(out, f"No broker: {error}")
    except (MockUnavailableError, ScenarioError) as error:
        _say(out, f"CHECK FAILED: {error}")
    except KafkaException as error:
        _say(out, f"CHECK FAILED: the broker refused a request of the demo: {error}")
    return 1


def _run(options: DemoOptions, out: TextIO) -> int:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    screen = _screen(options, out)
    _say(out, "Starting a broker; the first time on a machine it is fetched (a minute or two) ...")
    with demo_cluster(options.way, options.version, topic=name, partitions=options.partitions, group=name) as cluster:
        _introduce(cluster, options, out)
        verdict = _play(cluster, name, options, screen)
    _say(out, "")
    for line in verdict_lines(verdict):
        _say(out, line)
    return 0 if verdict.holds else 1


def _introduce(cluster: Cluster, options: DemoOptions, out: TextIO) -> None:
    _say(out, f"{cluster.title} is ready at {cluster.bootstrap_servers}.")
    for remark in cluster.remarks:
        _say(out, remark)
    _say(out, f"{options.partitions} partitions, {options.rate:,} records/s; each member is a process of its own.")
    _say(out, f"A silent member is dead after {cluster.session_timeout_s:.0f} s here (Kafka's default: 45 s).")


def _play(cluster: Cluster, name: str, options: DemoOptions, screen: Screen) -> Verdict:
    partitions = options.partitions
    stream = Stream(cluster.bootstrap_servers, name, partitions=partitions, rate=options.rate)
    with closing(stream), screen:
        crew = Crew(cluster.bootstrap_servers, group=name, topic=name, partitions=partitions)
        stage = Stage(cluster, crew, stream, screen, partitions=partitions, steps=titles(partitions))
        with crew:
            play(stage, hold_s=options.hold_s)
    committed, end = offsets_at_end(cluster.bootstrap_servers, group=name, topic=name, partitions=partitions)
    return stage.ledger.check(
        produced=stream.produced,
        killed=[member.index for member in crew.members if member.is_killed],
        committed=committed,
        end=end,
        strange=stage.strange,
        unacknowledged=stream.unacknowledged,
    )


def _screen(options: DemoOptions, out: TextIO) -> Screen:
    if options.is_plain or not out.isatty():
        return PlainScreen(out)
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra

        from consumer_membership.demo.live import LiveScreen  # noqa: PLC0415 - needs the extra
    except ImportError:
        _say(out, "Lines instead of a table, since rich is missing: pip install 'consumer-membership[cli]'")
        return PlainScreen(out)
    return LiveScreen(Console(file=out))


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt for both signals, so that everything is undone the same way.

    For SIGINT too, since a shell ignores it for what it runs in the background.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(out: TextIO, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()
