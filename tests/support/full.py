"""The tests that run only in `python -m tests --full` and not in `python -m tests`, with the reasons.

The gate (`python -m tests`) runs for each change: with the newest broker and fewer seeds, and with the shortest of
several tests for the same rule. The full run checks an issue before it is reported as resolved. This module gives tests
the marker `full` with a reason, by a parameter or by the test's name; the gate does not run these tests. So all of them
are listed in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

import pytest

from tests.support.versions import NEWEST, OLDEST, OTHERS

OLDER_BROKER = "needs an older broker than the newest"
MORE_SEEDS = "more seeds of the same search"
AT_LENGTH = "takes longer than another test of the same rule"
BENCHMARKS = "tests the arithmetic of benchmarks, which no change of the package affects"

#: Tests with such a parameter, or with a tuple that contains one, use an older broker; so does "oldest-eager".
_OLDER = ("oldest", OLDEST, *(version for version in OTHERS if version != NEWEST), "Kafka 3.9")

#: Tests by name, as patterns for `fnmatch`.
NAMED: Mapping[str, str] = MappingProxyType(
    {
        "tests/devbroker/test_jvm.py::test_start_uses_existing_broker_unchanged": OLDER_BROKER,
        "tests/integration/test_migration.py::test_group_of_many_clients_*": OLDER_BROKER,
        "tests/integration/test_refusals.py::test_broker_without_the_consumer_protocol_*": OLDER_BROKER,
        "tests/integration/test_refusals.py::test_consumer_only_settings_on_an_older_broker_*": OLDER_BROKER,
        "tests/integration/test_security.py::test_oldest_*": OLDER_BROKER,
        "tests/spark/test_brokers_assignment.py::test_assign_at_once_does_nothing_before_*": OLDER_BROKER,
        "tests/spark/test_doctor.py::test_check_reports_a_broker_with_*": OLDER_BROKER,
        "tests/benchmarks/test_*.py::*": BENCHMARKS,
        # The gate runs the scenarios on the fake cluster.
        "tests/testing/test_contract.py::test_scenario_on_a_broker*": AT_LENGTH,
        # Starts a separate Spark for three examples, once and twice. test_runs.py and test_data_source.py test that
        # runs and queries read all records and continue where the last run ended.
        "tests/test_examples.py::test_spark_*": AT_LENGTH,
        # The gate runs the corpus; the stage `fuzzing` runs the fuzzer.
        "tests/fuzzing/test_fuzzer.py::test_fuzz_reports_planted_*": AT_LENGTH,
        # Ctrl-C: the gate tests SIGTERM.
        "tests/test_examples.py::test_graceful_shutdown[[]SIGINT]": AT_LENGTH,
        # The gate tests the same application as an example (test_examples.py).
        "tests/test_programs_of_pages.py::test_fastapi_*": AT_LENGTH,
        # The search takes minutes on a busy machine. The stage `exploration` searches these configurations within a
        # time limit, and searches the smaller configurations completely.
        "tests/exploration/test_exploration.py::*[[]classic static-classic-crash-start]": AT_LENGTH,
        "tests/exploration/test_exploration.py::*[[]shared-4.2-start-poll]": AT_LENGTH,
        "tests/exploration/test_exploration.py::*[[]classic shared-classic-start]": AT_LENGTH,
        "tests/processing/test_exploration.py::*[[]large: *": AT_LENGTH,
        # The gate tests a page of a tenth of the size, with a tenth of the limit.
        "tests/observe/test_timeline.py::test_timeline_page_of_ten_minutes_*[[]1000-*": AT_LENGTH,
        # Dozens of groups whose members and brokers are restarted: the gate runs one scenario.
        "tests/kafkatest/test_scenarios.py::test_scenario_*": AT_LENGTH,
        # The programs of tutorials and how-tos, some of which start Spark: the gate runs the programs of the first
        # pages, and the examples.
        "tests/test_programs_of_pages.py::*": AT_LENGTH,
        "tests/devbroker/test_jvm.py::test_upgraded_node_*": OLDER_BROKER,
        # The gate kills the node instead of stopping it.
        "tests/devbroker/test_jvm.py::test_restarted_node_*[[]stop_node]": AT_LENGTH,
        # Three nodes: in the gate, test_coordinator.py stops one of three nodes.
        "tests/devbroker/test_jvm.py::test_three_nodes_*": AT_LENGTH,
        # Ctrl-C: test_cli_on_broker.py ends the same command by Ctrl-C; the gate tests the other signal here.
        "tests/devbroker/test_jvm.py::*_stops_cleanly[[]2]": AT_LENGTH,
        # The processes of six clients, one of them a JVM: the gate tests one eager strategy and the cooperative one.
        "tests/integration/test_mixed_groups.py::*[[]roundrobin]": AT_LENGTH,
        "tests/integration/test_mixed_groups.py::*[[]sticky]": AT_LENGTH,
        # A hand-over in which a process is killed, stalls or loses its coordinator. The gate kills the predecessor, and
        # both processes, and ends another member than the requested one.
        "tests/integration/test_hand_over_crashes.py::test_predecessor_keeps_its_id_*": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::*_predecessor_is_killed[[]announcement read]": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::*_predecessor_is_killed[[]l*": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::test_successor_of_a_killed_predecessor_*": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::test_predecessor_takes_the_id_*": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::*_exceeds_the_drain_timeout*": AT_LENGTH,
        "tests/integration/test_hand_over_crashes.py::test_hand_over_continues_*": AT_LENGTH,
        # 20,000 records and a dozen killed workers: the gate has 2,000 records and three workers.
        "tests/integration/test_exactly_once.py::*-20000-*": AT_LENGTH,
        # The gate kills static members that write in a loop, and dynamic members that use processors.
        "tests/integration/test_exactly_once.py::*[[]examples/exactly_once.py-2000-3-dynamic]": AT_LENGTH,
        "tests/integration/test_exactly_once.py::*[[]examples/processor_exactly_once.py-5000-6-static]": AT_LENGTH,
        "tests/integration/test_exactly_once.py::test_stopped_processor_*[[]static]": AT_LENGTH,
        # 200,000 records and a dozen killed processors: the gate has 5,000 records and three processors.
        "tests/integration/test_processor_kills.py::*0000-*": AT_LENGTH,
        "tests/integration/test_processor_kills.py::test_owner_that_ignores_*": AT_LENGTH,
        # A replay that is killed during a call: the gate kills a replay between two records.
        "tests/integration/test_dead_letter_replay.py::test_killed_replay_*[[]begin-*": AT_LENGTH,
        "tests/integration/test_dead_letter_replay.py::test_killed_replay_*[[]send_offsets-*": AT_LENGTH,
        "tests/integration/test_dead_letter_replay.py::test_killed_replay_*[[]commit-*": AT_LENGTH,
        "tests/integration/test_dead_letter_replay.py::test_replay_needs_read_*": AT_LENGTH,
        "tests/integration/test_dead_letter_replay.py::test_replayed_offsets_that_do_not_fit_*": AT_LENGTH,
        "tests/integration/test_dead_letter_replay.py::test_record_that_the_brokers_refuse_*": AT_LENGTH,
        # Starts a JVM to compare its partitioner.
        "tests/integration/test_dead_letters.py::test_dead_letters_of_a_key_are_in_the_partition_of_java_*": AT_LENGTH,
        "tests/integration/test_processor_outputs.py::test_output_for_a_missing_topic_*[[]False]": AT_LENGTH,
        # Transactions as in brokers before 4.0.
        "tests/processing/test_transactional_producer.py::*[[]transactions version 1-*": OLDER_BROKER,
        "tests/integration/test_exactly_once.py::test_stopped_worker_*[[]static]": AT_LENGTH,
        # The member leaves its group during three attempts of a sink, which takes a minute on a busy machine.
        "tests/spark/test_member.py::test_reports_have_the_lag_behind_*": AT_LENGTH,
        # Tests of 1.5 minutes, which the gate runs with the installed release.
        "tests/frameworks/test_oldest.py::test_oldest_confluent_kafka_passes_*": AT_LENGTH,
        # Starts Spark with its Kafka source. The other tests of the file hold the group and commit to it without Spark.
        "tests/spark/test_mirror.py::test_query_of_spark_is_mirrored[[]*": AT_LENGTH,
        # Compares each option with spark-sql-kafka, in a session with its jar: the gate tests the options and records.
        "tests/spark/source/test_comparison_with_spark.py::*": AT_LENGTH,
        # Starts a dozen Java processes, and cuts networks for minutes.
        "tests/spark/hosts/test_jobs.py::*": AT_LENGTH,
        "tests/spark/hosts/test_cuts.py::*": AT_LENGTH,
        "tests/spark/hosts/test_losses.py::*": AT_LENGTH,
        # Starts and stops a session for each test: the gate tests the values of arguments (test_arguments.py).
        "tests/spark/test_stopped_sessions.py::*": AT_LENGTH,
        # Starts a Spark Connect server, whose libraries are installed first.
        "tests/spark/test_connect_job.py::*": AT_LENGTH,
        # Starts JVMs of executors with Spark's scheduler for Kubernetes; the gate checks the schemas of the resources.
        "tests/spark/test_kubernetes.py::test_example_runs_*": AT_LENGTH,
        # The server is built first: the gate tests the same sink with folders.
        "tests/spark/sinks/test_objects.py::*": AT_LENGTH,
        # The gate tests a password over TLS.
        "tests/spark/test_secured.py::*[[]Way.PLAIN]": AT_LENGTH,
        # A killed task: the gate kills a task with KafkaSink, and tests the handler in tasks that are not killed.
        "tests/spark/sinks/test_in_spark.py::test_killed_handler_*": AT_LENGTH,
        # Starts Spark's newest release and a separate server, for an example.
        "tests/spark/source/test_pipeline.py::*": AT_LENGTH,
        "tests/spark/source/test_stream.py::test_broker_without_*": OLDER_BROKER,
        # Fifty groups of three kinds of members, for three minutes; the gate tests the rules in test_doctor.py.
        "tests/observe/test_incidents.py::*": AT_LENGTH,
        "tests/observe/test_nodes_away.py::*": AT_LENGTH,
        "tests/cli/test_timeline.py::test_timeline_counts_compacted_records": AT_LENGTH,
        "tests/cli/test_timeline.py::test_timeline_last_shows_past_of_java_members": AT_LENGTH,
        "tests/cli/test_timeline.py::test_history_reads_log_back_only_as_far_as_needed": AT_LENGTH,
        # A browser, and pages of a thousand partitions; the gate tests the content of a page.
        "tests/observe/test_timeline.py::test_timeline_page_draws_and_zooms_in_browser*": AT_LENGTH,
        "tests/observe/test_timeline.py::test_timeline_page_labels_*": AT_LENGTH,
        # Twenty processes; the gate has four processes.
        "tests/integration/test_kubelet.py::*[[]20-*": AT_LENGTH,
        "tests/integration/test_kubelet.py::*_with_hand_over_*[[]20]": AT_LENGTH,
        # A separate broker that is killed: in the gate, the pod continues after its broker ends.
        "tests/integration/test_kubelet.py::test_pod_terminated_without_a_broker_*": AT_LENGTH,
        # The gate uses only the Python version that runs it.
        "tests/frameworks/test_oldest.py::*[[]3.*": AT_LENGTH,
        # Half a minute with short tokens: in the gate, test_security.py renews tokens of an `oauth_cb`, and
        # test_oidc.py tests an outage.
        "tests/integration/test_oidc.py::test_token_*": AT_LENGTH,
        # A real Keycloak, whose start takes 15 s of CPU time: test_oidc.py tests the same rules with a server in the
        # test process.
        "tests/integration/test_keycloak.py::*": AT_LENGTH,
        # A separate broker: the gate tests the handshake (tests/runtime/network/test_tls.py).
        "tests/integration/test_security.py::test_broker_with_tls_1_1_*": AT_LENGTH,
        # The gate tests a leave over TLS with the contents of a keystore (test_secured_leaving.py).
        "tests/integration/test_guardian_secured.py::*_with_the_keystore_*": AT_LENGTH,
        # The gate tests certificates in files, and tokens of a callback.
        "tests/spark/test_secured.py::test_drain_and_read_group_*": AT_LENGTH,
        # Installs the oldest dependencies first.
        "tests/frameworks/test_oldest.py::*[[]lowest]": AT_LENGTH,
        # Three nodes, and six static members that are replaced twice: the gate moves a coordinator of dynamic members.
        "tests/integration/test_coordinator.py::test_coordinator_move_keeps_static_*": AT_LENGTH,
        # A separate broker that is restarted: the gate tests full groups that reject new members.
        "tests/integration/test_oversized_groups.py::*": AT_LENGTH,
        # The gate tests one mode of one framework that joins a group.
        "tests/frameworks/test_frameworks.py::*quixstreams*": AT_LENGTH,
        "tests/frameworks/test_frameworks.py::*faststream*[[]single]": AT_LENGTH,
        "tests/frameworks/test_frameworks.py::*faststream*[[]manual]": AT_LENGTH,
        "tests/frameworks/test_frameworks.py::test_streamz_*": AT_LENGTH,
        "tests/frameworks/test_frameworks.py::test_bytewax_*": AT_LENGTH,
        # A separate broker, whose topic of committed offsets is deleted: tests/devbroker waits for that topic.
        "tests/integration/test_seen_answers.py::test_fresh_broker_*": AT_LENGTH,
        # Compiles librdkafka first: the gate tests the messages (test_gssapi.py) and the keys (test_tls_and_sasl.py).
        "tests/frameworks/test_kerberos.py::*": AT_LENGTH,
        # A real Prometheus: the gate compares the names and labels of the queries with the catalog.
        "tests/integration/test_dashboard.py::*": AT_LENGTH,
        # 22 decisions of an autoscaler; the gate tests its formulas and the manifests (tests/test_keda_example.py).
        "tests/integration/test_autoscaling.py::*": AT_LENGTH,
        # Executors of a standalone cluster: the gate tests the executors of local-cluster.
        "tests/spark/test_clusters.py::*standalone*": AT_LENGTH,
        # Two attempts of a task at the same time: the gate has such attempts in test_sleepers.py and test_runs.py.
        "tests/spark/test_speculation.py::*": AT_LENGTH,
        # Callbacks that take two sessions: the gate tests the other two pairs of callback and protocol.
        "tests/integration/test_classic_callbacks.py::*_longer_than_a_session_*[[]assign-cooperative]": AT_LENGTH,
        "tests/integration/test_classic_callbacks.py::*_longer_than_a_session_*[[]revoke-eager]": AT_LENGTH,
        # The gate resets a connection in a short network cut, and holds a connection in a cut beyond the session.
        "tests/integration/test_zombies.py::test_network_cut_beyond_*[[]reset]": AT_LENGTH,
        # Both protocols use the same connections: the gate renews the sessions of the consumer protocol.
        "tests/integration/test_security.py::test_sasl_sessions_are_renewed_*[[]classic]": AT_LENGTH,
        # The gate tests a job of `run`, and the rule for a single task (test_member.py).
        "tests/spark/test_runs.py::test_sink_that_is_always_too_slow_*[[]drain]": AT_LENGTH,
        "tests/spark/test_runs.py::test_sink_that_is_always_too_slow_*[[]member_task]": AT_LENGTH,
        # The gate pauses tasks of `run` and `member_task`, and stops tasks within transactions (sinks/test_kafka.py).
        "tests/spark/test_sleepers.py::test_task_paused_*[[]drain-kafka-1]": AT_LENGTH,
    }
)


def reason(item: pytest.Item) -> str | None:
    """Return the reason why only the full run has this test; None for tests of the gate."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if item.get_closest_marker("integration") and any(map(_names_older, parameters.values())):
        return OLDER_BROKER
    if isinstance(block := parameters.get("block", 0), int) and block > 0:
        return MORE_SEEDS
    return next((why for name, why in NAMED.items() if fnmatchcase(item.nodeid, name)), None)


def _names_older(parameter: object) -> bool:
    """Return whether the parameter is an older version or contains one."""
    if isinstance(parameter, tuple):
        return any(map(_names_older, parameter))
    return isinstance(parameter, str) and (parameter in _OLDER or parameter.startswith("oldest-"))
