"""The response for each path.

| path | status | body |
|---|---|---|
| /livez | 200; 503 if a restart of the process would help | text or JSON, by `Accept`; `?verbose`: partitions |
| /readyz | 200; 503 if a consumer does not have its share of its group's work | text or JSON, as /livez |
| /health | 200 | JSON: all consumers with their partitions |
| /metrics | 200 | all consumers of the process, for Prometheus |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TypeAlias

from consumer_membership.health.report import ProbeQuestion, ProcessReport
from consumer_membership.light_dataclasses import replace
from consumer_membership.runtime.probes.requests import JSON, ProbeAnswer, ProbeRequest, refusal

#: Returns the metrics of this process in the format of Prometheus, and their content type.
Exposition: TypeAlias = Callable[[], tuple[bytes, str]]

_log = partial(logging.getLogger, "consumer_membership.session")

PATHS = "/livez, /readyz, /health, /metrics"
#: The shortest interval between two versions of a page of thousands of partitions; slow readers share its bytes.
SHARED_S = 1.0


def exposition() -> tuple[bytes, str]:
    """The metrics of all consumers of this process."""
    from consumer_membership.metrics import exposition as text  # the table of names, only for scraped processes

    return text.exposition()


class Pages:
    """The pages of one address. `report` returns the state of its consumers; `clock` measures the age of a page."""

    def __init__(
        self,
        report: Callable[[], ProcessReport],
        metrics: Exposition = exposition,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._report = report
        self._metrics = metrics
        self._clock = clock
        self._shared: dict[object, tuple[float, ProbeAnswer]] = {}

    def answer(self, request: ProbeRequest) -> ProbeAnswer:
        """Return the response; never raises."""
        try:
            answer = self._answer(request)
        except Exception:  # noqa: BLE001
            # A failure of one page does not end the thread; the log has the traceback.
            _log().exception("The probe page %s failed", request.path)
            answer = refusal(500, "this page could not be created; see the log of the process")
        return replace(answer, has_body=not request.is_head)

    def _answer(self, request: ProbeRequest) -> ProbeAnswer:
        match request.path:
            case "/livez":
                return self._verdict(ProbeQuestion.IS_LIVE, request)
            case "/readyz":
                return self._verdict(ProbeQuestion.IS_READY, request)
            case "/health":
                return self._shared_page("/health", self._health)
            case "/metrics":
                return self._shared_page("/metrics", self._exposition)
            case _:
                return refusal(404, f"not found; the paths are {PATHS}")

    def _verdict(self, question: ProbeQuestion, request: ProbeRequest) -> ProbeAnswer:
        def page() -> ProbeAnswer:
            return _verdict(self._report(), question, request)

        return self._shared_page((question, request.takes_json), page) if request.is_verbose else page()

    def _health(self) -> ProbeAnswer:
        return ProbeAnswer(status=200, body=self._report().details().encode(), kind=JSON)

    def _exposition(self) -> ProbeAnswer:
        body, kind = self._metrics()
        return ProbeAnswer(status=200, body=body, kind=kind)

    def _shared_page(self, of: object, make: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        now = self._clock()
        made = self._shared.get(of)
        if made is None or now - made[0] >= SHARED_S:
            made = self._shared[of] = (now, make())
        return made[1]


def _verdict(report: ProcessReport, question: ProbeQuestion, request: ProbeRequest) -> ProbeAnswer:
    status = 200 if report.answer(question) else 503
    if request.takes_json:
        message = report.details() if request.is_verbose else report.summary()
        return ProbeAnswer(status=status, body=message.encode(), kind=JSON)
    return ProbeAnswer(status=status, body=report.text(question, is_verbose=request.is_verbose).encode())
