"""The order in which the processes of a run get test files: the longest first, and one Spark session's together.

Nothing but time hangs on it: a file that is missing here comes when it comes.
"""

from __future__ import annotations

#: Tests of one session in one process; a second session would cost half a gigabyte and ten seconds.
SPARK_SESSION = (
    "tests/spark/test_group_read.py",
    "tests/spark/test_runs.py",
    "tests/spark/test_sleepers.py",
    "tests/spark/test_doctor.py",
    "tests/spark/test_compaction.py",
    "tests/spark/test_secured.py",
    "tests/spark/test_pickling.py",
    "tests/spark/sinks/test_in_spark.py",
    "tests/spark/sinks/test_kafka_in_drain.py",
    "tests/spark/sinks/test_parquet.py",
)

#: Those that take longest on two idle cores, without waiting for a core.
LONGEST = (
    *SPARK_SESSION,
    "tests/spark/test_clusters.py",
    "tests/devbroker/test_jvm.py",
    "tests/integration/test_migration.py",
    "tests/spark/test_speculation.py",
    "tests/integration/test_static_members.py",
    "tests/test_examples.py",
    "tests/integration/test_exactly_once.py",
    "tests/integration/test_security.py",
    "tests/integration/test_zombies.py",
    "tests/integration/test_guardian_secured.py",
    "tests/integration/test_classic_callbacks.py",
    "tests/integration/test_coordinator.py",
    "tests/integration/test_classic_sessions.py",
    "tests/integration/test_error_messages.py",
    "tests/integration/test_membership.py",
    "tests/integration/test_kills.py",
    "tests/integration/test_guardian.py",
    "tests/integration/test_mixed_groups.py",
    "tests/spark/test_member.py",
    "tests/spark/sinks/test_kafka.py",
    "tests/devbroker/test_listeners.py",
    "tests/simulation/test_profiles.py",
    "tests/exploration/test_exploration.py",
)


def scope(nodeid: str) -> str:
    """What is run by one process: a file, or all files of one Spark session."""
    path = nodeid.partition("::")[0]
    return "one Spark session" if path in SPARK_SESSION else path


def rank(path: str) -> int:
    """The place of a test file; the others keep theirs behind those that are known."""
    return LONGEST.index(path) if path in LONGEST else len(LONGEST)
