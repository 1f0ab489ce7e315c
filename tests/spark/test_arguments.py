"""Invalid arguments raise `ConfigurationError` on the driver, before a broker is contacted or a job starts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Message

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark import (
    ParquetSink,
    SinkContext,
    check,
    drain,
    foreach_partition,
    member_task,
    read_group,
    run,
)
from consumer_membership.spark.arguments import check_sink
from tests.spark.builders import CLIENT, CONFIG, GIVEN, SESSION, STOPPED, STOPPED_CLIENT, write


def each(_: Iterator[Message]) -> None:
    """A function written for foreachPartition."""


WRONG_FOR_ALL: list[tuple[str, object]] = [
    ("spark", None),
    ("spark", {"bootstrap.servers": "secret"}),
    ("spark", STOPPED),
    ("spark", STOPPED_CLIENT),
    ("config", None),
    ("config", "bootstrap.servers=secret"),
    ("config", {5: 1}),
    ("topics", None),
    ("topics", 5),
    ("topics", "orders"),
    ("topics", b"orders"),
    ("topics", {"orders": 1}),
    ("topics", [5]),
    ("topics", [""]),
    ("topics", []),
    ("topics", ["^orders"]),
    ("group", None),
    ("group", 5),
    ("group", ""),
    ("pipeline", 5),
    ("pipeline", ""),
]
WRONG_FOR_RUNS: list[tuple[str, object]] = [
    *WRONG_FOR_ALL,
    ("sink", None),
    ("sink", "postgresql://user:secret@host"),
    ("sink", each),
    ("sink", ParquetSink),
    ("instances", "2"),
    ("instances", None),
    ("instances", 2.0),
    ("control_host", 5),
    ("batch_wait_s", "1"),
    ("sink_timeout_s", None),
    ("batch_size", "many"),
]
WRONG_FOR_DRAINS: list[tuple[str, object]] = [
    *WRONG_FOR_RUNS,
    ("timeout_s", "5"),
    ("timeout_s", 0),
    ("timeout_s", True),
    ("timeout_s", float("nan")),
    ("until", None),
    ("until", 5),
    ("until", "later"),
    ("until", {("orders", 0): "5"}),
]
WRONG_FOR_READS: list[tuple[str, object]] = [
    *WRONG_FOR_ALL,
    ("timeout_s", None),
    ("tasks", "4"),
    ("tasks", 0),
    ("until", None),
    ("until", {("orders", 0): None}),
    ("columns", "key"),
    ("columns", None),
    ("columns", [["key"]]),
]
WRONG_FOR_CHECKS: list[tuple[str, object]] = [
    ("spark", None),
    ("spark", STOPPED),
    ("spark", STOPPED_CLIENT),
    ("config", "bootstrap.servers=secret"),
    ("timeout_s", "5"),
]
WRONG_FOR_TASKS: list[tuple[str, object]] = [
    *[(name, value) for name, value in WRONG_FOR_ALL if name not in ("spark", "group")],
    ("function", None),
    ("function", each),
    ("instances", "2"),
    ("until", 5),
]


SESSIONS = pytest.mark.parametrize("session", [SESSION, CLIENT], ids=["classic", "connect"])


def refused(call: Callable[..., object], given: Mapping[str, object], name: str, value: object) -> None:
    """Assert that the call rejects this parameter and that the error shows no value that may be a secret."""
    with pytest.raises(ConfigurationError) as caught:
        call(**{**given, name: value})
    assert caught.value.key == name
    assert caught.value.remedy
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_RUNS)
@SESSIONS
def test_run_refuses_invalid_arguments(name: str, value: object, session: object) -> None:
    """`run` raises `ConfigurationError` for arguments of a wrong type or with an impossible value."""
    refused(run, {**GIVEN, "spark": session}, name, value)


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_DRAINS)
@SESSIONS
def test_drain_refuses_invalid_arguments(name: str, value: object, session: object) -> None:
    """`drain` raises `ConfigurationError` for arguments of a wrong type or with an impossible value."""
    refused(drain, {**GIVEN, "spark": session}, name, value)


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_READS)
@SESSIONS
def test_read_group_refuses_invalid_arguments(name: str, value: object, session: object) -> None:
    """`read_group` raises `ConfigurationError` for arguments of a wrong type or with an impossible value."""
    given = {**GIVEN, "spark": session}
    del given["sink"]
    refused(read_group, given, name, value)


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_CHECKS)
@SESSIONS
def test_check_refuses_invalid_arguments(name: str, value: object, session: object) -> None:
    """`check` raises only for arguments that make an examination impossible; it reports other problems as findings."""
    refused(check, {**GIVEN, "spark": session}, name, value)


def test_control_host_is_refused_with_spark_connect() -> None:
    """`run` and `drain` reject `control_host` with Spark Connect, because no task calls the driver there."""
    for call in (run, drain):
        refused(call, {**GIVEN, "spark": CLIENT}, "control_host", "10.0.0.1")


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_TASKS)
def test_member_task_refuses_invalid_arguments(name: str, value: object) -> None:
    """`member_task` raises `ConfigurationError` for arguments of a wrong type or with an impossible value."""
    given = {"config": CONFIG, "topics": ["orders"], "group": "billing", "function": write}
    refused(member_task, given, name, value)


# ---- sinks -----------------------------------------------------------------------------------------------------------


def wrapped(function: Callable[[list[Message]], None]) -> Callable[[list[Message], SinkContext], None]:
    """Decorate a function so that it is called without the context."""

    @functools.wraps(function)
    def sink(batch: list[Message], _: SinkContext) -> None:
        function(batch)

    return sink


@wrapped
def decorated(batch: list[Message]) -> None:
    """A sink made by a decorator."""


class Loose:
    """An object that accepts any arguments."""

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Do nothing."""


class Keyed:
    """An object with one parameter more than a sink."""

    def __call__(self, batch: object, context: object, *, level: int = 1) -> None:
        """Do nothing."""

    def write(self, batch: object, context: object) -> None:
        """Do nothing."""


def levelled(_level: int, _batch: list[Message], _context: SinkContext) -> None:
    """A function that is a sink once its first argument is bound."""


@pytest.mark.parametrize(
    "sink",
    [
        write,
        decorated,
        Loose(),
        Keyed(),
        Keyed().write,
        functools.partial(levelled, 3),
        foreach_partition(each),
        print,
        max,
    ],
)
def test_check_sink_accepts_callables_that_take_batch_and_context(sink: object) -> None:
    """`check_sink` accepts callables that take a batch and its context, and callables of unknown signature."""
    check_sink(sink)


def test_check_sink_refuses_other_signatures_and_names_the_expected_one() -> None:
    """`check_sink` raises an error that names both signatures, before a job starts.

    For a class, it asks for an instance.
    """
    with pytest.raises(
        ConfigurationError, match=r"sink\(batch, context\); its parameters are \(_: .*too many positional"
    ) as caught:
        check_sink(each)
    assert caught.value.value == "each"
    with pytest.raises(ConfigurationError, match="create an instance of ParquetSink first"):
        check_sink(ParquetSink)


@pytest.mark.parametrize(
    ("call", "given", "wrong", "meant"),
    [
        (drain, GIVEN, "batchformat", "batch_format"),
        (run, GIVEN, "sinkTimeoutS", "sink_timeout_s"),
        (read_group, {key: GIVEN[key] for key in ("spark", "config", "topics", "group")}, "timeout", "timeout_s"),
        (check, GIVEN, "topic", "topics"),
        (
            member_task,
            {"config": CONFIG, "topics": ["orders"], "function": write, "group": "g"},
            "batchSize",
            "batch_size",
        ),
    ],
)
def test_unknown_keyword_raises_type_error_with_the_nearest_keyword(
    call: Callable[..., object], given: Mapping[str, object], wrong: str, meant: str
) -> None:
    """An unknown keyword raises a `TypeError` that names function, keyword and nearest keyword, but no value."""
    with pytest.raises(TypeError, match=f"did you mean {meant}[?]") as refused:
        call(**given, **{wrong: "secret"})
    assert isinstance(refused.value, ConfigurationError)
    assert f"{call.__name__}() has no parameter {wrong}" in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(TypeError, match=r"its parameters are .*topics"):
        call(**given, qqqq=1)
