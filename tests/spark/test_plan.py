"""What travels to the tasks: checked on the driver, where the caller can still be told."""

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
def test_keys_that_a_task_has_of_its_own_are_refused(key: str, value: object) -> None:
    """By name, with the value."""
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
    """By name, with the value."""
    with pytest.raises(ConfigurationError) as refused:
        planned(CONFIG, ["orders"], "group", **{wish: value})  # type: ignore[arg-type]  # wrong on purpose
    assert (refused.value.key, refused.value.value) == (wish, value)


def test_option_that_there_is_not_is_refused() -> None:
    """A misspelt one would be left out without a word, and its default taken."""
    with pytest.raises(TypeError, match="batchsize"):
        member_task(CONFIG, ["orders"], print, group="group", batchsize=5)  # type: ignore[call-arg]  # wrong on purpose


@pytest.mark.parametrize("topics", [[], "orders", ["^orders.*"]])
def test_topics_are_named(topics: list[str]) -> None:
    """A text alone would be a list of letters; a pattern has no ends."""
    with pytest.raises(ConfigurationError, match="topics="):
        planned(CONFIG, topics, "group")


def test_group_is_named() -> None:
    """An empty group is none."""
    with pytest.raises(ConfigurationError, match="group="):
        planned(CONFIG, ["orders"], "")


def test_plan_of_a_run() -> None:
    """Topics once each; the pipeline is the group's name unless it is given."""
    plan = replace(planned(CONFIG, ["a", "b", "a"], "group", 2, batch_format="arrow"), run_number=7)
    assert (plan.topics, plan.pipeline, plan.batch_format, plan.run) == (
        ("a", "b"),
        "group",
        BatchFormat.ARROW,
        "group@7",
    )
    assert plan.instance_id(1) == "group-1"


def test_member_of_a_task_is_static_and_commits_by_hand() -> None:
    """Its client id tells which attempt it is."""
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


def test_only_a_run_with_an_end_hears_of_ends() -> None:
    """Partition EOF costs an event for each batch."""
    plan = replace(planned(CONFIG, ["a"], "group"), ends={("a", 0): 5})
    assert member_config(plan, 0, 1)["enable.partition.eof"] is True


@pytest.mark.parametrize("client_id", ["", "orders", "me@home", "@", "me@\u00b2", "me@" + "9" * 5_000])
def test_other_clients_are_no_attempts(client_id: str) -> None:
    """A client id of another program has no attempt and no run."""
    assert (attempt_of(client_id), run_of(client_id)) == (None, None)


@pytest.mark.parametrize("prefix", ["spark-p-3", "me@5-p-3"])
def test_client_id_of_an_earlier_version_has_its_run(prefix: str) -> None:
    """The run is in the attempt's upper bits there."""
    assert run_of(f"{prefix}@{(1_764_000_000_000 << 20) + 77}") == 1_764_000_000_000


run_numbers = st.integers(1_700_000_000_000, 4_000_000_000_000)
task_attempts = st.integers(0, 1 << 35)


@given(run_numbers, task_attempts, task_attempts)
def test_attempt_number_orders_any_two_attempts_of_a_run(run: int, one: int, other: int) -> None:
    """It never wraps, fits a database's bigint, and takes no attempt of a run for a later run's."""
    numbers = attempt_number(run, one), attempt_number(run, other)
    assert (numbers[0] < numbers[1]) == (one < other)
    assert max(numbers) < 2**63
    assert not is_of_a_later_run(numbers[0], than=numbers[1])


@given(run_numbers, task_attempts, task_attempts)
def test_attempt_number_of_a_run_that_saw_another_one_is_larger(run: int, one: int, other: int) -> None:
    """Any number of task attempts in the earlier run's application leaves the later run the later one."""
    earlier = attempt_number(run, one)
    later = attempt_number(run_within(earlier) + RUN_SPACING + 1, other)
    assert earlier < later
    assert is_of_a_later_run(later, than=earlier)


@given(run_numbers, st.integers(0, (1 << 20) - 1))
def test_attempt_number_continues_what_earlier_versions_stored(run: int, task: int) -> None:
    """Fences in sinks and client ids in groups keep their order."""
    assert attempt_number(run, task) == run << 20 | task


def test_rank_of_a_fence() -> None:
    """The epoch counts before the attempt: a partition that moved belongs to the later owner."""
    older = Fence(group="g", topic="t", partition=0, next_offset=9, epoch=3, attempt=900)
    newer = Fence(group="g", topic="t", partition=0, next_offset=5, epoch=4, attempt=100)
    assert older.rank < newer.rank
