"""The table in which PostgreSQL keeps the fences: one row for each sink, group and partition.

Every batch locks its rows first, so that of two attempts one waits for the other's transaction before it writes
anything; whatever else the two would fight over comes after that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consumer_membership.errors import SinkError
from consumer_membership.spark.sinks.ruling import UNWRITTEN, Place, StoredFence

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.rows import TupleRow
    from psycopg.sql import Composed

_log = logging.getLogger("consumer_membership.spark")

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
# In one order for everybody, so that two batches of several partitions never wait for each other.
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
# The transaction that locks a row, or has changed it, stands in the row's xmax, and holds the lock of its own id.
_END_HOLDERS = f"""
SELECT pg_terminate_backend(pid) FROM (
    SELECT DISTINCT pid FROM {{table}} AS fences
    JOIN pg_locks ON locktype = 'transactionid' AND granted AND transactionid = fences.xmax
    WHERE pid <> pg_backend_pid() AND {_ROWS_OF_BATCH}
) AS holders"""  # noqa: S608 - names of our own


class FenceHeldError(Exception):
    """Another transaction holds the fences of a batch; only within this room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceTable:
    """The fences of one sink; `table` may have a schema in front of it, with a dot."""

    table: str
    sink: str

    def prepare(self, connection: Connection[TupleRow], group: str, places: Sequence[Place]) -> None:
        """See to it that the table and the rows exist.

        Outside the batch's transaction, so that a row which somebody holds is always one that all can see.
        """
        from psycopg import errors  # noqa: PLC0415 - an extra

        unwritten = {
            "next_offset": UNWRITTEN.next_offset,
            "epoch": UNWRITTEN.epoch,
            "attempt": UNWRITTEN.attempt,
            "writer": UNWRITTEN.writer,
        }
        words = self._words(group, places) | unwritten
        with self._told(connection), connection.cursor() as cursor:
            with suppress(errors.UndefinedTable):
                cursor.execute(self._statement(_INSERT), words)
                return
            # IF NOT EXISTS looks before it takes the name: two that create at once may both try, and one is refused
            # by the catalogue's own keys once the other has committed.
            with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
                cursor.execute(self._statement(_CREATE))
                _log.info("Created the table %s for the fences of sinks", self.table)
            cursor.execute(self._statement(_INSERT), words)

    def lock(self, cursor: Cursor[TupleRow], group: str, places: Sequence[Place]) -> Mapping[Place, StoredFence]:
        """Hold the rows until the transaction ends; what they say.

        Raises:
            FenceHeldError: another transaction holds one of them for longer than `lock_timeout`.
        """
        from psycopg import errors  # noqa: PLC0415 - an extra

        try:
            with self._told(cursor.connection):
                cursor.execute(self._statement(_LOCK), self._words(group, places))
        except errors.LockNotAvailable as held:
            raise FenceHeldError from held
        return {
            (topic, partition): StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer=writer)
            for topic, partition, next_offset, epoch, attempt, writer in cursor
        }

    def store(self, cursor: Cursor[TupleRow], group: str, fences: Mapping[Place, StoredFence]) -> None:
        """Keep these in the rows that are locked.

        Raises:
            SinkError: the rows are gone.
        """
        words = self._words(group, list(fences)) | {
            "offsets": [fence.next_offset for fence in fences.values()],
            "epochs": [fence.epoch for fence in fences.values()],
            "attempts": [fence.attempt for fence in fences.values()],
            "writer": next(iter(fences.values())).writer,
        }
        with self._told(cursor.connection):
            cursor.execute(self._statement(_STORE), words)
        if cursor.rowcount != len(fences):
            raise SinkError(f"the fences of group {group!r} in {self.table} were removed while a batch was written")

    def end_holders(self, connection: Connection[TupleRow], group: str, places: Sequence[Place]) -> int:
        """End the sessions whose transactions hold these rows; how many there were.

        For the owner of the partitions only: whoever else holds them was replaced. A process that is stopped in the
        middle of a COPY holds them for ever otherwise, for no timeout of PostgreSQL's counts there.
        """
        from psycopg import errors  # noqa: PLC0415 - an extra

        try:
            with connection.cursor() as cursor:
                cursor.execute(self._statement(_END_HOLDERS), self._words(group, places))
                return len(cursor.fetchall())
        except errors.InsufficientPrivilege as refused:
            _log.warning("A transaction that holds the fences of %s cannot be ended: %s", places, refused)
            return 0

    def forget(self, connection: Connection[TupleRow], group: str) -> int:
        """Remove a group's fences; how many there were."""
        from psycopg import errors  # noqa: PLC0415 - an extra

        delete = "DELETE FROM {table} WHERE sink = %(sink)s AND consumer_group = %(group)s"
        with self._told(connection), suppress(errors.UndefinedTable), connection.cursor() as cursor:
            cursor.execute(self._statement(delete), self._words(group, ()))
            return cursor.rowcount
        return 0

    def _statement(self, text: str) -> Composed:
        from psycopg import sql  # noqa: PLC0415 - an extra

        return sql.SQL(text).format(table=sql.Identifier(*self.table.split(".")))

    def _words(self, group: str, places: Sequence[Place]) -> dict[str, object]:
        return {
            "sink": self.sink,
            "group": group,
            "topics": [topic for topic, _ in places],
            "partitions": [partition for _, partition in places],
        }

    @contextmanager
    def _told(self, connection: Connection[TupleRow]) -> Iterator[None]:
        """Say whose table it is that PostgreSQL complains of, unless the connection is what is wrong."""
        from psycopg import Error, errors  # noqa: PLC0415 - an extra

        try:
            yield
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            raise
        except Error as error:
            if connection.closed:
                raise
            raise SinkError(f"the table of fences, {self.table}: {error}") from error
