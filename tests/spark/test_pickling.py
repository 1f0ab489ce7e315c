"""Objects that cannot be sent to the tasks are refused on the driver, and the error names the culprit."""

from __future__ import annotations

import functools
import pickle
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from consumer_membership import Consumer
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.pickling import pickled

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def refusal(sink: object, what: str = "sink") -> str:
    """The text of the refusal."""
    with pytest.raises(ConfigurationError) as error:
        pickled(sink, what)
    # The pickler's own traceback is not shown with the error.
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return str(error.value)


class Writer:
    """A sink as an object, with nested attributes."""

    def __init__(self, held: object) -> None:
        self.target = {"rows": held}

    def __call__(self, batch: object, context: object) -> None:
        """Do nothing."""


class Slotted:
    """A sink with slots."""

    __slots__ = ("guard",)

    def __init__(self) -> None:
        self.guard = threading.Lock()


class Careful:
    """A sink whose `__getstate__` drops its lock but not its connection."""

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self.guard = threading.Lock()
        self.connection = connection

    def __getstate__(self) -> dict[str, object]:
        return {"connection": self.connection}


class Unwilling:
    """A sink whose own code raises when it is pickled."""

    def __reduce__(self) -> str:
        raise LookupError("not while it rains\nand not on Sundays")


class Looping:
    """A sink that refers to itself and to an object that cannot be pickled."""

    def __init__(self) -> None:
        self.itself = self
        self.guard = threading.Lock()


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A database connection, which users most often capture."""
    with closing(sqlite3.connect(":memory:")) as opened:
        yield opened


def with_variable(held: object) -> Callable[[object, object], None]:
    """A function that captures a variable."""

    def sink(_batch: object, _context: object) -> None:
        print(held)

    return sink


def test_pickled_function_round_trips_with_its_variables() -> None:
    """A function that no task could import is pickled together with its variables."""
    sent: list[object] = []

    def outer(limit: int) -> Callable[[int], bool]:
        return lambda number: number < limit

    assert pickle.loads(pickled(outer(3)))(2)  # noqa: S301 - made here
    assert pickle.loads(pickled(sent)) == []  # noqa: S301


def test_lock_in_a_closure_is_named_by_its_variable() -> None:
    """The error names the captured variable and its function, not only the type `_thread.lock`."""
    text = refusal(with_variable(threading.Lock()))
    assert text.startswith("sink='with_variable.<locals>.sink': it cannot be sent to the tasks")
    assert "the variable 'held' of sink is a _thread.lock (cannot pickle '_thread.lock' object)" in text
    assert "create it inside the task, at the first call" in text


def test_open_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    """An open file is refused, because the task would open another file on its own host."""
    with (tmp_path / "out").open("w") as out:
        text = refusal(with_variable(out))
    assert "the variable 'held' of sink is a _io.TextIOWrapper" in text
    assert "open it inside the task, at the first call" in text


def test_consumer_and_producer_are_refused_with_a_remedy() -> None:
    """A consumer of this package and a librdkafka producer are refused with the same kind of remedy."""
    with Consumer({**NOWHERE, "group.id": "g"}) as consumer:
        text = refusal(functools.partial(print, consumer))
    assert "the argument 0 of sink is a consumer_membership.clients.consumer.Consumer" in text
    assert "send its configuration and create a consumer there" in text
    text = refusal(Writer(Producer(NOWHERE)), "transform")
    assert text.startswith("transform='Writer': ")
    assert "transform.target['rows'] is a cimpl.Producer" in text
    assert "a client belongs to the process that created it" in text


def test_culprit_is_found_inside_attributes_elements_and_bound_methods(connection: sqlite3.Connection) -> None:
    """For a nested culprit, the error has the path to it through attributes, elements and bound methods."""
    where = "sink.target['rows'] is a sqlite3.Connection"
    assert where in refusal(Writer(connection))
    assert where in refusal(Writer(connection).__call__)
    assert "sink.target['rows'][1] is a sqlite3.Connection" in refusal(Writer([1, connection]))
    assert "sink.guard is a _thread.lock" in refusal(Slotted())
    assert "sink.guard is a _thread.lock" in refusal(Looping())


def test_culprit_is_found_in_defaults_and_globals_of_a_function(connection: sqlite3.Connection) -> None:
    """Defaults and globals of a function are pickled with it and are therefore searched."""
    text = refusal(lambda batch, context, to=connection: (batch, context, to))
    assert "the default of 'to' of sink is a sqlite3.Connection" in text
    code = compile("lambda batch: database.execute(batch)", "main", "eval")
    function = eval(code, {"database": connection, "execute": connection})  # noqa: S307 - a module of its own
    assert "the variable 'database' of sink is a sqlite3.Connection" in refusal(function)


def test_attributes_dropped_by_getstate_are_not_culprits(connection: sqlite3.Connection) -> None:
    """Attributes that `__getstate__` drops are not reported."""
    assert pickled(Careful(None))
    assert "sink.connection is a sqlite3.Connection" in refusal(Careful(connection))


def test_error_raised_by_an_objects_own_pickling_is_quoted() -> None:
    """The error of an object's own pickling code is quoted in one line."""
    text = refusal(Unwilling())
    assert "it is a tests.spark.test_pickling.Unwilling (LookupError: not while it rains)" in text
    assert "Sundays" not in text


def test_refusal_shows_no_value() -> None:
    """The refusal shows no value, because values may hold passwords."""

    class Login:
        def __init__(self) -> None:
            self.password, self.guard = "hunter2", threading.Lock()

        def __repr__(self) -> str:
            return f"Login({self.password})"

    assert "hunter2" not in refusal(Login())


def test_spark_session_and_dataframes_are_refused_by_name(spark: SparkSession) -> None:
    """Sessions and DataFrames work only on the driver, so they are refused by name."""
    for held in (spark, spark.sparkContext, spark.range(1)):
        text = refusal(with_variable(held))
        assert "the variable 'held' of sink is a pyspark." in text
        assert "only on the driver; collect the data that the tasks need" in text
