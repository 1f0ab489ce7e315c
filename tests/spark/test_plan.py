"""What travels to the tasks: checked on the driver, where the caller can still be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.context import BatchFormat, Fence, attempt_number, run_of
from consumer_membership.spark.plan import attempt_of, member_config, planned
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
    plan = replace(planned(CONFIG, ["a", "b", "a"], "group", 2, batch_format="arrow"), run_started_ms=7)
    assert (plan.topics, plan.pipeline, plan.batch_format, plan.run) == (
        ("a", "b"),
        "group",
        BatchFormat.ARROW,
        "group@7",
    )
    assert plan.instance_id(1) == "group-1"


def test_member_of_a_task_is_static_and_commits_by_hand() -> None:
    """Its client id tells which attempt it is."""
    plan = replace(planned(CONFIG, ["a"], "group", pipeline="p", sink_timeout_s=20.0), run_started_ms=7)
    config = member_config(plan, 3, 99)
    assert config == {
        "auto.offset.reset": "earliest",
        "bootstrap.servers": "localhost:9092",
        "client.id": "spark-p-3@99",
        "group.id": "group",
        "group.instance.id": "p-3",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "max.poll.interval.ms": 20_000,
    }
    assert attempt_of(str(config["client.id"])) == 99


def test_only_a_run_with_an_end_hears_of_ends() -> None:
    """Partition EOF costs an event for each batch."""
    plan = replace(planned(CONFIG, ["a"], "group"), ends={("a", 0): 5})
    assert member_config(plan, 0, 1)["enable.partition.eof"] is True


@pytest.mark.parametrize("client_id", ["", "orders", "me@home", "@"])
def test_other_clients_are_no_attempts(client_id: str) -> None:
    """Whatever they are called."""
    assert attempt_of(client_id) is None


def test_later_attempts_have_larger_numbers() -> None:
    """Of one run by Spark's number, of another one by its start; they fit a database's bigint."""
    numbers = [attempt_number(1_000, 5), attempt_number(1_000, 6), attempt_number(1_001, 0)]
    assert numbers == sorted(numbers)
    assert [run_of(number) for number in numbers] == [1_000, 1_000, 1_001]
    assert attempt_number(4_000_000_000_000, 1_000_000) < 2**63


def test_rank_of_a_fence() -> None:
    """The epoch counts before the attempt: a partition that moved belongs to the later owner."""
    older = Fence(group="g", topic="t", partition=0, next_offset=9, epoch=3, attempt=900)
    newer = Fence(group="g", topic="t", partition=0, next_offset=5, epoch=4, attempt=100)
    assert older.rank < newer.rank
