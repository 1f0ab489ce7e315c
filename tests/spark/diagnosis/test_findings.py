"""How findings are printed and raised."""

from __future__ import annotations

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.diagnosis.findings import Diagnosis, Severity, diagnosis
from tests.spark.diagnosis.builders import error, ok, warning

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK


def test_diagnosis_is_printed_with_the_worst_finding_first() -> None:
    """`print` shows aligned findings: what was found, why it matters, and the remedy."""
    found = diagnosis(
        [
            ok("slots", "2"),
            error("spark.speculation", "true", "a copy takes over", "set it to false"),
            warning("instances", "3 for 2 partitions", "one idles", "ask for 2"),
        ]
    )
    assert str(found).splitlines() == [
        "1 error, 1 warning, 1 ok",
        "ERROR    spark.speculation  true",
        "         a copy takes over",
        "         -> set it to false",
        "warning  instances          3 for 2 partitions",
        "         one idles",
        "         -> ask for 2",
        "ok       slots              2",
    ]
    assert [len(found.errors), len(found.warnings), len(found.findings)] == [1, 1, 3]


def test_long_texts_are_wrapped_and_aligned() -> None:
    """No line is wider than 120 columns, except for a single longer word."""
    lines = str(diagnosis([error("key", "found " * 40, "why " * 60, "do " * 80)])).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[2].startswith(" " * len("ERROR    key  ") + "found")
    assert [line[9:14] for line in lines if "do do" in line] == ["-> do", "   do", "   do"]


def test_raise_for_errors_raises_all_errors_together() -> None:
    """`raise_for_errors` raises a single error as it is, and several errors as a list; it ignores warnings."""
    diagnosis([warning("a", "1", "why", "how"), ok("b", "2")]).raise_for_errors()
    with pytest.raises(ConfigurationError, match=r"^a='1': why; how$"):
        diagnosis([error("a", "1", "why", "how")]).raise_for_errors()
    with pytest.raises(ConfigurationError) as refusal:
        diagnosis([error("a", "1", "why", "how"), error("b", "2", "", "do")]).raise_for_errors()
    assert str(refusal.value) == "check='2 errors': \n- a: 1: why; how\n- b: 2: do"


def test_diagnosis_without_findings_raises_nothing() -> None:
    """A diagnosis without findings raises nothing."""
    assert str(Diagnosis(findings=())) == "0 errors, 0 warnings, 0 ok"
