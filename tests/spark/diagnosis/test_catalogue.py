"""The catalog of findings and the functions that produce them."""

from __future__ import annotations

import re
from pathlib import Path

from consumer_membership import spark
from consumer_membership.spark.diagnosis import catalogue
from consumer_membership.spark.diagnosis.findings import Severity


def test_catalogue_has_exactly_the_findings_of_all_examinations() -> None:
    """Each finding of the catalog is produced by an examination, and each produced finding is in the catalog."""
    room = Path(spark.__file__).parent
    sources = [room / "doctor.py", *(room / "diagnosis" / f"{name}.py" for name in ("session", "workers", "cluster"))]
    texts = set(re.findall(r'"([a-zA-Z -]+)"', "".join(path.read_text() for path in sources)))
    assert set(catalogue._catalogue()) - texts == set()


def test_every_problem_has_a_remedy() -> None:
    """Each finding that can be a problem has a remedy; healthy findings need none."""
    entries = catalogue._catalogue().items()
    assert [name for name, words in entries if bool(words.remedy) != (words.severity is not Severity.OK)] == []
