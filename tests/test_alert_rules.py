"""The alert rules of examples/prometheus: they are valid, use existing metrics, and the documentation shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer_membership import HealthVerdict
from consumer_membership.metrics.catalog import CATALOG, CONSUMER_LABELS, MetricKind
from tests.support.documents import DOCS, EXAMPLES, blocks
from tests.support.prometheus import promtool

RULES = EXAMPLES / "prometheus" / "alerts.yml"
PAGE = DOCS / "operating" / "metrics-and-alerts.md"
#: The labels of each series by its name; a histogram has three of them.
SERIES = {
    f"{row.prometheus}{suffix}": {*CONSUMER_LABELS, *row.labels, *(("le",) if suffix == "_bucket" else ())}
    for row in CATALOG
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
        (name,) = set(re.findall(r"kafka_consumer_\w+", expression))
        assert name in SERIES, expression
        named = re.findall(r"(\w+)=~?\"", expression)
        grouped = [label.strip() for by in re.findall(r"by \((.*?)\)", expression) for label in by.split(",")]
        assert {*named, *grouped} <= SERIES[name], expression
        verdicts = set(re.findall(r"verdict=\"(\w+)\"", expression))
        assert verdicts <= {verdict.value for verdict in HealthVerdict}
    for rule in rules():
        (name,) = set(re.findall(r"kafka_consumer_\w+", rule["expr"]))
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        by = re.search(r"by \((.*?)\)", rule["expr"])
        left = {label.strip() for label in by[1].split(",")} if by else SERIES[name]
        assert used <= left, rule["alert"]


#: For each alert: a series that raises it, its values for each minute, a minute without and a minute with the alert.
RAISED = {
    "ConsumerStuck": ('kafka_consumer_health{group="g", client_id="c", verdict="stuck"}', "0 1+0x30", 1, 3),
    "ConsumerFatal": ('kafka_consumer_health{group="g", client_id="c", verdict="fatal"}', "0 1+0x30", 0, 2),
    "ConsumerUnreachable": ('kafka_consumer_health{group="g", client_id="c", verdict="unreachable"}', "0 1+0x30", 2, 4),
    "ConsumerDoesNotPoll": ('kafka_consumer_poll_timeouts_total{group="g", client_id="c"}', "0 0 1+0x30", 1, 4),
    "ConsumerFallsBehind": ('kafka_consumer_health{group="g", client_id="c", verdict="behind"}', "1+0x30", 14, 16),
    "ConsumerLagHigh": ('kafka_consumer_partition_lag{group="g", topic="t", partition="0"}', "20000+0x30", 9, 11),
    "ConsumerRebalancesOften": ('kafka_consumer_rebalances_total{group="g", cause="joined"}', "0+3x30", 5, 20),
    "ConsumerFenced": ('kafka_consumer_fences_total{group="g", client_id="c"}', "0 0 1+0x30", 1, 4),
    "ConsumerCommitsFail": ('kafka_consumer_commit_failures_total{group="g", error="E"}', "_ _ 1+0x30", 1, 4),
    "RecordsDeadLettered": ('kafka_consumer_handler_dead_letters_total{group="g"}', "0 0 1+0x30", 1, 4),
    "RecordUnfinished": (
        'kafka_consumer_partition_oldest_unfinished_age_seconds{group="g", topic="t", partition="0"}',
        "1000+60x30",
        4,
        6,
    ),
}


def filled(text: str, labels: Mapping[str, str]) -> str:
    """Return an annotation as Prometheus fills it in."""
    with_labels = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
    return with_labels.replace("of {{ $value }}", "of 20000").replace("{{ $value }} rebalances", "45 rebalances")


@pytest.mark.slow
@pytest.mark.integration
def test_prometheus_accepts_the_rules_and_raises_each_alert(tmp_path: Path) -> None:
    """`promtool check rules` accepts the file, and each alert is raised by its series, and not before."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES)
    assert RAISED.keys() == {rule["alert"] for rule in rules()}
    tests = []
    for alert_name, (series, values, before, after) in RAISED.items():
        rule = next(rule for rule in rules() if rule["alert"] == alert_name)
        labels = dict(re.findall(r"(\w+)=\"(\w*)\"", series))
        by = re.search(r"by \((.*?)\)", rule["expr"])
        kept = {key: value for key, value in labels.items() if by is None or key in by[1].split(", ")}
        alert = {
            "exp_labels": kept | rule["labels"],
            "exp_annotations": {name: filled(text, kept) for name, text in rule["annotations"].items()},
        }
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "alert_rule_test": [
                    {"eval_time": f"{before}m", "alertname": alert_name, "exp_alerts": []},
                    {"eval_time": f"{after}m", "alertname": alert_name, "exp_alerts": [alert]},
                ],
            }
        )
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "tests.yml")
