"""A run outlives its own workers' sleep: what stood still beyond its session gives up its batch and joins again.

A combination for each sink and each way; `python -m tests.spark.sleepers` goes through all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.sleepers import Course, slept
from tests.support.brokers import RunBrokers
from tests.support.kinds import SHORT_SESSIONS
from tests.support.postgres import postgres
from tests.support.versions import NEWEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize(
    "course",
    [
        Course(sink="parquet", way="run", sessions=1.5),
        Course(sink="kafka", way="drain", sessions=1.5),
        Course(sink="postgres", way="member_task", asleep=2),
    ],
    ids=lambda course: f"{course.way}-{course.sink}-{course.asleep}",
)
def test_task_that_stood_still_for_sessions_goes_on(
    spark: SparkSession, broker_pool: RunBrokers, tmp_path: Path, course: Course
) -> None:
    """Its partitions went to the other one of its run, or to nobody: 0 lost, 0 twice, and no attempt has failed."""
    broker = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    if course.sink != "postgres":
        assert slept(spark, broker, "", tmp_path, course) == ""
        return
    with postgres() as conninfo:
        assert slept(spark, broker, conninfo, tmp_path, course) == ""
