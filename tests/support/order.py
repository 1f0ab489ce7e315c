"""The order in which the processes of a test run receive test files, and the files that one process runs together.

Only the duration of the run depends on this order. Files that are not listed here run after the listed files.
"""

from __future__ import annotations

#: Files that use the session of `tests/spark/conftest.py`. One process runs all of them, because a second session would
#: need a JVM of 0.5 GB, and half a minute to start and warm up.
SPARK_SESSION = (
    "tests/spark/test_group_read.py",
    "tests/spark/test_secured.py",
    "tests/spark/test_doctor.py",
    "tests/spark/test_runs.py",
    "tests/spark/test_sleepers.py",
    "tests/spark/source/test_data_source.py",
    "tests/spark/test_folders.py",
    "tests/spark/test_compaction.py",
    "tests/spark/test_pickling.py",
    "tests/spark/sinks/test_in_spark.py",
    "tests/spark/sinks/test_kafka_in_drain.py",
    "tests/spark/sinks/test_parquet.py",
)

#: The longest files first. Files with the same kind of broker follow each other, because idle brokers are stopped.
FIRST = (
    *SPARK_SESSION,
    # Transactions; the first file takes two minutes, most of them waiting.
    "tests/processing/test_transactions.py",
    "tests/integration/test_exactly_once.py",
    "tests/integration/test_kubelet.py",
    # Brokers with ACLs, as for tests/spark/test_group_read.py.
    "tests/integration/test_static_members.py",
    # Groups that are converted between protocols.
    "tests/integration/test_migration.py",
    "tests/test_examples.py",
    "tests/spark/test_clusters.py",
    "tests/integration/test_health.py",
    "tests/integration/test_dead_letter_replay.py",
    "tests/integration/test_processor_outputs.py",
    "tests/integration/test_processor_kills.py",
    "tests/processing/test_transactional_producer.py",
    # Brokers with short sessions, or with Kafka's default settings.
    "tests/integration/test_zombies.py",
    "tests/integration/test_kills.py",
    "tests/integration/test_classic_callbacks.py",
    "tests/cli/test_timeline.py",
    "tests/devbroker/test_jvm.py",
    # Secured listeners, as for tests/spark/test_secured.py.
    "tests/integration/test_security.py",
    "tests/integration/test_guardian_secured.py",
    "tests/devbroker/test_listeners.py",
    "tests/integration/test_oidc.py",
    # Brokers of the kind STRICT.
    "tests/integration/test_error_messages.py",
    "tests/integration/test_epoch_of_outsiders.py",
    "tests/integration/test_full_classic_group.py",
    "tests/spark/sinks/test_kafka.py",
    "tests/integration/test_classic_sessions.py",
    "tests/spark/test_member.py",
    "tests/frameworks/test_frameworks.py",
    # Brokers with ACLs; in the second and third file also with groups of one member.
    "tests/integration/test_acls.py",
    "tests/integration/test_refusals.py",
    "tests/integration/test_membership.py",
    "tests/admin/test_survey.py",
    "tests/integration/test_admin.py",
    "tests/spark/test_mailbox.py",
    "tests/spark/test_brokers_assignment.py",
    "tests/integration/test_coordinator.py",
    "tests/simulation/consumer/test_coordinator.py",
    "tests/integration/test_eager_callbacks.py",
    "tests/spark/source/test_stream.py",
    "tests/integration/test_leases.py",
    "tests/integration/test_prefetched_records.py",
    "tests/cli/test_cli_on_broker.py",
    "tests/integration/test_stopped_readers.py",
    "tests/integration/test_group_member.py",
    "tests/demo/test_run.py",
    "tests/integration/test_subscriptions.py",
    "tests/spark/test_mirror.py",
    "tests/integration/test_processor.py",
    "tests/integration/test_lifecycle_events.py",
    "tests/integration/test_asyncio.py",
    "tests/integration/test_mixed_groups.py",
    "tests/integration/test_hand_over.py",
    "tests/integration/test_guardian.py",
    "tests/test_get_started.py",
    # Without a broker.
    "tests/clients/test_interrupts.py",
    "tests/simulation/test_profiles.py",
    "tests/exploration/test_exploration.py",
    "tests/recorder/test_replay.py",
    "tests/observe/test_timeline.py",
    "tests/wire/test_messages.py",
    "tests/test_suite.py",
    "tests/runtime/guardian/test_owner.py",
    "tests/test_main.py",
    "tests/processing/test_exploration.py",
    "tests/test_site.py",
)


def scope(nodeid: str) -> str:
    """Return the unit that one process runs: a file, or all files of the Spark session."""
    path = nodeid.partition("::")[0]
    return "the Spark session" if path in SPARK_SESSION else path


def rank(path: str) -> int:
    """Return the position of a test file in the order; all files that are not listed have the last position."""
    return FIRST.index(path) if path in FIRST else len(FIRST)
