"""The catalogue of findings and those who find."""

from __future__ import annotations

import re
from pathlib import Path

from consumer_membership import spark
from consumer_membership.spark.diagnosis import catalogue
from consumer_membership.spark.diagnosis.findings import Severity


def test_every_finding_is_found_by_somebody() -> None:
    """And everybody's are there: a name that is none would only show at a user's."""
    room = Path(spark.__file__).parent
    sources = [room / "doctor.py", *(room / "diagnosis" / f"{name}.py" for name in ("session", "workers", "cluster"))]
    texts = set(re.findall(r'"([a-zA-Z -]+)"', "".join(path.read_text() for path in sources)))
    assert set(catalogue._catalogue()) - texts == set()


def test_every_problem_has_a_remedy() -> None:
    """What is fine needs none."""
    entries = catalogue._catalogue().items()
    assert [name for name, words in entries if bool(words.remedy) != (words.severity is not Severity.OK)] == []
