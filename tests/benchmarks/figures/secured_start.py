"""The time from a constructor to the first record over TLS and SASL, on a separate broker with these listeners."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.devbroker import Backend, start
from tests.benchmarks.bench import Figure
from tests.benchmarks.figures.start import MORE, SLOWER_BY_S, measure_start
from tests.benchmarks.samples import Series, median_above_at_most
from tests.support.secured import Way, client_config, materials

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench
    from tests.benchmarks.samples import Check

_RECORDS = 1_200
_WAYS = (Way.TLS, Way.SCRAM_256, Way.SCRAM_512_OVER_TLS)


def run(bench: Bench) -> Figure:
    """Measure one member of a new group with 12 partitions, from the earliest record, on each listener."""
    series: list[Series] = []
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        made = materials(Path(folder))
        with start(backend=Backend.JVM, security=made.security) as broker:
            here = replace(bench, bootstrap=broker.bootstrap_servers)
            topic = here.filled_topic("secured", _RECORDS)
            for way in _WAYS:
                config = {key: str(value) for key, value in client_config(broker, made, way).items()}
                sides = (here.ours(), here.raw())
                ours, raw = (side.series(way.value, "s") for side in sides)
                pairs = zip(sides, (ours, raw), strict=True)
                turns = [partial(measure_start, here, side, topic, first, config) for side, first in pairs]
                here.in_turns(here.count(15, 4), *turns)
                series += [ours, raw]
                bound = f"{way.value}: constructor to first record: median at most raw + {SLOWER_BY_S} s"
                checks.append(median_above_at_most(bound, ours, raw, SLOWER_BY_S, MORE))
    return Figure(
        title="Start over TLS and SASL: constructor to first record, one member of a fresh group, 12 partitions",
        series=tuple(series),
        checks=tuple(checks),
        notes=("both sides open two or more connections, each with its own handshake; certificates are ECDSA",),
    )
