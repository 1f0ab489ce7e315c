"""examples/grafana/consumers.json asks for what there is: names of the catalogue, with labels that they have."""

from __future__ import annotations

import json
import re

from consumer_membership.metrics.catalogue import CATALOGUE, CONSUMER_LABELS, MetricKind
from tests.support.dashboard import DASHBOARD, queries

ENDS = {MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count")}
SERIES = {f"{row.prometheus}{end}": row for row in CATALOGUE for end in ENDS.get(row.kind, ("",))}
#: What Prometheus and its histograms add.
COMMON = {*CONSUMER_LABELS, "instance", "le"}


def test_every_query_names_series_of_the_catalogue() -> None:
    """A metric that was renamed would leave an empty panel behind."""
    for title, query in queries():
        names = set(re.findall(r"kafka_consumer_\w+", query))
        assert names, title
        assert names <= SERIES.keys(), (title, names - SERIES.keys())


def test_queries_group_by_labels_that_their_series_have() -> None:
    """Else all would fall into one."""
    for title, query in queries():
        rows = [SERIES[name] for name in re.findall(r"kafka_consumer_\w+", query)]
        known = COMMON.union(*(row.labels for row in rows))
        asked = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        assert asked <= known, (title, asked - known)


def test_panels_have_places_of_their_own() -> None:
    """On Grafana's grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
