"""The progress that Spark reports of one batch of a streaming query, as JSON fields."""

from __future__ import annotations


def progress_fields(*sources: tuple[str, object]) -> dict[str, object]:
    """The JSON fields of Spark's progress of one batch, by its sources: description and end."""
    return {
        "id": "00000000-0000-0000-0000-000000000001",
        "runId": "00000000-0000-0000-0000-000000000002",
        "name": "q",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 3,
        "batchDuration": 1,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": [
            {
                "description": description,
                "startOffset": None,
                "endOffset": end,
                "latestOffset": None,
                "numInputRows": 1,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "metrics": {},
            }
            for description, end in sources
        ],
        "sink": {"description": "noop", "numOutputRows": -1, "metrics": {}},
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "observedMetrics": {},
    }
