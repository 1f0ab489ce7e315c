"""The table of figures: the compared sides, the workers, the unit and the bounds of each figure.

`measured` runs a row. The module of a figure only measures: it receives the run and returns series, checks and notes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.benchmarks.bench import Bench, Figure, types_of
from tests.benchmarks.figures import (
    aio,
    assignors,
    bounce,
    classic,
    classic_crash,
    codec,
    crash,
    crash_rounds,
    group_members,
    growth,
    guardian,
    hand_over,
    handlers,
    handlers_costs,
    handlers_crash,
    handoffs,
    idle,
    imports,
    many,
    memory,
    observability,
    overlap,
    rolling,
    scale_out,
    secured_start,
    spark,
    spark_growth,
    spark_recovery,
    spark_scale,
    spark_source,
    standstill,
    start,
    throughput,
    waiting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        name: Its name on the command line and in the results.
        measure: The function that measures it.
        compares: The sides.
        workers: The programs of `tests.benchmarks.workers` that it runs, without those that fill topics.
        unit: The unit of its main series.
        bounds: The bounds that it checks.
        is_by_name: Whether it runs only if it is named, because it needs pyspark or a broker of its own, or is long.
    """

    name: str
    measure: Callable[[Bench], Figure]
    compares: str
    workers: tuple[str, ...] = ()
    unit: str
    bounds: tuple[str, ...]
    is_by_name: bool = False


OURS_RAW = "ours, raw"
_BACK = (*(f"{name} at most {bounce.FACTOR} x raw" for name in ("median", "worst")), "0 partitions moved")
_FASTER = tuple(f"{one}: at least {one.factor} x raw" for one in throughput.COMPARISONS)

ROWS = (
    Row(
        name="import",
        measure=imports.run,
        compares="ours, raw; quiet and busy machine",
        unit="s",
        bounds=tuple(f"{load}: median at most raw + {more_s} s" for load, more_s in imports.SLOWER_BY_S.items()),
    ),
    Row(
        name="codec",
        measure=codec.run,
        compares="ours, kio",
        unit="s",
        bounds=(f"heartbeat of 1,000 partitions: median at most {codec.HEARTBEAT_S} s",),
    ),
    Row(
        name="start",
        measure=start.run,
        compares="ours, raw, raw classic",
        workers=("first_record",),
        unit="s",
        bounds=(f"median at most raw + {start.SLOWER_BY_S} s",),
    ),
    Row(
        name="throughput",
        measure=throughput.run,
        compares=OURS_RAW,
        workers=("drain",),
        unit="msg/s",
        bounds=_FASTER,
    ),
    Row(
        name="memory",
        measure=memory.run,
        compares=OURS_RAW,
        workers=("footprint",),
        unit="MiB",
        bounds=(
            f"first consumer: at most raw + {memory.FIRST_MIB} MiB",
            f"each further one: at most raw + {memory.FURTHER_MIB} MiB",
        ),
    ),
    Row(
        name=growth.NAME,
        measure=growth.run,
        compares="ours, raw; 12 to 200 members, 120 to 10,000 partitions",
        workers=("portion",),
        unit="s",
        bounds=tuple(f"48 members, {what}: median at most {limit_s:g} s" for what, limit_s in growth.BOUNDS.items()),
        is_by_name=True,
    ),
    Row(
        name=many.NAME,
        measure=many.run,
        compares="ours, raw, ours with own threads; polled rarely and often",
        workers=("many",),
        unit="%",
        bounds=(
            f"idle: at most {many.CPU_FACTOR} x raw",
            f"threads: at most raw + {many.MORE_THREADS}",
            f"file descriptors: at most raw + {many.MORE_FILES}",
        ),
        is_by_name=True,
    ),
    Row(
        name=group_members.NAME,
        measure=group_members.run,
        compares="ours, without fetching",
        workers=("group_members",),
        unit="%",
        bounds=(
            f"p99 of heartbeats at most {group_members.LATE_PERCENT:.0f} % of the interval late",
            f"at most {group_members.MOST_CPU_PERCENT:.0f} % of a core",
            f"at most {group_members.MOST_KB:.0f} kB for each member",
        ),
        is_by_name=True,
    ),
    Row(
        name="idle",
        measure=idle.run,
        compares=OURS_RAW,
        workers=("member",),
        unit="%",
        bounds=(
            f"at most {idle.MOST_PER_INTERVAL} heartbeats an interval",
            f"at most {idle.MOST_CPU_PERCENT} % of a core",
            f"{idle.RECORDS_PER_S} records/s: median at most {idle.FLOWING_FACTOR:g} x raw",
        ),
    ),
    Row(
        name="scale-out",
        measure=scale_out.run,
        compares="ours, raw, ours with a short interval, raw classic; idle and under load",
        workers=("member",),
        unit="s",
        bounds=(
            f"median and p90 at most raw + {scale_out.SLOWER_BY_S} s",
            f"short interval: p90 at most {scale_out.QUICK_CADENCE_S} s",
        ),
    ),
    Row(
        name="standstill",
        measure=standstill.run,
        compares=OURS_RAW,
        workers=("member",),
        unit="s",
        bounds=(f"p90 at most {standstill.LIMIT_S} s",),
    ),
    Row(
        name="handoffs",
        measure=handoffs.run,
        compares=OURS_RAW,
        workers=("member",),
        unit="records",
        bounds=("0 lost", "0 twice"),
    ),
    Row(
        name="crash",
        measure=crash.run,
        compares="ours, raw classic, raw",
        workers=("instance",),
        unit="s",
        bounds=(
            f"{crash.FROM_START}: median at most raw classic + {crash.SLOWER_BY_S} s, worst {crash.WORST_S} s",
            f"{crash.FROM_CONSTRUCTOR}: median at most {crash.CONSTRUCTOR_MEDIAN_S} s",
            "0 partitions moved",
        ),
    ),
    Row(
        name="bounce",
        measure=bounce.run,
        compares="ours, raw; 3 and 20 members",
        workers=("instance",),
        unit="s",
        bounds=_BACK,
    ),
    Row(
        name="crash-rounds",
        measure=crash_rounds.run,
        compares="ours",
        workers=("committer",),
        unit="records",
        bounds=("0 lost", f"at most {crash_rounds.BATCH} twice for each kill", "0 twice otherwise", "0 moved"),
    ),
    Row(
        name="guardian",
        measure=guardian.run,
        compares="ours with a guardian, also with a short interval; ours and raw without",
        workers=("member",),
        unit="s",
        bounds=(f"at most {guardian.LIMIT_S} s", f"short interval: at most {guardian.QUICK_LIMIT_S} s"),
    ),
    Row(
        name="hand-over",
        measure=hand_over.run,
        compares="ours: pool, wait, restarted; raw restarted",
        workers=("member",),
        unit="s",
        bounds=(
            f"pool, wait: median at most {hand_over.MEDIAN_S} s, worst {hand_over.WORST_S} s",
            "pool, wait: 0 repeated, 0 lost",
        ),
    ),
    Row(
        name=rolling.NAME,
        measure=rolling.run,
        compares="ours: hand-over, pool, static, dynamic; raw, Java: static, dynamic; two sizes, two rates",
        workers=("ownership",),
        unit="s",
        bounds=(
            f"hand-over: median at most {rolling.MEDIAN_S} s, worst {rolling.WORST_S} s",
            "hand-over, pool: 0 repeated, 0 lost, 0 moved at other processes",
        ),
        is_by_name=True,
    ),
    Row(
        name="overlap",
        measure=overlap.run,
        compares="ours with and without leases, confluent-kafka, Java; faults of the older owner",
        workers=("owner",),
        unit="ms",
        bounds=("with leases: 0 ms in all rounds, except a takeover by a second process with the same id",),
        is_by_name=True,
    ),
    Row(
        name="waiting",
        measure=waiting.run,
        compares="1, 10 and 100 members that wait for an instance id",
        workers=("member", "waiting"),
        unit="% of a core",
        bounds=(f"10 waiting: broker CPU at most {10 * waiting.MOST_PERCENT:.0f} %",),
    ),
    Row(
        name="assignors",
        measure=assignors.run,
        compares="sticky, cooperative-sticky; sizes of groups",
        unit="s",
        bounds=(f"largest group: at most {assignors.LIMIT_S} s", "shares differ by at most 1"),
    ),
    Row(
        name="classic",
        measure=classic.run,
        compares="ours, raw; range and cooperative-sticky; idle and under load",
        workers=("member",),
        unit="s",
        bounds=(f"medians at most {classic.FACTOR} x raw", "0 partitions revoked or stopped that did not move"),
    ),
    Row(
        name="classic-crash",
        measure=classic_crash.run,
        compares=OURS_RAW,
        workers=("instance",),
        unit="s",
        bounds=(f"medians at most {classic_crash.FACTOR} x raw", "0 partitions moved"),
    ),
    Row(
        name="secured-start",
        measure=secured_start.run,
        compares="ours, raw; TLS, SASL, both",
        workers=("first_record",),
        unit="s",
        bounds=(f"median at most raw + {start.SLOWER_BY_S} s",),
        is_by_name=True,
    ),
    Row(
        name="aio",
        measure=aio.run,
        compares="ours, confluent-kafka, aiokafka",
        workers=("aio_reader",),
        unit="msg/s",
        bounds=tuple(f"{task}: at least {factor} x {than}" for task, (than, factor) in aio.FACTORS.items()),
    ),
    Row(
        name=observability.NAME,
        measure=observability.run,
        compares="ours with all features on and off",
        workers=("drain", "member", "repeated_calls"),
        unit="msg/s",
        bounds=(
            f"on / off: at least {observability.LEAST_RATIO}",
            f"idle: at most {observability.MOST_CPU_PERCENT} % and {observability.MOST_MIB} MiB more",
            f"health(): at most {observability.MOST_US} µs",
        ),
    ),
    Row(
        name="handlers",
        measure=handlers.run,
        compares=", ".join(handlers.PROGRAMS),
        workers=("handlers", "faststream_handlers"),
        unit="msg/s",
        bounds=(f"waiting handlers: at least {handlers.FACTOR} x Parallel Consumer", "0 records out of order"),
        is_by_name=True,
    ),
    Row(
        name="handlers-crash",
        measure=handlers_crash.run,
        compares=", ".join(handlers_crash.PROGRAMS),
        workers=("handlers", "faststream_handlers"),
        unit="records",
        bounds=("0 lost",),
        is_by_name=True,
    ),
    Row(
        name="handlers-costs",
        measure=handlers_costs.run,
        compares="Processor, poll loop; AsyncProcessor, asyncio alone",
        workers=("handlers", "stuck_key"),
        unit="µs/msg",
        bounds=(
            f"one at a time: at most poll loop + {handlers_costs.MORE_US} µs",
            f"coroutines that wait: at least {handlers_costs.SHARE} of the ideal, and of asyncio alone",
            f"stuck key: at most poll loop + {handlers_costs.MORE_MIB} MiB",
        ),
        is_by_name=True,
    ),
    Row(
        name=spark.NAME,
        measure=spark.run,
        compares="ours, spark-sql-kafka",
        workers=("spark_turns",),
        unit="s",
        bounds=tuple(f"{one}: at least {one.factor} x as fast" for one in spark.COMPARISONS),
        is_by_name=True,
    ),
    Row(
        name=spark_source.NAME,
        measure=spark_source.run,
        compares="ours, spark-sql-kafka",
        workers=("spark_turns",),
        unit="s",
        bounds=tuple(f"{one}: at least {one.factor} x as fast" for one in spark_source.COMPARISONS),
        is_by_name=True,
    ),
    Row(
        name=spark_recovery.NAME,
        measure=spark_recovery.run,
        compares="worker and executor killed; Parquet, PostgreSQL, Kafka",
        workers=("spark_run",),
        unit="s",
        bounds=("0 lost", "rows exactly once", f"replacement's first record: at most {spark_recovery.LIMIT_S} s"),
        is_by_name=True,
    ),
    Row(
        name=spark_growth.NAME,
        measure=spark_growth.run,
        compares="ours; records and tasks",
        workers=("spark_turns",),
        unit="s",
        bounds=("0 failures",),
        is_by_name=True,
    ),
    Row(
        name=spark_scale.NAME,
        measure=spark_scale.run,
        compares="ours; executors and partitions",
        workers=("spark_turns", "idle_members"),
        unit="s",
        bounds=("0 failures",),
        is_by_name=True,
    ),
)
FIGURES = {row.name: row for row in ROWS}


def by_default() -> list[str]:
    """Return the figures of a run without named figures."""
    return [row.name for row in ROWS if not row.is_by_name]


def as_text() -> str:
    """Return the table as text."""
    lines = []
    for row in ROWS:
        workers = f"; workers: {', '.join(row.workers)}" if row.workers else ""
        lines.append(f"{row.name} ({row.unit}): {row.compares}{workers}")
        lines += [f"    {bound}" for bound in row.bounds]
    return "\n".join(lines)


def measured(row: Row, bench: Bench) -> Figure:
    """Measure a figure, and add the machine's load before it and the groups that it created.

    Raises:
        ValueError: The figure has no series in its row's unit.
    """
    began_load, known = os.getloadavg()[0], bench.groups()
    figure = row.measure(bench)
    if row.unit not in {series.unit for series in figure.series}:
        raise ValueError(f"{row.name} has no series in {row.unit}")
    new = {group: kind for group, kind in bench.groups().items() if group not in known}
    notes = (*figure.notes, types_of(new)) if new else figure.notes
    return replace(figure, name=row.name, notes=notes, began_load=began_load)
