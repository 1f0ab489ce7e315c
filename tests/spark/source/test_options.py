"""The source's options: accepted values, and errors that name the option."""

from __future__ import annotations

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.source.options import AtTime, Edge, SourceOptions, read_options
from consumer_membership.types import ConflictPolicy

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "group.id": "billing"}


def stream(**more: str) -> SourceOptions:
    """The options of a stream; underscores stand for dots."""
    return read_options({**LEAST, **{key.replace("_", "."): value for key, value in more.items()}}, is_streaming=True)


def test_minimal_options_have_the_defaults_of_spark_sql_kafka() -> None:
    """Options that are not given default to those of spark-sql-kafka."""
    options = stream()
    assert (options.topics, options.group, options.instance_id) == (("orders",), "billing", "billing-source")
    assert (options.starting, options.fail_on_data_loss, options.include_headers) == (Edge.LATEST, True, False)
    assert (options.max_offsets, options.min_partitions, options.timeout_s) == (None, None, 120.0)
    assert options.policy is ConflictPolicy.TAKEOVER
    assert options.config == {"bootstrap.servers": "localhost:9092", "isolation.level": "read_uncommitted"}
    assert read_options(LEAST, is_streaming=False).starting is Edge.EARLIEST


def test_option_names_are_case_insensitive() -> None:
    """Option names and enumerated values ignore case, as everywhere in Spark."""
    options = read_options(
        {
            "KAFKA.Bootstrap.Servers": "localhost:9092",
            "SubScribe": " a, b ,a",
            "GROUP.ID": "billing",
            "startingoffsets": "EARLIEST",
            "maxoffsetspertrigger": "7",
            "FAILONDATALOSS": "False",
        },
        is_streaming=True,
    )
    assert (options.topics, options.starting, options.max_offsets) == (("a", "b"), Edge.EARLIEST, 7)
    assert not options.fail_on_data_loss


def test_offsets_times_and_delays_use_the_forms_of_spark_sql_kafka() -> None:
    """A timestamp takes precedence over offsets."""
    assert stream(startingOffsets='{"orders":{"0":23,"1":-2}}').starting == {("orders", 0): 23, ("orders", 1): -2}
    assert stream(startingTimestamp="5", startingOffsets="earliest").starting == AtTime(everywhere=5)
    by_time = stream(startingOffsetsByTimestamp='{"orders":{"0":5}}').starting
    assert by_time == AtTime(by_partition={("orders", 0): 5})
    assert [stream(maxTriggerDelay=text).max_delay_s for text in ("500ms", "30s", "2m", "1h")] == [0.5, 30, 120, 3600]
    assert stream(kafka_group_id="billing").group == "billing"
    without = {key: value for key, value in LEAST.items() if key != "subscribe"}
    assigned = read_options({**without, "assign": '{"b":[1,0],"a":[2]}'}, is_streaming=True)
    assert assigned.partitions == (("a", 2), ("b", 0), ("b", 1))


def test_starting_offsets_group_uses_auto_offset_reset_for_uncommitted_partitions() -> None:
    """`kafka.auto.offset.reset` is accepted only with `startingOffsets=group`."""
    assert stream(startingOffsets="group").reset is Edge.EARLIEST
    assert stream(startingOffsets="group", kafka_auto_offset_reset="latest").reset is Edge.LATEST
    assert stream(startingOffsets="group", kafka_auto_offset_reset="none").reset is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"startingOffset": "earliest"},
            "startingoffset='earliest': there is no such option; did you",
        ),
        ({"colour": "red"}, "there is no such option; keys of the consumer begin with kafka."),
        ({"assign": '{"orders":[0]}'}, "options='subscribe, assign': give exactly one of"),
        ({"subscribePattern": "o.*"}, "give exactly one of"),
        ({"kafka.group.id": "other"}, "group.id='billing': kafka.group.id is 'other'; set only one of the two"),
        ({"group.id": ""}, "group.id='': set the name of the group"),
        ({"groupIdPrefix": "x"}, "this source uses a real group; set group.id"),
        ({"startingOffsets": "beginning"}, "startingOffsets='beginning': give one of earliest, latest, group, or JSON"),
        ({"startingOffsets": "{"}, "give JSON with a number for each partition"),
        ({"startingOffsets": '{"orders":{"0":"5"}}'}, "give JSON with a number for each partition"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "give JSON with a number for each partition"),
        ({"startingOffsetsByTimestamp": '{"orders":5}'}, "give JSON with a number for each partition"),
        ({"startingTimestamp": "today"}, "startingTimestamp='today': give milliseconds since 1970"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': give a whole number, 1 or more"),
        ({"maxOffsetsPerTrigger": "many"}, "give a whole number, 1 or more"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "=6: maxOffsetsPerTrigger is 5",
        ),
        ({"maxTriggerDelay": "soon"}, "give a time such as 500ms"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps': give one of true, false"),
        ({"group.instance.id.conflict.policy": "fight"}, "give one of takeover, wait, fail"),
        (
            {"kafka.auto.offset.reset": "earliest"},
            "kafka.auto.offset.reset='earliest': it applies only to startingOffsets=group",
        ),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit='true': leave it out"),
        ({"kafka.heartbeat.interval.ms": "often"}, "kafka.heartbeat.interval.ms='often'"),
    ],
)
def test_invalid_options_are_refused_by_name(given: dict[str, str], words: str) -> None:
    """The error has the option, its value and the valid values."""
    with pytest.raises(ConfigurationError) as refused:
        read_options({**LEAST, **given}, is_streaming=True)
    assert words in str(refused.value)


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "subscribe", "group.id"])
def test_missing_options_of_a_stream_are_named(missing: str) -> None:
    """A stream needs brokers, topics and a group."""
    given = {key: value for key, value in LEAST.items() if key != missing}
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers|subscribe|group\.id"):
        read_options(given, is_streaming=True)


def test_batch_read_refuses_stream_options_and_needs_no_group() -> None:
    """A batch read may have ends, needs a group only for `startingOffsets=group`, and refuses trigger options."""
    given = {key: value for key, value in LEAST.items() if key != "group.id"}
    assert read_options({**given, "endingOffsets": '{"orders":{"0":-1}}'}, is_streaming=False).group is None
    for option, value in {"maxOffsetsPerTrigger": "1", "startingOffsets": "group", "endingOffsets": "earliest"}.items():
        with pytest.raises(ConfigurationError):
            read_options({**given, option: value}, is_streaming=False)
    with pytest.raises(ConfigurationError, match="reads nothing"):
        read_options({**given, "startingOffsets": "latest"}, is_streaming=False)
