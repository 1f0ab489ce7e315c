"""The PostgreSQL sink on a real server: each record is written once, even if an attempt dies, pauses or is late."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Message
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark import BatchFormat, SinkContext
from consumer_membership.spark.batches import record_batch
from consumer_membership.spark.sinks import PostgresSink
from tests.spark.sinks.builders import GROUP, TOPIC, Word, batch, context, rivals, sent, use
from tests.spark.sinks.zombie import COLUMNS, insert, row, zombie
from tests.support.kafka import unique
from tests.support.postgres import PASSWORD
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def table(conninfo: str) -> Iterator[str]:
    """A table for one test, without a key that would hide duplicates; its name is also the topic's."""
    name = unique("t").replace("-", "_")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (topic text, partition int, record_offset bigint, value text)")
        yield name
        connection.execute(f"DROP TABLE {name}")


@pytest.fixture
def sink(conninfo: str, table: str) -> Iterator[PostgresSink[list[Message]]]:
    """A sink that writes row by row."""
    made = PostgresSink(conninfo, functools.partial(insert, table=table), name="s")
    yield made
    made.close()


def offsets(conninfo: str, table: str) -> list[tuple[int, int]]:
    """The offsets in the table, by partition and offset."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(
            f"SELECT partition, record_offset FROM {table} ORDER BY partition, record_offset"  # noqa: S608
        ).fetchall()


def of(partition: int, *numbers: int) -> list[tuple[int, int]]:
    """These offsets in the form that `offsets` returns."""
    return [(partition, number) for number in numbers]


def give(sink: PostgresSink[list[Message]], table: str, parts: dict[int, range], **words: object) -> None:
    """Call a sink with these offsets."""
    sink(batch(parts, table), context(parts, topic=table, **words))  # type: ignore[arg-type]  # untyped options


# ---- the rule ----


def test_postgres_sink_writes_batches_with_their_fences(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """Data and fence are one transaction, and the first batch creates the fence table."""
    give(sink, table, {0: range(3), 1: range(10, 12)}, epoch=4, attempt=7)
    give(sink, table, {0: range(3, 5)}, epoch=4, attempt=7)
    assert offsets(conninfo, table) == of(0, 0, 1, 2, 3, 4) + of(1, 10, 11)
    with psycopg.connect(conninfo) as connection:
        fences = connection.execute(
            "SELECT sink, consumer_group, partition, next_offset, epoch, attempt, writer"
            " FROM consumer_membership_fences WHERE topic = %s ORDER BY partition",
            (table,),
        ).fetchall()
    assert fences == [("s", GROUP, 0, 5, 4, 7, "pipe-0"), ("s", GROUP, 1, 12, 4, 7, "pipe-0")]


def test_records_written_by_an_earlier_attempt_are_skipped(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """The earlier attempt died between the sink's commit and Kafka's; the next one gets the same records and more."""
    give(sink, table, {0: range(6)}, attempt=1)
    with closing(sent(sink)) as later:
        give(later, table, {0: range(4)}, attempt=2)
        give(later, table, {0: range(4, 9), 1: range(2)}, attempt=2)
    assert offsets(conninfo, table) == of(0, *range(9)) + of(1, 0, 1)


def test_replaced_writer_is_fenced_even_if_its_replacement_wrote_no_record(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """The last caller's fence counts, and nothing of the replaced writer's batch is written."""
    give(sink, table, {0: range(6)}, epoch=5)
    give(sink, table, {0: range(6)}, epoch=6)
    with pytest.raises(FencedError, match=r"epoch 6, attempt 1\) wrote last, up to offset 6") as caught:
        give(sink, table, {0: range(6, 9), 1: range(3)}, epoch=5)
    assert f"call forget({GROUP!r})" in str(caught.value)
    assert offsets(conninfo, table) == of(0, *range(6))


def test_forget_allows_lower_epochs_and_offsets(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """After `forget`, the group may have lower epochs, and its offsets are written again."""
    group = unique("g")
    give(sink, table, {0: range(2), 1: range(1)}, epoch=9, group=group)
    with pytest.raises(FencedError):
        give(sink, table, {0: range(2, 4)}, epoch=1, group=group)
    assert (sink.forget(group), sink.forget(group)) == (2, 0)
    give(sink, table, {0: range(1, 4)}, epoch=1, group=group)
    assert offsets(conninfo, table) == of(0, 0, 1, 1, 2, 3) + of(1, 0)


def test_write_function_that_raises_leaves_neither_records_nor_fence(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """The error is raised unchanged, and the next call works like the first."""

    def half(cursor: psycopg.Cursor[tuple[object, ...]], messages: list[Message], about: SinkContext) -> None:
        insert(cursor, messages[:1], about, table=table)
        raise ZeroDivisionError

    broken = PostgresSink(conninfo, half, name="s")
    with pytest.raises(ZeroDivisionError):
        give(broken, table, {0: range(3)})
    broken.close()
    assert offsets(conninfo, table) == []
    give(sink, table, {0: range(3)})
    assert offsets(conninfo, table) == of(0, 0, 1, 2)


# ---- COPY, formats ----


def test_rows_sink_copies_one_row_per_record(conninfo: str, table: str) -> None:
    """COPY writes the named columns; the table's name may include a schema."""
    copying = PostgresSink.rows(conninfo, f"public.{table}", COLUMNS[1:3], lambda m: (m.partition(), m.offset()))
    give(copying, table, {0: range(1000), 1: range(5)})
    give(copying, table, {0: range(995, 1005)}, attempt=2)
    copying.close()
    assert offsets(conninfo, table) == of(0, *range(1005)) + of(1, *range(5))


def test_rows_sink_refuses_arrow_batches_with_a_remedy(conninfo: str, table: str) -> None:
    """Rows are made from messages, so the error asks for the messages format."""
    copying = PostgresSink.rows(conninfo, table, COLUMNS, row)
    with pytest.raises(ConfigurationError, match="batch_format='messages'"):
        give(copying, table, {0: range(3)}, batch_format=BatchFormat.ARROW)
    copying.close()


def test_arrow_batch_is_cut_below_the_stored_offset(conninfo: str, table: str) -> None:
    """A custom write function gets an Arrow batch without the records that are already written."""
    taken: list[list[int]] = []

    def take(_: psycopg.Cursor[tuple[object, ...]], batch: pa.RecordBatch, __: SinkContext) -> None:
        taken.append(batch["offset"].to_pylist())

    arrow = PostgresSink(conninfo, take, name=table)
    for attempt, part in enumerate([range(4), range(2, 6)]):
        about = context({0: part}, topic=table, attempt=attempt, batch_format=BatchFormat.ARROW)
        arrow(record_batch(batch({0: part}, table)), about)
    arrow.close()
    assert taken == [[0, 1, 2, 3], [4, 5]]


def test_two_sinks_with_one_name_in_a_task_are_refused(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """Otherwise the second sink would skip the records that the first one wrote."""
    other = PostgresSink(conninfo, functools.partial(insert, table=table), name="s")
    give(sink, table, {0: range(3)})
    with pytest.raises(ConfigurationError, match="each sink of a group needs its own"):
        give(other, table, {0: range(3)})
    other.close()
    named = PostgresSink(conninfo, functools.partial(insert, table=table), name="another")
    give(named, table, {0: range(3)})
    named.close()
    assert offsets(conninfo, table) == of(0, 0, 0, 1, 1, 2, 2)


# ---- stopped attempts ----


@pytest.mark.parametrize("point", ["before", "inside", "copy"])
def test_stopped_attempt_writes_nothing_after_its_replacement(
    conninfo: str, table: str, sink: PostgresSink[list[Message]], point: str
) -> None:
    """Stopped before or inside its transaction, or within a COPY, the attempt delays no other attempt for long."""
    with zombie("postgres", point, conninfo, table, 5, 1, 0, 4) as stopped:
        give(sink, table, {0: range(6)}, attempt=2)
        text = stopped.go_on()
    assert text.startswith("FencedError")
    assert "'pipe-0' (epoch 5, attempt 1) was replaced: 'pipe-0' (epoch 5, attempt 2) wrote last" in text
    assert offsets(conninfo, table) == of(0, *range(6))


def test_stopped_attempt_without_a_replacement_repeats_its_batch(conninfo: str, table: str) -> None:
    """PostgreSQL has ended the attempt's session meanwhile, so it begins its batch again in a new one."""
    with zombie("postgres", "inside", conninfo, table, 5, 1, 0, 4) as stopped:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            # After the attempt's own idle_timeout_s.
            wait_until(lambda: not holders(connection), "the end of its session")
        assert stopped.go_on() == "done"
    assert offsets(conninfo, table) == of(0, *range(4))


def holders(connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sessions that are in a transaction of a sink."""
    return connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'consumer_membership' AND state <> 'idle'"
    ).fetchall()


def test_blocked_writer_without_confirmation_ends_no_session(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """A replaced attempt that waits for fences asks the coordinator first and leaves the owner's session alone."""
    may_go_on, is_inside = threading.Event(), threading.Event()

    def slow(cursor: psycopg.Cursor[tuple[object, ...]], messages: list[Message], about: SinkContext) -> None:
        is_inside.set()
        assert may_go_on.wait(60)
        insert(cursor, messages, about, table=table)

    owner = PostgresSink(conninfo, slow, name="s", idle_timeout_s=120)
    thread = threading.Thread(target=give, args=(owner, table, {0: range(3)}), kwargs={"attempt": 2})
    thread.start()
    assert is_inside.wait(60)
    with pytest.raises(FencedError, match="does not confirm"):
        give(sink, table, {0: range(3)}, attempt=1, ownership=Word(is_owner=False))
    may_go_on.set()
    thread.join(60)
    owner.close()
    assert offsets(conninfo, table) == of(0, 0, 1, 2)


def test_concurrent_attempts_write_each_record_once(conninfo: str, table: str) -> None:
    """The attempt with the highest rank writes all records; the others are fenced or find the records written."""

    def attempt(number: int, batches: Iterable[range]) -> None:
        with closing(PostgresSink(conninfo, functools.partial(insert, table=table), name="s")) as sink:
            for numbers in batches:
                give(sink, table, dict.fromkeys((0, 1), numbers), attempt=number)

    assert (3, "done") in rivals(attempt)
    assert offsets(conninfo, table) == of(0, *range(60)) + of(1, *range(60))


def test_fences_held_beyond_the_timeout_raise_sink_error(conninfo: str, table: str) -> None:
    """If the sink cannot end the holders' sessions, the error names the table, the wait and where to look."""
    sink = PostgresSink(conninfo, functools.partial(insert, table=table), name="s", lock_timeout_s=0.5)
    give(sink, table, {0: range(1)})
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as another:
        # A row lock that two transactions share does not name its holders, so the sink cannot end their sessions.
        for holder in (one, another):
            holder.execute("SELECT 1 FROM consumer_membership_fences WHERE topic = %s FOR SHARE", (table,))
        with pytest.raises(SinkError, match=r"held the fences of t_\S+@1..2 .* pg_stat_activity"):
            give(sink, table, {0: range(1, 3)})
    sink.close()
    assert offsets(conninfo, table) == of(0, 0)


# ---- the table of fences, connections ----


def test_concurrent_tasks_create_the_fence_table(conninfo: str, table: str) -> None:
    """PostgreSQL's IF NOT EXISTS may fail for one of two concurrent sessions; the sink retries."""
    fences = f"{table}_fences"
    gate = threading.Barrier(8)

    def one(partition: int) -> None:
        sink = PostgresSink(conninfo, functools.partial(insert, table=table), fence_table=f"public.{fences}")
        with closing(sink):
            gate.wait(PATIENCE_S)
            give(sink, table, {partition: range(2)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    assert offsets(conninfo, table) == [(partition, offset) for partition in range(8) for offset in range(2)]


def test_lost_connection_is_reopened_and_the_batch_is_written(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """The sink reconnects after a server restart, or after an operator ended its session."""
    give(sink, table, {0: range(2)})
    with psycopg.connect(conninfo, autocommit=True) as operator:
        operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'consumer_membership'"
        )
    give(sink, table, {0: range(2, 4)})
    assert offsets(conninfo, table) == of(0, *range(4))


def test_postgres_sink_is_pickled_without_its_connection(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """A sink can be pickled after use and with a custom write function."""
    give(sink, table, {0: range(2)})
    copy = sent(sink)
    give(copy, table, {0: range(2, 4)})
    copy.close()
    assert offsets(conninfo, table) == of(0, *range(4))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_opens_its_own_connection(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """The child does not use the connection of its parent."""
    give(sink, table, {0: range(2)})
    child = os.fork()
    if child == 0:
        try:
            give(sink, table, {0: range(2, 4)})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    give(sink, table, {0: range(4, 6)})
    assert offsets(conninfo, table) == of(0, *range(6))


def test_postgres_sink_shows_no_password(conninfo: str, table: str) -> None:
    """Neither the repr nor an error about the connection string or the server has the password."""
    write = functools.partial(insert, table=table)
    texts = [repr(PostgresSink(conninfo, write))]
    with pytest.raises(ConfigurationError) as unreadable:
        PostgresSink(f"host=there password={PASSWORD} {PASSWORD}", write)
    texts.append(repr(unreadable.value))
    nowhere = conninfo_to_dict(conninfo) | {"port": "1", "password": PASSWORD}
    sink = PostgresSink(" ".join(f"{key}={value}" for key, value in nowhere.items()), write)
    with pytest.raises(SinkError, match="connection to PostgreSQL was lost") as unreachable:
        give(sink, TOPIC, {0: range(2)})
    texts += [repr(unreachable.value), repr(unreachable.value.__cause__)]
    assert [text for text in texts if PASSWORD in text] == []


# ---- before a job ----------------------------------------------------------------------------------------------------


def rows(conninfo: str, table: str, columns: list[str], **words: Any) -> PostgresSink[list[Message]]:
    """A rows sink that is only examined."""
    return PostgresSink.rows(conninfo, table, columns, lambda _: (), **words)


def test_check_use_reports_tables_and_rights(conninfo: str, table: str) -> None:
    """The text names the table; a missing fence table is fine if it may be created."""
    found = rows(conninfo, table, ["topic", "value"], fence_table=f"fences_of_{table}").check_use(use())
    assert found == (
        f"table {table} has the columns and may be written; "
        f"table fences_of_{table} for the fences is created by the first batch"
    )


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"batch_format": BatchFormat.ARROW}, "batch_format", "use batch_format='messages'"),
        ({"table": "nowhere"}, "table", "does not exist in this database"),
        ({"columns": ["topic", "vaule"]}, "columns", "has the columns topic, partition, record_offset, value"),
    ],
)
def test_check_use_refuses_rows_that_cannot_be_written(
    conninfo: str, table: str, change: dict[str, object], key: str, words: str
) -> None:
    """The error names the problem and the existing tables or columns, before a task starts."""
    asked = {"table": table, "columns": ["topic"], "batch_format": BatchFormat.MESSAGES, **change}
    sink = rows(conninfo, str(asked["table"]), list(asked["columns"]))  # type: ignore[call-overload]  # untyped options
    with pytest.raises(ConfigurationError, match=words) as refused:
        sink.check_use(use(BatchFormat(str(asked["batch_format"]))))
    assert refused.value.key == key


def test_check_use_refuses_a_user_without_the_right_to_write(conninfo: str, table: str) -> None:
    """The error names the missing right and the table."""
    user = f"reader_{table}"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"GRANT SELECT ON {table} TO {user}")
        try:
            theirs = make_conninfo(conninfo, user=user, password=PASSWORD)
            with pytest.raises(ConfigurationError, match=f"GRANT INSERT ON {table}") as refused:
                rows(theirs, table, ["topic"]).check_use(use())
            with pytest.raises(ConfigurationError, match="may not create it; GRANT CREATE"):
                PostgresSink(theirs, lambda *_: None, fence_table=f"fences_of_{table}").check_use(use())
        finally:
            connection.execute(f"DROP OWNED BY {user}; DROP ROLE {user}")
    assert refused.value.key == "table"
