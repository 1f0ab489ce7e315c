"""The calculations and the scraper of the figure `observability`, without measurements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from consumer_membership.config.model import ConsumerConfig
from tests.benchmarks.builders import bench, series
from tests.benchmarks.figures.observability import Pair, Sides, paired_differences
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Verdict, differences_at_most
from tests.benchmarks.scraper import Scraper, listening_port

_SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status} if self.path == "/metrics" else 503)
        self.end_headers()
HTTPServer(("127.0.0.1", 0), Handler).serve_forever()
"""


@contextmanager
def serving(status: int) -> Iterator[int]:
    """Start a process that is not ready and responds to `/metrics` with this status; yield its id."""
    with subprocess.Popen([sys.executable, "-c", _SERVER.format(status=status)], stderr=subprocess.DEVNULL) as server:
        try:
            yield server.pid
        finally:
            server.kill()


def test_paired_differences_omit_windows_that_one_side_missed() -> None:
    """A window that one side missed has no difference."""
    pair = Pair.of("share", "%")
    for window, value in ((1.0, 0.5), (2.0, 0.25), (4.0, 9.0)):
        pair.on.add(value, window=window)
    for window, value in ((2.0, 0.5), (1.0, 0.25), (3.0, 9.0)):
        pair.off.add(value, window=window)
    assert paired_differences(pair) == [0.25, -0.25]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.05] * 12, Verdict.PASS),
        ([0.1] * 12, Verdict.PASS),
        ([0.2] * 12, Verdict.FAIL),
        ([0.0] * 5 + [0.2] * 7, Verdict.UNDECIDED),
        ([0.0] * 7 + [0.2] * 5, Verdict.PASS),
        ([0.2], Verdict.FAIL),
        ([], Verdict.FAIL),
    ],
)
def test_differences_at_most_is_undecided_if_chance_can_explain_the_excess(
    differences: list[float], verdict: Verdict
) -> None:
    """An excess that chance can explain neither passes nor fails."""
    assert differences_at_most("a bound", differences, 0.1, "%", [series(1.0)]).verdict is verdict


def test_differences_at_most_fails_after_a_failure_of_our_side() -> None:
    """Chance cannot explain a member that did not work, so the bound fails."""
    check = differences_at_most("a bound", [0.0] * 5 + [0.2] * 7, 0.1, "%", [series(1.0, failures=1)])
    assert check.verdict is Verdict.FAIL


def test_sides_enable_all_observability_features_or_none() -> None:
    """One side enables every feature that can be switched, the other none.

    Each consumer has its own health file, and both sides have equal fetch settings.
    """
    run = bench(rounds=None)
    sides = Sides.of(run, "/folder")
    first, second, off = (ConsumerConfig.from_mapping(run.config(side)) for side in (sides.on(), sides.on(), sides.off))
    assert (off.recorder_enable, off.enable_metrics_push) == (False, False)
    assert (off.recorder_directory, off.health_http_address, off.health_file) == (None, None, None)
    assert (first.recorder_enable, first.enable_metrics_push, first.recorder_directory) == (True, True, "/folder")
    assert first.health_http_address is not None
    assert first.health_file != second.health_file
    assert sides.on().config.keys() & sides.off.config.keys() == {
        "rebalance.callbacks",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
    }


def test_scraper_scrapes_a_process_that_is_not_ready_and_fails_on_errors() -> None:
    """A process that is not ready serves metrics; an error status is a failed measurement."""
    with serving(200) as pid, Scraper(pid) as scraper:
        scraper.await_response()
        assert scraper.answered == 1
    with serving(404) as pid, pytest.raises(WorkerFailedError, match=r"its metrics: \[404\]"), Scraper(pid) as scraper:
        scraper.await_response()


def test_scraper_skips_a_process_that_ended() -> None:
    """A process that ended or listens on no port is not scraped, and causes no failure."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        assert gone.wait() == 0
        assert listening_port(gone.pid) is None
        with Scraper(gone.pid) as scraper:
            pass
    assert scraper.answered == 0
