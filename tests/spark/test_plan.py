"""The plan that travels to the tasks: it is checked on the driver, where errors still reach the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.context import (
    RUN_SPACING,
    BatchFormat,
    Fence,
    attempt_number,
    is_of_a_later_run,
    run_within,
)
from consumer_membership.spark.plan import attempt_of, member_config, planned, run_of
from consumer_membership.spark.task import member_task

CONFIG: Mapping[str, object] = {"bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.instance.id", "a"),
        ("group.instance.id.pool", "a-{0..3}"),
        ("group.instance.id.conflict.policy", "fail"),
        ("enable.auto.commit", True),
        ("enable.auto.offset.store", False),
        ("max.poll.interval.ms", 1000),
        ("enable.partition.eof", True),
        ("group.id", "another"),
    ],
)
def test_keys_that_the_package_sets_for_tasks_are_refused(key: str, value: object) -> None:
    """The error has the key and its value."""
    with pytest.raises(ConfigurationError) as refused:
        planned({**CONFIG, key: value}, ["orders"], "group")
    assert (refused.value.key, refused.value.value) == (key, value)


@pytest.mark.parametrize(
    ("wish", "value"),
    [
        ("instances", 0),
        ("instances", True),
        ("batch_size", 0),
        ("batch_wait_s", 0.0),
        ("batch_wait_s", 61.0),
        ("sink_attempts", 0),
        ("sink_timeout_s", 0.5),
        ("sink_timeout_s", 100_000.0),
        ("batch_format", "rows"),
    ],
)
def test_parameters_out_of_bounds_are_refused(wish: str, value: object) -> None:
    """The error has the parameter and its value."""
    with pytest.raises(ConfigurationError) as refused:
        planned(CONFIG, ["orders"], "group", **{wish: value})  # type: ignore[arg-type]  # wrong on purpose
    assert (refused.value.key, refused.value.value) == (wish, value)


def test_unknown_option_is_refused() -> None:
    """A misspelled option raises `TypeError`, because otherwise its default would be used silently."""
    with pytest.raises(TypeError, match="batchsize"):
        member_task(CONFIG, ["orders"], print, group="group", batchsize=5)  # type: ignore[call-arg]  # wrong on purpose


@pytest.mark.parametrize("topics", [[], "orders", ["^orders.*"]])
def test_topics_must_be_a_list_of_names(topics: list[str]) -> None:
    """A single string would be a list of letters, and a pattern has no ends."""
    with pytest.raises(ConfigurationError, match="topics="):
        planned(CONFIG, topics, "group")


def test_empty_group_is_refused() -> None:
    """An empty group name is refused."""
    with pytest.raises(ConfigurationError, match="group="):
        planned(CONFIG, ["orders"], "")


def test_plan_has_distinct_topics_and_the_group_as_pipeline() -> None:
    """A plan has each topic once; the pipeline's name defaults to the group's name."""
    plan = replace(planned(CONFIG, ["a", "b", "a"], "group", 2, batch_format="arrow"), run_number=7)
    assert (plan.topics, plan.pipeline, plan.batch_format, plan.run) == (
        ("a", "b"),
        "group",
        BatchFormat.ARROW,
        "group@7",
    )
    assert plan.instance_id(1) == "group-1"


def test_member_config_is_static_without_auto_commit() -> None:
    """A task's member is static, has no auto-commit, and its client id holds its attempt and run."""
    plan = replace(planned(CONFIG, ["a"], "group", pipeline="p", sink_timeout_s=20.0), run_number=7)
    config = member_config(plan, 3, 99)
    assert config == {
        "auto.offset.reset": "earliest",
        "bootstrap.servers": "localhost:9092",
        "client.id": "spark-p-3@7@99",
        "group.id": "group",
        "group.instance.id": "p-3",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "max.poll.interval.ms": 20_000,
    }
    assert (attempt_of(str(config["client.id"])), run_of(str(config["client.id"]))) == (99, 7)


def test_partition_eof_is_enabled_only_for_bounded_runs() -> None:
    """Only a run with ends enables partition EOF, which costs an event per batch."""
    plan = replace(planned(CONFIG, ["a"], "group"), ends={("a", 0): 5})
    assert member_config(plan, 0, 1)["enable.partition.eof"] is True


@pytest.mark.parametrize("client_id", ["", "orders", "me@home", "@", "me@\u00b2", "me@" + "9" * 5_000])
def test_foreign_client_id_has_no_attempt_and_no_run(client_id: str) -> None:
    """A client id of another program has no attempt and no run."""
    assert (attempt_of(client_id), run_of(client_id)) == (None, None)


@pytest.mark.parametrize("prefix", ["spark-p-3", "me@5-p-3"])
def test_client_id_of_an_earlier_version_has_its_run(prefix: str) -> None:
    """In client ids of earlier versions, the run is in the upper bits of the attempt."""
    assert run_of(f"{prefix}@{(1_764_000_000_000 << 20) + 77}") == 1_764_000_000_000


run_numbers = st.integers(1_700_000_000_000, 4_000_000_000_000)
task_attempts = st.integers(0, 1 << 35)


@given(run_numbers, task_attempts, task_attempts)
def test_attempt_number_orders_any_two_attempts_of_a_run(run: int, one: int, other: int) -> None:
    """An attempt number never wraps, fits into a bigint, and is never taken for that of a later run."""
    numbers = attempt_number(run, one), attempt_number(run, other)
    assert (numbers[0] < numbers[1]) == (one < other)
    assert max(numbers) < 2**63
    assert not is_of_a_later_run(numbers[0], than=numbers[1])


@given(run_numbers, task_attempts, task_attempts)
def test_attempt_number_of_a_run_that_saw_another_one_is_larger(run: int, one: int, other: int) -> None:
    """A later run has larger numbers, however many task attempts the earlier run's application had."""
    earlier = attempt_number(run, one)
    later = attempt_number(run_within(earlier) + RUN_SPACING + 1, other)
    assert earlier < later
    assert is_of_a_later_run(later, than=earlier)


@given(run_numbers, st.integers(0, (1 << 20) - 1))
def test_attempt_number_equals_that_of_earlier_versions(run: int, task: int) -> None:
    """Fences in sinks and client ids in groups that earlier versions stored keep their order."""
    assert attempt_number(run, task) == run << 20 | task


def test_rank_compares_epoch_before_attempt() -> None:
    """The epoch counts before the attempt: a partition that moved belongs to the later owner."""
    older = Fence(group="g", topic="t", partition=0, next_offset=9, epoch=3, attempt=900)
    newer = Fence(group="g", topic="t", partition=0, next_offset=5, epoch=4, attempt=100)
    assert older.rank < newer.rank
