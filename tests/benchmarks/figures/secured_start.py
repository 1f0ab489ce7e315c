"""From a constructor to the first record over TLS and SASL, on a broker of its own that has listeners for them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.devbroker import Way as BrokerWay
from consumer_membership.devbroker import start
from tests.benchmarks.bench import Figure, counted_in, tell
from tests.benchmarks.processes import run_worker
from tests.benchmarks.samples import Series, at_most, difference, median_of
from tests.benchmarks.workers import first_record
from tests.support.secured import Way, client_config, materials

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.samples import Check

NAME = "secured-start"

_RECORDS = 1_200
#: The bound for plaintext connections, too.
_SLOWER_BY_S = 0.05
_TIMEOUT_S = 60.0
_WAYS = (Way.TLS, Way.SCRAM_256, Way.SCRAM_512_OVER_TLS)


def run(bench: Bench) -> Figure:
    """Measure one member of a fresh group, 12 partitions with records, from the earliest, by each way in."""
    began_load = os.getloadavg()[0]
    series: list[Series] = []
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        made = materials(Path(folder))
        with start(way=BrokerWay.JVM, security=made.security) as broker:
            here = replace(bench, bootstrap=broker.bootstrap_servers)
            topic = here.filled_topic("secured", _RECORDS)
            for way in _WAYS:
                config = {key: str(value) for key, value in client_config(broker, made, way).items()}
                sides = (here.ours(), here.raw())
                ours, raw = (
                    Series(label=f"{way.value}, {side.label}", unit="s", is_ours=side.is_ours) for side in sides
                )
                turns = zip(sides, (ours, raw), strict=True)
                here.in_turns(
                    here.count(15, 4), *(partial(_start, here, side, topic, config, first) for side, first in turns)
                )
                series += [ours, raw]
                checks.append(
                    at_most(
                        f"{way.value}: constructor to first record: median at most raw + {_SLOWER_BY_S} s",
                        difference(median_of(ours), median_of(raw)),
                        _SLOWER_BY_S,
                        "s more than raw",
                        [ours, raw],
                    )
                )
    return Figure(
        name=NAME,
        title="Start over TLS and SASL: constructor to first record, one member of a fresh group, 12 partitions",
        series=tuple(series),
        checks=tuple(checks),
        notes=("both sides connect twice or more, each connection with its own handshake; certificates are ECDSA",),
        began_load=began_load,
    )


def _start(bench: Bench, side: Side, topic: str, secured: dict[str, str], series: Series) -> None:
    with counted_in(series):
        job = first_record.Job(module=side.module, config=bench.config(side) | secured, topic=topic)
        facts = run_worker("first_record", job, _TIMEOUT_S).facts
        series.add(facts["first_record_s"], **facts)
        tell(f"{series.label} {facts['first_record_s']:.3f} s")
