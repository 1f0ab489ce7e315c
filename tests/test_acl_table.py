"""The ACL table of docs/operating/tls-sasl-acls.md: each row has a test on a broker with an authorizer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.documents import DOCS, ROOT

_ACLS = "integration/test_acls.py"
_ADMIN = "integration/test_admin.py"
_STATIC = "integration/test_static_members.py"
_REFUSALS = "integration/test_refusals.py"
_INCIDENTS = "observe/incidents.py"
_SPARK = "spark/test_acls.py"
_CHECK = "spark/test_doctor.py::test_check_names_missing_rights_with_their_resources"
_MISSING = f"{_ADMIN}::test_missing_acl_is_named_in_the_error"
_DESCRIBING = "`GroupAdmin.describe`, `describe`, `lag`, `watch`, `timeline`"
_ENOUGH = f"{_ACLS}::test_read_on_group_and_topic_is_enough_for_a_static_consumer_and_its_takeover"
_FORBIDDEN = f"{_REFUSALS}::test_forbidden_group_is_fatal_and_forbidden_topic_is_reported"
_TRANSACTIONAL = f"{_ACLS}::test_transactional_producer_needs_write_on_transactional_id_and_topic"
_SURVEY = f"{_ACLS}::test_survey_names_open_transactions_only_with_read_and_describe"
_WITH_DEAD_LETTERS = "`Processor` and Spark `HandlerSink` with a dead-letter topic"
_DEAD_LETTERS = "integration/test_dead_letters.py::test_check_of_dead_letter_topic_names_missing_operations"
_REPLAY = (
    "integration/test_dead_letter_replay.py"
    "::test_replay_needs_read_on_topic_and_group_and_write_on_the_transactional_id"
)
_SINK = f"{_SPARK}::test_kafka_sink_needs_write_on_its_transactional_id_and_topics"
_CHECKPOINT = f"{_SPARK}::test_checkpoint_commands_need_describe_to_read_a_group_and_read_to_write_it"

#: The tests of each row, by its first three cells.
TESTS: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("Consumer", "READ", "group"): (_ENOUGH, _FORBIDDEN),
    ("Consumer", "READ", "topic"): (
        _ENOUGH,
        f"{_ACLS}::test_topic_without_read_is_assigned_but_not_fetched_and_not_committed",
    ),
    ("Consumer", "DESCRIBE", "topic"): (_FORBIDDEN,),
    ("Consumer with a pattern", "DESCRIBE", "topic"): (
        f"{_ACLS}::test_pattern_omits_topics_without_describe_and_reports_no_error",
    ),
    ("Consumer with `allow.auto.create.topics`", "CREATE", "topic or cluster"): (
        f"{_ACLS}::test_allow_auto_create_topics_needs_create_on_topic_or_cluster",
    ),
    ("Static consumer", "DESCRIBE_CONFIGS", "group"): (
        f"{_STATIC}::test_session_timeout_without_describe_configs_is_none",
    ),
    ("Static consumer", "DESCRIBE", "every topic of the group"): (
        f"{_STATIC}::test_takeover_works_without_a_description_of_the_group",
    ),
    (
        "Static consumer with `group.instance.id.conflict.policy=hand-over`",
        "READ",
        "group `<group.id>.hand-over`",
    ): (f"{_ACLS}::test_hand_over_without_read_on_the_helper_group_works_like_wait",),
    ("Crash guardian", "READ", "group"): (f"{_ACLS}::test_guardian_needs_read_on_the_group_and_logs_a_refused_leave",),
    ("Pushed metrics (KIP-714)", "none", "none"): (f"{_ACLS}::test_pushed_metrics_need_no_acl",),
    ("Transactional producer", "WRITE", "transactional id"): (_TRANSACTIONAL,),
    ("Transactional producer", "WRITE", "output topic"): (_TRANSACTIONAL,),
    ("Transactional producer", "READ", "group and source topic"): (_TRANSACTIONAL,),
    (_WITH_DEAD_LETTERS, "WRITE", "dead-letter topic"): (_DEAD_LETTERS,),
    (_WITH_DEAD_LETTERS, "DESCRIBE_CONFIGS", "dead-letter topic"): (_DEAD_LETTERS,),
    ("`dead-letters`", "READ", "dead-letter topic"): (_REPLAY,),
    ("`dead-letters replay`", "READ", "group `<topic>.replay`"): (_REPLAY,),
    ("`dead-letters replay`", "WRITE", "transactional id `<topic>.replay`"): (_REPLAY,),
    ("`dead-letters replay`", "WRITE", "original topic"): (_REPLAY,),
    ("`dead-letters replay`", "DESCRIBE_CONFIGS", "original topic"): (_REPLAY,),
    (_DESCRIBING, "DESCRIBE", "group"): (_MISSING,),
    (_DESCRIBING, "DESCRIBE", "every topic of the group"): (_MISSING,),
    ("`GroupAdmin.remove_members`, `remove-members`", "READ", "group"): (_MISSING,),
    ("`GroupAdmin.list_groups`, `list`", "DESCRIBE", "cluster, or each group"): (
        f"{_ACLS}::test_list_groups_shows_only_groups_with_describe",
    ),
    ("`doctor`", "DESCRIBE", "group"): (f"{_INCIDENTS}::group_is_denied",),
    ("`doctor`", "DESCRIBE", "every topic of the group"): (f"{_INCIDENTS}::topic_is_denied",),
    ("`doctor`", "READ", "every topic of the group"): (_SURVEY,),
    ("`doctor`", "DESCRIBE", "transactional id"): (_SURVEY,),
    ("`doctor`", "DESCRIBE_CONFIGS", "cluster and group"): (
        f"{_ACLS}::test_survey_needs_describe_configs_for_the_settings_of_broker_and_group",
    ),
    ("`timeline --last`", "READ", "topic `__consumer_offsets`"): (
        "cli/test_timeline.py::test_timeline_reports_unreadable_past",
    ),
    ("Spark `run`, `drain`, `member_task`", "READ", "group and topic"): (_CHECK,),
    ("Spark `drain(assign_at_once=True)`", "ALTER_CONFIGS", "group"): (
        "spark/test_brokers_assignment.py::test_assign_at_once_without_rights_names_the_key_and_the_grant",
    ),
    ("Spark Connect `run`, `drain`", "READ", "groups `<pipeline>-control` and `<pipeline>-progress`"): (
        "spark/test_mailbox.py::test_client_without_rights_to_the_helper_groups_gets_an_error_before_the_job",
    ),
    ("Spark `read_group`, client", "READ", "group"): (
        "spark/test_group_read.py::test_read_group_without_the_right_to_its_group_raises_group_error",
    ),
    ("Spark `read_group`, tasks", "READ", "topic"): (
        "spark/test_group_read.py::test_tasks_need_no_right_to_a_group",
        _CHECK,
    ),
    ("Spark `kafka-group` source", "READ", "group and topic"): (
        f"{_SPARK}::test_kafka_group_source_needs_read_on_group_and_topic",
    ),
    ("Spark `KafkaSink`", "WRITE", "transactional id (`<pipeline>-<instance>` unless you set one)"): (_SINK,),
    ("Spark `KafkaSink`", "WRITE", "output topic"): (_SINK,),
    ("Spark `OffsetMirror`", "READ", "group and topic"): (
        f"{_SPARK}::test_offset_mirror_needs_read_on_group_and_topic",
    ),
    ("`checkpoint to-group`", "READ", "group and topic"): (_CHECKPOINT,),
    ("`checkpoint from-group`", "DESCRIBE", "group"): (_CHECKPOINT,),
}


def rows() -> list[tuple[str, str, str]]:
    """Return the first three cells of each row of the table."""
    text = (DOCS / "operating/tls-sasl-acls.md").read_text()
    table = text.partition("<!-- acls: begin -->\n")[2].partition("<!-- acls: end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]]
    assert all(len(row) == 5 and all(row) for row in cells)
    return [(row[0], row[1], row[2]) for row in cells]


def test_each_row_of_the_acl_table_is_shown_by_a_test() -> None:
    """The table and the mapping have the same rows, each once."""
    assert sorted(rows()) == sorted(TESTS)


@pytest.mark.parametrize("place", sorted({place for places in TESTS.values() for place in places}))
def test_each_named_test_exists(place: str) -> None:
    """The tests and the doctor's incidents that the mapping names exist."""
    path, _, name = place.partition("::")
    tree = ast.parse((ROOT / "tests" / Path(path)).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
