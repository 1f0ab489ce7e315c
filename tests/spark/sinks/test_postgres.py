"""The sink for PostgreSQL on a real server: each record once, whoever dies, stops or comes too late."""

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
    """A table of the test's own, without a key that would hide what is there twice; it is the topic's name, too."""
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
    """What is there, by partition and offset."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(
            f"SELECT partition, record_offset FROM {table} ORDER BY partition, record_offset"  # noqa: S608
        ).fetchall()


def of(partition: int, *numbers: int) -> list[tuple[int, int]]:
    """As `offsets` tells it."""
    return [(partition, number) for number in numbers]


def give(sink: PostgresSink[list[Message]], table: str, parts: dict[int, range], **words: object) -> None:
    """Call a sink with these offsets."""
    sink(batch(parts, table), context(parts, topic=table, **words))  # type: ignore[arg-type]  # builders' words


# ---- the rule ----


def test_batches_are_written_with_their_fences(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """Data and fence in one transaction; the table of fences is made at first use."""
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


def test_records_that_an_attempt_before_wrote_are_left_out(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """It died between the sink's commit and Kafka's; the next one has the same records and more, in other batches."""
    give(sink, table, {0: range(6)}, attempt=1)
    with closing(sent(sink)) as later:
        give(later, table, {0: range(4)}, attempt=2)
        give(later, table, {0: range(4, 9), 1: range(2)}, attempt=2)
    assert offsets(conninfo, table) == of(0, *range(9)) + of(1, 0, 1)


def test_replaced_writer_is_refused_also_if_its_replacement_had_nothing_to_write(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """The fence of whoever came last counts; nothing of the batch is written, of other partitions neither."""
    give(sink, table, {0: range(6)}, epoch=5)
    give(sink, table, {0: range(6)}, epoch=6)
    with pytest.raises(FencedError, match=r"epoch 6, attempt 1\) wrote last, up to offset 6") as caught:
        give(sink, table, {0: range(6, 9), 1: range(3)}, epoch=5)
    assert f"call forget({GROUP!r})" in str(caught.value)
    assert offsets(conninfo, table) == of(0, *range(6))


def test_forgotten_group_begins_anew(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """Its epochs may be lower, and its offsets are written again."""
    group = unique("g")
    give(sink, table, {0: range(2), 1: range(1)}, epoch=9, group=group)
    with pytest.raises(FencedError):
        give(sink, table, {0: range(2, 4)}, epoch=1, group=group)
    assert (sink.forget(group), sink.forget(group)) == (2, 0)
    give(sink, table, {0: range(1, 4)}, epoch=1, group=group)
    assert offsets(conninfo, table) == of(0, 0, 1, 1, 2, 3) + of(1, 0)


def test_writer_that_raises_leaves_nothing(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """Neither records nor fence; its error comes out as it is, and the next call is as the first."""

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


def test_rows_are_copied(conninfo: str, table: str) -> None:
    """One row for each record, into the columns that are named; a schema may stand before the table."""
    copying = PostgresSink.rows(conninfo, f"public.{table}", COLUMNS[1:3], lambda m: (m.partition(), m.offset()))
    give(copying, table, {0: range(1000), 1: range(5)})
    give(copying, table, {0: range(995, 1005)}, attempt=2)
    copying.close()
    assert offsets(conninfo, table) == of(0, *range(1005)) + of(1, *range(5))


def test_rows_refuse_arrow_by_name(conninfo: str, table: str) -> None:
    """They are made of messages; the text says what to do."""
    copying = PostgresSink.rows(conninfo, table, COLUMNS, row)
    with pytest.raises(ConfigurationError, match="batch_format='messages'"):
        give(copying, table, {0: range(3)}, batch_format=BatchFormat.ARROW)
    copying.close()


def test_arrow_batch_lacks_what_is_there(conninfo: str, table: str) -> None:
    """A write of one's own gets the batch in its format, cut as messages are."""
    taken: list[list[int]] = []

    def take(_: psycopg.Cursor[tuple[object, ...]], batch: pa.RecordBatch, __: SinkContext) -> None:
        taken.append(batch["offset"].to_pylist())

    arrow = PostgresSink(conninfo, take, name=table)
    for attempt, part in enumerate([range(4), range(2, 6)]):
        about = context({0: part}, topic=table, attempt=attempt, batch_format=BatchFormat.ARROW)
        arrow(record_batch(batch({0: part}, table)), about)
    arrow.close()
    assert taken == [[0, 1, 2, 3], [4, 5]]


def test_two_sinks_of_one_name_in_a_task_are_told_apart(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """What the first wrote is not there for the second, which would leave it out without a word."""
    other = PostgresSink(conninfo, functools.partial(insert, table=table), name="s")
    give(sink, table, {0: range(3)})
    with pytest.raises(ConfigurationError, match="each sink of a group needs its own"):
        give(other, table, {0: range(3)})
    other.close()
    named = PostgresSink(conninfo, functools.partial(insert, table=table), name="another")
    give(named, table, {0: range(3)})
    named.close()
    assert offsets(conninfo, table) == of(0, 0, 0, 1, 1, 2, 2)


# ---- those who stopped ----


@pytest.mark.parametrize("point", ["before", "inside", "copy"])
def test_stopped_attempt_writes_nothing_after_its_replacement(
    conninfo: str, table: str, sink: PostgresSink[list[Message]], point: str
) -> None:
    """Before its transaction, inside it, or within a COPY, where no timeout counts: nobody waits for it for long."""
    with zombie("postgres", point, conninfo, table, 5, 1, 0, 4) as stopped:
        give(sink, table, {0: range(6)}, attempt=2)
        said = stopped.go_on()
    assert said.startswith("FencedError")
    assert "'pipe-0' (epoch 5, attempt 1) was replaced: 'pipe-0' (epoch 5, attempt 2) wrote last" in said
    assert offsets(conninfo, table) == of(0, *range(6))


def test_attempt_that_nobody_replaced_goes_on_where_it_was_stopped(conninfo: str, table: str) -> None:
    """PostgreSQL ended its session meanwhile; it begins its batch again on another one."""
    with zombie("postgres", "inside", conninfo, table, 5, 1, 0, 4) as stopped:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            # idle_timeout_s of its own.
            wait_until(lambda: not holders(connection), "the end of its session")
        assert stopped.go_on() == "done"
    assert offsets(conninfo, table) == of(0, *range(4))


def holders(connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sessions in the middle of a transaction of a sink."""
    return connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'consumer_membership' AND state <> 'idle'"
    ).fetchall()


def test_blocked_writer_that_is_not_confirmed_ends_nobody(
    conninfo: str, table: str, sink: PostgresSink[list[Message]]
) -> None:
    """Whoever waits for the fences and was replaced hears it from the coordinator, and the owner's session lives."""
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


def test_many_attempts_at_once_write_each_record_once(conninfo: str, table: str) -> None:
    """Whoever is first with which batch: the highest rank gets everything through, the others stop or find it done."""

    def attempt(number: int, batches: Iterable[range]) -> None:
        with closing(PostgresSink(conninfo, functools.partial(insert, table=table), name="s")) as sink:
            for numbers in batches:
                give(sink, table, dict.fromkeys((0, 1), numbers), attempt=number)

    assert (3, "done") in rivals(attempt)
    assert offsets(conninfo, table) == of(0, *range(60)) + of(1, *range(60))


def test_fences_that_stay_held_are_a_clear_error(conninfo: str, table: str) -> None:
    """By a role whose sessions cannot be ended, say; the text names the table, the wait and where to look."""
    sink = PostgresSink(conninfo, functools.partial(insert, table=table), name="s", lock_timeout_s=0.5)
    give(sink, table, {0: range(1)})
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as another:
        # Who shares a lock with others does not stand in the row.
        for holder in (one, another):
            holder.execute("SELECT 1 FROM consumer_membership_fences WHERE topic = %s FOR SHARE", (table,))
        with pytest.raises(SinkError, match=r"held the fences of t_\S+@1..2 .* pg_stat_activity"):
            give(sink, table, {0: range(1, 3)})
    sink.close()
    assert offsets(conninfo, table) == of(0, 0)


# ---- the table of fences, connections ----


def test_many_make_the_table_of_fences_at_once(conninfo: str, table: str) -> None:
    """Tasks start together, and PostgreSQL's own IF NOT EXISTS may refuse one of two."""
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


def test_lost_connection_is_made_again(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """A server that was started anew, or a session that an operator ended: the batch is written all the same."""
    give(sink, table, {0: range(2)})
    with psycopg.connect(conninfo, autocommit=True) as operator:
        operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'consumer_membership'"
        )
    give(sink, table, {0: range(2, 4)})
    assert offsets(conninfo, table) == of(0, *range(4))


def test_sink_is_sent_without_its_connection(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """Also after it was used, and with a function of its own."""
    give(sink, table, {0: range(2)})
    copy = sent(sink)
    give(copy, table, {0: range(2, 4)})
    copy.close()
    assert offsets(conninfo, table) == of(0, *range(4))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_has_a_connection_of_its_own(conninfo: str, table: str, sink: PostgresSink[list[Message]]) -> None:
    """And leaves its parent's alone."""
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


def test_password_is_in_no_text(conninfo: str, table: str) -> None:
    """Neither the sink's, nor that of an error about the connection string or the server."""
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
    """A sink of rows that is looked at only."""
    return PostgresSink.rows(conninfo, table, columns, lambda _: (), **words)


def test_check_use_finds_tables_and_rights(conninfo: str, table: str) -> None:
    """What is there is named; a table of fences that is not there yet may be created."""
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
    """The error names what is wrong and what is there, before any task starts."""
    asked = {"table": table, "columns": ["topic"], "batch_format": BatchFormat.MESSAGES, **change}
    sink = rows(conninfo, str(asked["table"]), list(asked["columns"]))  # type: ignore[call-overload]  # the test's words
    with pytest.raises(ConfigurationError, match=words) as refused:
        sink.check_use(use(BatchFormat(str(asked["batch_format"]))))
    assert refused.value.key == key


def test_check_use_refuses_a_user_without_the_right_to_write(conninfo: str, table: str) -> None:
    """The right that is missing is named, with the table."""
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
