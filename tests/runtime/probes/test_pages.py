"""The response of each probe path."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from consumer_membership.health.report import ConsumerReport, ProcessReport
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.probes.pages import SHARED_S, Pages, exposition
from consumer_membership.runtime.probes.requests import JSON, TEXT, ProbeAnswer, ProbeRequest
from tests.runtime.probes.watched import health_of
from tests.support.views import view_of

V = HealthVerdict


def report(verdict: HealthVerdict, *, helps: bool = False) -> ProcessReport:
    """Return the report of one consumer."""
    health = health_of(verdict, helps=helps)
    one = ConsumerReport(client_id="client", view=view_of(MemberState.STABLE), health=health)
    return ProcessReport(process=7, at=1.0, written_at=1.0, consumers=(one,))


def page(path: str, found: ProcessReport, *, takes_json: bool = False, is_verbose: bool = False) -> ProbeAnswer:
    """Return the response for this report."""
    request = ProbeRequest(path=path, takes_json=takes_json, is_verbose=is_verbose)
    return Pages(lambda: found).answer(request)


@pytest.mark.parametrize(
    ("verdict", "helps", "live", "ready"),
    [
        (V.CONSUMING, False, 200, 200),
        (V.REBALANCING, False, 200, 200),
        (V.JOINING, False, 200, 503),
        (V.WARM, False, 200, 200),
        (V.UNREACHABLE, False, 200, 503),
        (V.STUCK, False, 200, 503),
        (V.STUCK, True, 503, 503),
        (V.NOT_POLLED, True, 503, 503),
        (V.FATAL, False, 200, 503),
    ],
)
def test_page_status_follows_the_verdict(*, verdict: HealthVerdict, helps: bool, live: int, ready: int) -> None:
    """This test has examples; the tests of the report have the whole table."""
    found = report(verdict, helps=helps)
    assert (page("/livez", found).status, page("/readyz", found).status) == (live, ready)
    assert page("/health", found).status == 200


def test_page_is_text_or_json() -> None:
    """A request may accept JSON, and /health is always JSON."""
    found = report(V.IDLE)
    assert page("/livez", found) == ProbeAnswer(status=200, body=b"live: yes\n[+] g/client idle: a test\n", kind=TEXT)
    for path, is_verbose in (("/readyz", False), ("/readyz", True), ("/health", False)):
        answer = page(path, found, takes_json=True, is_verbose=is_verbose)
        assert answer.kind == JSON
        assert ("partitions" in json.loads(answer.body)["consumers"][0]) is (path == "/health" or is_verbose)


def test_unknown_path_lists_the_known_paths() -> None:
    """A path that differs only by a slash is unknown."""
    assert page("/livez/", report(V.IDLE)).status == 404
    assert page("/", report(V.IDLE)).body == b"not found; the paths are /livez, /readyz, /health, /metrics\n"


def test_metrics_page_needs_no_extra() -> None:
    """An installation may lack the metrics extra, and a scraped process does not load prometheus-client."""
    program = (
        "import sys; from consumer_membership.runtime.probes import pages; pages.exposition(); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = ran.stdout.split()
    assert "consumer_membership.metrics.exposition" in imported
    assert not {"prometheus_client", "http.server", "email", "wsgiref"}.intersection(imported)


def test_metrics_page_has_the_content_type_of_prometheus() -> None:
    """Prometheus requests this content type."""
    assert exposition()[1] == "text/plain; version=0.0.4; charset=utf-8"
    pages = Pages(lambda: report(V.IDLE), lambda: (b"up 1\n", "text/plain; version=0.0.4"))
    answer = pages.answer(ProbeRequest(path="/metrics"))
    assert (answer.status, answer.body, answer.kind) == (200, b"up 1\n", "text/plain; version=0.0.4")


def test_head_response_has_no_body() -> None:
    """The response still has the length of the body."""
    pages = Pages(lambda: report(V.IDLE))
    answer = pages.answer(ProbeRequest(path="/livez", is_head=True))
    assert (answer.has_body, len(answer.body)) == (False, 36)


def test_long_page_is_made_once_a_second() -> None:
    """All requests within a second share the long page, whereas the short verdict is always current."""
    now = 0.0
    made: Iterator[HealthVerdict] = iter([V.IDLE, V.STUCK, V.FATAL, V.PAUSED, V.JOINING])
    pages = Pages(lambda: report(next(made)), clock=lambda: now)

    def page_text(path: str, *, is_verbose: bool = False) -> str:
        return pages.answer(ProbeRequest(path=path, is_verbose=is_verbose)).body.decode()

    assert "idle" in page_text("/health")
    assert "idle" in page_text("/health")
    assert "stuck" in page_text("/livez")
    assert "fatal" in page_text("/livez", is_verbose=True)
    assert "fatal" in page_text("/livez", is_verbose=True)
    now = SHARED_S
    assert "paused" in page_text("/health")
    assert "joining" in page_text("/livez", is_verbose=True)


def test_page_that_raises_returns_500_and_later_pages_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason."""
    pages = Pages(lambda: report(V.IDLE), lambda: (b"", str(1 // 0)))
    assert pages.answer(ProbeRequest(path="/metrics")).status == 500
    assert "ZeroDivisionError" in caplog.text
    assert pages.answer(ProbeRequest(path="/livez")).status == 200
