"""The queries of examples/grafana/consumers.json use names and labels of the catalog."""

from __future__ import annotations

import json
import re

from consumer_membership.metrics.catalog import CATALOG, CONSUMER_LABELS, MetricKind
from tests.support.dashboard import DASHBOARD, queries

ENDS = {MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count")}
SERIES = {f"{row.prometheus}{end}": row for row in CATALOG for end in ENDS.get(row.kind, ("",))}
#: Labels of all series, including those that Prometheus and its histograms add.
COMMON = {*CONSUMER_LABELS, "instance", "le"}


def test_dashboard_queries_use_only_series_of_the_catalogue() -> None:
    """Queries use only existing series, because a query for a renamed metric would leave an empty panel."""
    for title, query in queries():
        names = set(re.findall(r"kafka_consumer_\w+", query))
        assert names, title
        assert names <= SERIES.keys(), (title, names - SERIES.keys())


def test_dashboard_queries_group_only_by_labels_of_their_series() -> None:
    """Queries group only by existing labels, because an unknown label would merge all series into one."""
    for title, query in queries():
        rows = [SERIES[name] for name in re.findall(r"kafka_consumer_\w+", query)]
        known = COMMON.union(*(row.labels for row in rows))
        asked = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        assert asked <= known, (title, asked - known)


def test_dashboard_panels_do_not_overlap() -> None:
    """Panels do not overlap on Grafana's grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
