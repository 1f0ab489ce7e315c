"""The queries of examples/grafana/consumers.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

DASHBOARD = Path(__file__).resolve().parents[2] / "examples" / "grafana" / "consumers.json"


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title and the query of each panel's targets."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))
