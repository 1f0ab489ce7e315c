"""The alert rules of examples/prometheus: they are valid, use existing metrics, and the documentation shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from consumer_membership import HealthVerdict
from consumer_membership.metrics.catalogue import CATALOGUE, CONSUMER_LABELS, MetricKind
from tests.support.documents import DOCS, EXAMPLES, blocks
from tests.support.prometheus import check_rules

RULES = EXAMPLES / "prometheus" / "alerts.yml"
PAGE = DOCS / "operating" / "metrics-and-alerts.md"
#: The labels of each series by its name; a histogram has three of them.
SERIES = {
    f"{row.prometheus}{suffix}": {*CONSUMER_LABELS, *row.labels, *(("le",) if suffix == "_bucket" else ())}
    for row in CATALOGUE
    for suffix in (("_bucket", "_sum", "_count") if row.kind is MetricKind.HISTOGRAM else ("",))
}


def rules() -> list[dict[str, Any]]:
    """Return the rules of the file."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def expressions() -> Iterator[str]:
    """Yield the expressions of the file, and those of other rules on the page."""
    yield from (rule["expr"] for rule in rules())
    for code in blocks(PAGE.read_text(), "yaml"):
        shown = yaml.safe_load(code)
        yield from (rule["expr"] for rule in shown if "expr" in rule) if isinstance(shown, list) else ()


def test_page_shows_the_rules_of_the_example() -> None:
    """docs/operating/metrics-and-alerts.md shows the file as it is."""
    assert RULES.read_text() in blocks(PAGE.read_text(), "yaml")


def test_each_rule_has_the_parts_that_an_operator_needs() -> None:
    """Each rule has a unique name, an expression, a severity, a summary and a description."""
    for rule in rules():
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys() <= {"for", *rule.keys()}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_rules_use_existing_metrics_labels_and_verdicts() -> None:
    """Each expression reads an existing series and labels that the series has."""
    for expression in expressions():
        (name,) = re.findall(r"kafka_consumer_\w+", expression)
        assert name in SERIES, expression
        named = re.findall(r"(\w+)=~?\"", expression)
        grouped = [label.strip() for by in re.findall(r"by \((.*?)\)", expression) for label in by.split(",")]
        assert {*named, *grouped} <= SERIES[name], expression
        verdicts = set(re.findall(r"verdict=\"(\w+)\"", expression))
        assert verdicts <= {verdict.value for verdict in HealthVerdict}
    for rule in rules():
        (name,) = re.findall(r"kafka_consumer_\w+", rule["expr"])
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        by = re.search(r"by \((.*?)\)", rule["expr"])
        left = {label.strip() for label in by[1].split(",")} if by else SERIES[name]
        assert used <= left, rule["alert"]


@pytest.mark.slow
@pytest.mark.integration
def test_prometheus_accepts_the_rules() -> None:
    """`promtool check rules` accepts the file."""
    assert f"{len(rules())} rules found" in check_rules(RULES)
