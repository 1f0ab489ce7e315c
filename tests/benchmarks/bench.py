"""The parts that all figures share: the broker, the two sides, the number of rounds, topics, and the order of turns."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import Check, Series
from tests.benchmarks.workers import bulk, stream
from tests.support.kafka import create_topic, unique, wait_for_logs

PARTITIONS = 12
"""The default number of partitions of a topic."""

HEARTBEAT_S = 5.0
"""The broker's group.consumer.heartbeat.interval.ms, by default. Random phases lie within it."""

_RAW_MODULE = "confluent_kafka"
_SETTLE_S, _QUICK_SETTLE_S = 16.0, 8.0
_FILL_TIMEOUT_S = 180.0
_FEWEST_FILLED_PER_S = 40_000
_GROUP_PREFIXES = {True: "bench-ours", False: "bench-raw"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One side of a comparison; two sides are never equal.

    Attributes:
        label: Its name in tables.
        module: The module of its `Consumer`.
        config: Its configuration, in addition to the configuration of every side.
        is_ours: Whether it is the measured side; the other sides are compared with it.
    """

    label: str
    module: str
    config: Mapping[str, str]
    is_ours: bool = False

    def series(self, what: str, unit: str) -> Series:
        """Return an empty series for this side."""
        return Series(label=f"{what}, {self.label}", unit=unit, is_ours=self.is_ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure: its series, its bounds, and notes for the reader.

    The harness (`table.measured`) adds the name and the machine's load at the beginning.
    """

    title: str
    series: tuple[Series, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    name: str = ""
    began_load: float = 0.0


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run, which each figure receives.

    Attributes:
        bootstrap: The broker.
        subject: The module of our side; confluent_kafka itself measures the harness.
        is_quick: Whether to take few rounds and little data.
        rounds: How many rounds to take instead of each figure's own number.
        seed: The seed of all random phases and choices.
        cells: The names of the cells to run, for figures that have cells; empty: all cells.
    """

    bootstrap: str
    subject: str
    is_quick: bool
    rounds: int | None
    seed: int
    cells: tuple[str, ...] = ()
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - phases, not secrets

    def ours(self, label: str = "ours", **config: str) -> Side:
        """Return our side, with its default protocol; underscores in property names mean dots.

        The broker offers the consumer protocol, so our side chooses that protocol; raw's default is the classic one.
        Our callbacks are incremental as raw's are with the consumer protocol, so that retained partitions continue.
        """
        own = _dotted(config)
        if self.subject == _RAW_MODULE:
            own = {"group.protocol": "consumer", **own}
            own.pop("membership.threads", None)
        elif "group.protocol" not in own:
            own["rebalance.callbacks"] = "incremental"
        return Side(label=label, module=self.subject, config=own, is_ours=True)

    def raw(self, label: str = "raw", **config: str) -> Side:
        """Return confluent_kafka's side; underscores in property names mean dots."""
        return Side(label=label, module=_RAW_MODULE, config={"group.protocol": "consumer", **_dotted(config)})

    def count(self, full: int, quick: int) -> int:
        """Return the number of rounds."""
        return self.rounds or (quick if self.is_quick else full)

    @property
    def settle_s(self) -> float:
        """The time without changes before the measured change of a group.

        A member may heartbeat quickly for a while after a change, and the figures measure a group that was stable.
        """
        return _QUICK_SETTLE_S if self.is_quick else _SETTLE_S

    def lanes(self, rounds: int, lanes: int) -> list[tuple[int, float]]:
        """Divide the rounds among lanes that run at the same time; all sides of a lane share its seed.

        The phases are then equal on both sides.
        """
        return [(rounds // lanes + (lane < rounds % lanes), self.chance.random()) for lane in range(lanes)]

    def own_random(self, seed: float) -> random.Random:
        """Return a random generator for one thread or side, independent of the progress of the others."""
        return random.Random(seed)  # noqa: S311 - phases, not secrets

    def group(self, side: Side) -> str:
        """Return a new group name, which identifies the group's side."""
        return unique(_GROUP_PREFIXES[side.is_ours])

    def groups(self) -> dict[str, str]:
        """Return the groups of this and of earlier figures on the broker, each with its type."""
        # Without a reference to the client, it is closed before the response arrives.
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = admin.list_consumer_groups().result()
        for error in found.errors:
            log(f"groups could not be listed: {error}")
        prefixes = tuple(_GROUP_PREFIXES.values())
        return {one.group_id: one.type.name.lower() for one in found.valid if one.group_id.startswith(prefixes)}

    def config(self, side: Side, group: str | None = None) -> dict[str, str]:
        """Return a side's complete configuration, for a new group if none is named."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": group or self.group(side),
            "auto.offset.reset": "earliest",
            **side.config,
        }

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """Create a topic, and return when the broker has made all its logs."""
        topic = create_topic(self.bootstrap, unique(f"bench-{name}"), partitions)
        wait_for_logs(self.bootstrap, topic, partitions)
        return topic

    def filled_topic(
        self, name: str, records: int, value_bytes: int = 100, partitions: int = PARTITIONS, keys: int = 0
    ) -> str:
        """Create a topic with this number of records, evenly distributed over the partitions or keys.

        Raises:
            WorkerFailedError: The broker did not acknowledge all records.
        """
        topic = self.topic(name, partitions)
        job = bulk.Job(
            bootstrap=self.bootstrap,
            topic=topic,
            partitions=partitions,
            total=records,
            value_bytes=value_bytes,
            keys=keys,
        )
        with Worker("bulk", job) as worker:
            filled = worker.expect("filled", max(_FILL_TIMEOUT_S, records / _FEWEST_FILLED_PER_S))
            worker.wait()
        if filled.facts["acknowledged"] != records:
            count, errors = filled.facts["acknowledged"], filled.facts["refused"]
            raise WorkerFailedError(f"the broker acknowledged {count} of {records} records: {errors}")
        return topic

    @contextmanager
    def streaming(
        self,
        topic: str,
        ticks_per_s: float,
        total: int = 0,
        partitions: int = PARTITIONS,
        burst: int = 1,
        *,
        spread: bool = False,
    ) -> Iterator[Worker]:
        """Produce a steady stream into a topic until the context ends (`workers.stream.Job`).

        Raises:
            WorkerFailedError: A record was not acknowledged.
        """
        job = stream.Job(
            bootstrap=self.bootstrap,
            topic=topic,
            partitions=partitions,
            ticks_per_s=ticks_per_s,
            total=total,
            burst=burst,
            spread=spread,
        )
        with Worker("stream", job) as worker:
            worker.expect("streaming", 30.0)
            yield worker
            worker.end()
            streamed = worker.expect("streamed", 0.0).facts
            if streamed["unsent"] or streamed["refused"]:
                raise WorkerFailedError(f"the broker did not acknowledge the stream: {streamed}")

    def in_turns(self, rounds: int, *turns: Callable[[], None]) -> None:
        """Run the turns round by round; each round starts with a different turn."""
        for number in range(rounds):
            for turn in (*turns[number % len(turns) :], *turns[: number % len(turns)]):
                turn()


@contextmanager
def counted_in(*series: Series) -> Iterator[None]:
    """Count a measurement that fails as failed in its series, and continue the run."""
    try:
        yield
    except WorkerFailedError as error:
        log(f"FAILED {series[0].label}: {error}")
        for one in series:
            one.fail(str(error))


def types_of(groups: Mapping[str, str]) -> str:
    """Return as text how many groups of which type each side created."""
    counts = Counter((group.split("-")[1], kind) for group, kind in groups.items())
    entries = [f"{side} {count} {kind}" for (side, kind), count in sorted(counts.items())]
    return f"groups on the broker, by their type: {', '.join(entries)}"


def log(line: str) -> None:
    """Write a line about the progress of the run to stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")  # one write, because lanes log at the same time


def _dotted(config: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in config.items()}
