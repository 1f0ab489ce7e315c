"""`PostgresSink`: write records to PostgreSQL, in one transaction with the fences of their partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from confluent_kafka import Message
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from consumer_membership.errors import ConfigurationError, SinkError
from consumer_membership.installation import install_command
from consumer_membership.spark.batches import Batch, after
from consumer_membership.spark.context import BatchFormat, Partition, SinkContext, SinkUse, name_record
from consumer_membership.spark.sinks.resource import PerProcess
from consumer_membership.spark.sinks.ruling import UNWRITTEN, Ruling, StoredFence, batch_name, rule

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.rows import TupleRow

_log = logging.getLogger("consumer_membership.spark")

BatchT = TypeVar("BatchT")

#: How long a batch waits for locked fences before it requests the coordinator's confirmation, with which it may end the
#: session that holds them.
_FENCE_WAIT_S = 1.0
#: The timeout of the driver's check before a job starts.
_CHECK_S = 5
#: How often one call starts a batch if the connection was lost, or PostgreSQL chose it as a deadlock's victim.
_ATTEMPTS = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class PostgresSink(Generic[BatchT]):
    """Writes each batch and the fences of its partitions in one transaction, so each record is stored exactly once.

    `write(cursor, batch, context)` writes the records. It must not end the transaction, which is committed when `write`
    returns and rolled back when it raises an exception; then `write` may be called again with the same batch. Records
    that are in the database already, because a previous attempt wrote them but did not commit them to Kafka, are left
    out of the batch; `context` still describes the whole batch.

    The fences are in one table, `fence_table`, created at first use. Each sink of a group has its rows there under its
    `name`: if the batches of one group go to two sinks, they need two names. Offsets in this table have precedence over
    the group's offsets: to write offsets again, after a reset or after the topic was deleted and created again, call
    `forget`.

    An attempt that was stopped and continues gets a `FencedError`, and writes nothing. While it is stopped, it does not
    block its replacement: the replacement requests a confirmation from the coordinator, and then ends the session that
    holds the fences. For this, both need the same role, or the replacement needs `pg_signal_backend`. Otherwise the
    replacement waits until PostgreSQL ends the session, `idle_timeout_s` after its last statement; during a COPY there
    is no such timeout.

    Args:
        conninfo: The connection string, as for libpq: `host=... dbname=...` or `postgresql://...`. It is sent to the
            tasks and never printed. It needs no password if each machine has a service or password file.
        write: The function that writes a batch.
        name: The name of this sink among the sinks of one group in one database.
        fence_table: The table of the fences, with or without a schema.
        lock_timeout_s: How long a batch waits for the fences, and a statement of `write` for a lock, in seconds.
        idle_timeout_s: How long `write` may wait between two statements, in seconds.

    Raises:
        ConfigurationError: psycopg is not installed, or libpq cannot read `conninfo`.
    """

    def __init__(
        self,
        conninfo: str,
        write: Callable[[Cursor[TupleRow], BatchT, SinkContext], None],
        *,
        name: str = "default",
        fence_table: str = "consumer_membership_fences",
        lock_timeout_s: float = 30.0,
        idle_timeout_s: float = 10.0,
    ) -> None:
        _check(conninfo)
        self._conninfo = conninfo
        self._write = write
        self._lock_timeout_s = lock_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._fences = _FenceTable(table=fence_table, sink=name)
        self._connection: PerProcess[Connection[TupleRow]] = PerProcess()
        #: The next offset of the fences that this sink has tried to store, by group and partition.
        self._tried: dict[tuple[str, Partition], int] = {}

    @classmethod
    def rows(
        cls,
        conninfo: str,
        table: str,
        columns: Sequence[str],
        row: Callable[[Message], Sequence[object]],
        *,
        name: str | None = None,
        fence_table: str = "consumer_membership_fences",
        lock_timeout_s: float = 30.0,
        idle_timeout_s: float = 10.0,
    ) -> PostgresSink[list[Message]]:
        """Return a sink that writes one row for each message, by COPY.

        The sink accepts only batches of messages, not Arrow or pandas.

        Args:
            conninfo: As for `PostgresSink`.
            table: The table of the rows, with or without a schema (`schema.table`).
            columns: The names of the columns.
            row: A function that takes a message and returns the values of `columns`, in this order.
            name: As for `PostgresSink`; default: the table.
            fence_table: As for `PostgresSink`.
            lock_timeout_s: As for `PostgresSink`.
            idle_timeout_s: As for `PostgresSink`.
        """
        return PostgresSink(
            conninfo,
            CopyRows(table=table, columns=tuple(columns), row=row),
            name=name or table,
            fence_table=fence_table,
            lock_timeout_s=lock_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    def __repr__(self) -> str:
        return f"PostgresSink(name={self._fences.sink!r}, fence_table={self._fences.table!r})"

    def __call__(self, batch: BatchT, context: SinkContext) -> None:
        """Write the records of a batch that are not in the database yet.

        Raises:
            FencedError: another attempt has written one of the partitions since; nothing was written.
            SinkError: the database cannot be reached, or another session holds the fences; nothing was written.
            ConfigurationError: two sinks have the same name.
        """
        attempts = Retrying(
            retry=retry_if_exception_type((_LostError, _FenceHeldError)),
            stop=self._is_enough,
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            reraise=True,
        )
        try:
            attempts(self._begin, batch, context)
        except _FenceHeldError as held:
            raise SinkError(
                f"another transaction has held the fences of {batch_name(context)} in {self._fences.table} for more"
                f" than {self._lock_timeout_s:g} s (lock_timeout_s); look for it in pg_stat_activity. Nothing was"
                " written"
            ) from held
        except _LostError as lost:
            cause = lost.__cause__
            raise SinkError(
                f"the connection to PostgreSQL was lost {_ATTEMPTS} times: {cause}; check PostgreSQL's log, and whether"
                f" `write` waits for more than {self._idle_timeout_s:g} s between two statements (idle_timeout_s)."
                f" Nothing was written of {batch_name(context)}"
            ) from cause

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write to the tables; return a description of what exists.

        Raises:
            ConfigurationError: `rows` with Arrow or pandas; a table or a column that does not exist, or may not be
                written.
            psycopg.Error: the database cannot be reached.
        """
        rows = self._write if isinstance(self._write, CopyRows) else None
        if rows is not None:
            rows.refuse_format(use.batch_format)
        if not use.is_on_driver:
            return ""
        with self._connected(_CHECK_S) as connection, connection.cursor() as cursor:
            found = [] if rows is None else [rows.checked(cursor)]
            found.append(self._fences.checked(cursor))
        return "; ".join(found)

    def close(self) -> None:
        """Release the connection."""
        connection = self._connection.taken()
        if connection is not None:
            connection.close()

    def forget(self, group: str) -> int:
        """Remove the fences of a group; return their number.

        For a group that was deleted, so that its epochs started again, or whose offsets are to be written again. The
        data stays. No member of the group may be running.
        """
        with self._connected() as connection:
            return self._fences.forget(connection, group)

    # ---- one attempt ----

    def _begin(self, batch: BatchT, context: SinkContext) -> None:
        from psycopg import OperationalError, errors

        try:
            connection = self._connection.get(self._connected)
        except OperationalError as error:
            raise _LostError from error
        try:
            self._transact(connection, batch, context)
        except _FenceHeldError:
            self._end_holders(connection, context)
            raise
        except (errors.DeadlockDetected, errors.SerializationFailure) as victim:
            raise _LostError from victim
        except Exception as raised:
            if not connection.closed:
                raise
            # On a new connection, the fences show whether the transaction was committed.
            self.close()
            raise _LostError from raised

    def _transact(self, connection: Connection[TupleRow], batch: BatchT, context: SinkContext) -> None:
        partitions = [part.topic_partition for part in context.ranges]
        self._fences.prepare(connection, context.group, partitions)
        with connection.transaction(), connection.cursor() as cursor:
            self._limit(cursor, _FENCE_WAIT_S)
            stored = self._fences.lock(cursor, context.group, partitions)
            self._limit(cursor, self._lock_timeout_s)
            ruling = rule(context, stored, remedy=f"call forget({context.group!r}) of this sink")
            self._refuse_another_of_the_name(context, stored)
            left = self._left(batch, context, ruling)
            if left is not None:
                with connection.cursor() as theirs:
                    self._write(theirs, left, context)
            self._fences.store(cursor, context.group, ruling.fences)
            context.check_leases()

    def _left(self, batch: BatchT, context: SinkContext, ruling: Ruling) -> BatchT | None:
        if ruling.is_whole:
            return batch
        _log.info("Sink %s already has records of %s; they are left out", self._fences.sink, batch_name(context))
        if ruling.is_empty:
            return None
        return cast("BatchT", after(cast("Batch", batch), context.batch_format, ruling.positions))

    def _limit(self, cursor: Cursor[TupleRow], lock_timeout_s: float) -> None:
        # For this transaction only: with a pooler, another client uses the session afterwards.
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)",
            (f"{lock_timeout_s * 1000:.0f}ms", f"{self._idle_timeout_s * 1000:.0f}ms"),
        )

    def _refuse_another_of_the_name(self, context: SinkContext, stored: Mapping[Partition, StoredFence]) -> None:
        """Raise ConfigurationError if another sink of this task has the same name, and so the same fences."""
        for part, fence in zip(context.ranges, context.fences, strict=True):
            key = (context.group, part.topic_partition)
            last = stored.get(part.topic_partition, UNWRITTEN)
            if last.rank == fence.rank and last.next_offset > max(part.first, self._tried.get(key, 0)):
                raise ConfigurationError(
                    "name",
                    self._fences.sink,
                    f"another sink of this task has written {part.topic}-{part.partition} under this name; each sink"
                    " of a group needs its own name",
                )
            self._tried[key] = max(part.next_offset, last.next_offset)

    def _end_holders(self, connection: Connection[TupleRow], context: SinkContext) -> None:
        # If the coordinator confirms this member, the holder of the fences was replaced. Otherwise this member was
        # replaced, and `verify` raises.
        context.verify()
        ended = self._fences.end_holders(connection, context.group, [part.topic_partition for part in context.ranges])
        if ended:
            _log.info("Ended %s session(s) of replaced writers that held the fences of %s", ended, batch_name(context))

    def _is_enough(self, state: RetryCallState) -> bool:
        raised = state.outcome.exception() if state.outcome is not None else None
        if isinstance(raised, _FenceHeldError):
            return (state.seconds_since_start or 0.0) >= self._lock_timeout_s
        return state.attempt_number >= _ATTEMPTS

    def _connected(self, connect_timeout_s: int | None = None) -> Connection[TupleRow]:
        from psycopg import Connection, IsolationLevel

        # Without prepared statements, which a pooler that shares sessions between transactions does not support.
        connection = Connection.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=None,
            fallback_application_name="consumer_membership",
            connect_timeout=connect_timeout_s,
        )
        # With this level, a SELECT that has waited for a lock reads the committed fences.
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        return connection


# ---- the table of fences ----

_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    sink text, consumer_group text, topic text, partition integer,
    next_offset bigint NOT NULL, epoch integer NOT NULL, attempt bigint NOT NULL, writer text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sink, consumer_group, topic, partition)
)"""
_INSERT = """
INSERT INTO {table} (sink, consumer_group, topic, partition, next_offset, epoch, attempt, writer)
SELECT %(sink)s, %(group)s, topic, partition, %(next_offset)s, %(epoch)s, %(attempt)s, %(writer)s
FROM unnest(%(topics)s::text[], %(partitions)s::integer[]) AS batch (topic, partition)
ON CONFLICT DO NOTHING"""
_ROWS_OF_BATCH = """
    sink = %(sink)s AND consumer_group = %(group)s
    AND (topic, partition) IN (SELECT * FROM unnest(%(topics)s::text[], %(partitions)s::integer[]))"""
# Always in the same order, so that two batches of several partitions never wait for each other.
_LOCK = f"""
SELECT topic, partition, next_offset, epoch, attempt, writer FROM {{table}} WHERE {_ROWS_OF_BATCH}
ORDER BY topic, partition FOR UPDATE"""  # noqa: S608 - names of our own
_STORE = """
UPDATE {table} AS stored
SET next_offset = batch.next_offset, epoch = batch.epoch, attempt = batch.attempt, writer = %(writer)s,
    written_at = now()
FROM unnest(
    %(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(epochs)s::integer[], %(attempts)s::bigint[]
) AS batch (topic, partition, next_offset, epoch, attempt)
WHERE sink = %(sink)s AND consumer_group = %(group)s
    AND stored.topic = batch.topic AND stored.partition = batch.partition"""
# A row's xmax is the transaction that locks or has changed the row; this transaction holds the lock of its own id.
_END_HOLDERS = f"""
SELECT pg_terminate_backend(pid) FROM (
    SELECT DISTINCT pid FROM {{table}} AS fences
    JOIN pg_locks ON locktype = 'transactionid' AND granted AND transactionid = fences.xmax
    WHERE pid <> pg_backend_pid() AND {_ROWS_OF_BATCH}
) AS holders"""  # noqa: S608 - names of our own
_FORGET = "DELETE FROM {table} WHERE sink = %(sink)s AND consumer_group = %(group)s"


class _FenceHeldError(Exception):
    """Another transaction holds the fences of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FenceTable:
    """The fences of one sink, a row for each group and partition; `table` may have a schema (`schema.table`).

    Every batch locks its rows first. So if two attempts write at the same time, one waits for the other's transaction
    before it writes anything else.
    """

    table: str
    sink: str

    def prepare(self, connection: Connection[TupleRow], group: str, partitions: Sequence[Partition]) -> None:
        """Create the table and the rows if they do not exist.

        This is done before the batch's transaction, so that all attempts see each row that is locked.
        """
        from psycopg import errors

        with self._as_sink_error(connection), connection.cursor() as cursor:
            with suppress(errors.UndefinedTable):
                self._execute(cursor, _INSERT, group, partitions, **asdict(UNWRITTEN))
                return
            # IF NOT EXISTS is not atomic: if two sessions create the table at once, one fails with a duplicate key in
            # the catalog when the other has committed.
            with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
                self._execute(cursor, _CREATE, group, ())
                _log.info("Created the table %s for the fences of sinks", self.table)
            self._execute(cursor, _INSERT, group, partitions, **asdict(UNWRITTEN))

    def checked(self, cursor: Cursor[TupleRow]) -> str:
        """Return a description of the table; raise ConfigurationError if this user may not create or write it."""
        rights = _rights(cursor, self.table, "SELECT", "INSERT", "UPDATE")
        if rights is not None:
            if lacking := [right for right, is_given in rights.items() if not is_given]:
                raise _forbidden("fence_table", self.table, lacking)
            return f"table {self.table} for the fences may be written"
        schema, dot, _ = self.table.rpartition(".")
        cursor.execute(
            "SELECT coalesce(has_schema_privilege(to_regnamespace(%s)::oid, 'CREATE'), false)"
            if dot
            else "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)",
            (_quoted(schema),) if dot else None,
        )
        if cursor.fetchone() != (True,):
            raise ConfigurationError(
                "fence_table",
                self.table,
                "this table does not exist, and the user may not create it; GRANT CREATE on the schema, or let another "
                "user create the table and GRANT SELECT, INSERT and UPDATE on it",
            )
        return f"table {self.table} for the fences is created by the first batch"

    def lock(
        self, cursor: Cursor[TupleRow], group: str, partitions: Sequence[Partition]
    ) -> dict[Partition, StoredFence]:
        """Lock the rows until the transaction ends, and return them; raise _FenceHeldError after the lock timeout."""
        from psycopg import errors

        try:
            with self._as_sink_error(cursor.connection):
                self._execute(cursor, _LOCK, group, partitions)
        except errors.LockNotAvailable as held:
            raise _FenceHeldError from held
        return {
            (topic, partition): StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer=writer)
            for topic, partition, next_offset, epoch, attempt, writer in cursor
        }

    def store(self, cursor: Cursor[TupleRow], group: str, fences: Mapping[Partition, StoredFence]) -> None:
        """Store the fences in the locked rows; raise SinkError if the rows were removed."""
        stored = list(fences.values())
        values = {
            "offsets": [fence.next_offset for fence in stored],
            "epochs": [fence.epoch for fence in stored],
            "attempts": [fence.attempt for fence in stored],
            "writer": stored[0].writer,
        }
        with self._as_sink_error(cursor.connection):
            self._execute(cursor, _STORE, group, list(fences), **values)
        if cursor.rowcount != len(fences):
            raise SinkError(f"the fences of group {group!r} in {self.table} were removed while a batch was written")

    def end_holders(self, connection: Connection[TupleRow], group: str, partitions: Sequence[Partition]) -> int:
        """End the sessions whose transactions hold these rows; return their number.

        Only the owner of the partitions may call this, because other holders were replaced. Without it, a process that
        is stopped in the middle of a COPY would hold the rows forever: PostgreSQL has no timeout for that.
        """
        from psycopg import errors

        try:
            with connection.cursor() as cursor:
                self._execute(cursor, _END_HOLDERS, group, partitions)
                return len(cursor.fetchall())
        except errors.InsufficientPrivilege as refused:
            _log.warning("The session that holds the fences of %s could not be ended: %s", partitions, refused)
            return 0

    def forget(self, connection: Connection[TupleRow], group: str) -> int:
        """Remove a group's fences; return their number."""
        from psycopg import errors

        with self._as_sink_error(connection), suppress(errors.UndefinedTable), connection.cursor() as cursor:
            self._execute(cursor, _FORGET, group, ())
            return cursor.rowcount
        return 0

    def _execute(
        self, cursor: Cursor[TupleRow], text: str, group: str, partitions: Sequence[Partition], **values: object
    ) -> None:
        from psycopg import sql

        named = {
            "sink": self.sink,
            "group": group,
            "topics": [topic for topic, _ in partitions],
            "partitions": [partition for _, partition in partitions],
        }
        cursor.execute(sql.SQL(text).format(table=sql.Identifier(*self.table.split("."))), {**named, **values})

    @contextmanager
    def _as_sink_error(self, connection: Connection[TupleRow]) -> Iterator[None]:
        """Raise errors of PostgreSQL as SinkError with the name of the table, except errors of the connection."""
        from psycopg import Error, errors

        try:
            yield
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            raise
        except Error as error:
            if connection.closed:
                raise
            raise SinkError(f"the fence table {self.table}: {error}") from error


# ---- rows ----


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRows:
    """Writes one row for each message, by COPY."""

    table: str
    columns: tuple[str, ...]
    row: Callable[[Message], Sequence[object]]

    def __call__(self, cursor: Cursor[TupleRow], batch: list[Message], context: SinkContext) -> None:
        """Write the batch."""
        from psycopg import sql

        self.refuse_format(context.batch_format)
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(*self.table.split(".")), sql.SQL(", ").join(map(sql.Identifier, self.columns))
        )
        with cursor.copy(statement) as copy:
            for message in batch:
                try:
                    copy.write_row(self.row(message))
                except Exception as raised:
                    name_record(raised, message)
                    raise

    def refuse_format(self, batch_format: BatchFormat) -> None:
        """Raise ConfigurationError for batch formats other than messages."""
        if batch_format is not BatchFormat.MESSAGES:
            raise ConfigurationError(
                "batch_format",
                batch_format.value,
                "PostgresSink.rows accepts only messages; use batch_format='messages', or PostgresSink with your own "
                "write function",
            )

    def checked(self, cursor: Cursor[TupleRow]) -> str:
        """Return a description of the table; raise ConfigurationError if the rows cannot be written to it."""
        if _rights(cursor, self.table) is None:
            remedy = "does not exist in this database; create it, or correct the name"
            raise ConfigurationError("table", self.table, remedy)
        cursor.execute(
            "SELECT attname, has_column_privilege(attrelid, attnum, 'INSERT') FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (_quoted(self.table),),
        )
        may_insert: dict[str, bool] = dict(cursor.fetchall())
        if missing := [column for column in self.columns if column not in may_insert]:
            raise ConfigurationError(
                "columns", ", ".join(missing), f"table {self.table} has the columns {', '.join(may_insert)}"
            )
        if not all(may_insert[column] for column in self.columns):
            raise _forbidden("table", self.table, ["INSERT"])
        return f"table {self.table} has the columns and may be written"


def _quoted(name: str) -> str:
    """Return a name, with or without a schema, quoted for SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _rights(cursor: Cursor[TupleRow], table: str, *rights: str) -> dict[str, bool] | None:
    """Return which of these privileges the user has on a table; None if the table does not exist."""
    cursor.execute("SELECT to_regclass(%s)::oid", (_quoted(table),))
    row = cursor.fetchone()
    if row is None or row[0] is None:
        return None
    cursor.execute(
        "SELECT one, has_table_privilege(%s::oid, one) FROM unnest(%s::text[]) AS one", (row[0], list(rights))
    )
    return dict(cursor.fetchall())


def _forbidden(key: str, table: str, lacking: Sequence[str]) -> ConfigurationError:
    remedy = f"the user may not write to this table; GRANT {', '.join(lacking)} ON {table}"
    return ConfigurationError(key, table, remedy)


class _LostError(Exception):
    """The transaction ended without a known commit, and the batch can be started again."""


def _check(conninfo: str) -> None:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as missing:
        raise ConfigurationError("sink", "PostgresSink", f"needs psycopg 3: {install_command('postgres')}") from missing
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        # The text of the error quotes the string, which may contain a password.
        raise ConfigurationError(
            "conninfo",
            "(not shown)",
            "libpq cannot read it; write 'host=... dbname=... user=...' or 'postgresql://user@host/database'",
        ) from None
