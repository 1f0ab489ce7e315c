"""Listen to the progress of the queries of a Spark session, and stop listening without a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent


def progress_listener(progressed: Callable[[Any], None]) -> Any:  # noqa: ANN401
    """Create a listener class with the installed pyspark; it only forwards events, because Spark waits for it."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Forwards the progress of queries."""

        def onQueryStarted(self, event: object) -> None:
            """Do nothing: the first batch has the query's position."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            """Forward the end of a finished batch, which is in the checkpoint now."""
            progressed(event.progress)

        def onQueryIdle(self, event: object) -> None:
            """Do nothing: there are no new records."""

        def onQueryTerminated(self, event: object) -> None:
            """Do nothing: the member stays until the mirror is closed, and the query may be started again."""

    return Listener()


def remove_listener(streams: Any, listener: Any) -> None:  # noqa: ANN401 - pyspark has two classes without a common base
    """Remove a listener from `spark.streams` after it has received the events that are on their way.

    A Spark Connect session removes its last listener under a lock: it joins the thread that delivers events, and that
    thread needs the lock for each event. If an event arrives meanwhile, for example the end of a query, both wait
    forever (pyspark 4.0 to 4.3, `StreamingQueryListenerBus.remove`). So the join releases the lock here.
    """
    bus = getattr(streams, "_sqlb", None)  # only a Spark Connect session has one
    lock = getattr(bus, "_lock", None)
    if bus is not None and lock is not None:
        with lock:
            thread = getattr(bus, "_execution_thread", None)
            if isinstance(thread, threading.Thread):  # not if another removal has replaced it already
                bus._execution_thread = _JoinWithoutLock(thread, lock)  # noqa: SLF001 - pyspark has no other way
    with suppress(ValueError):  # the connection was lost during the join, so pyspark removed all listeners
        streams.removeListener(listener)


class _JoinWithoutLock:
    """A thread whose `join` releases a lock that the caller holds, so that the thread can end."""

    def __init__(self, thread: threading.Thread, lock: threading.Lock) -> None:
        self._thread = thread
        self._lock = lock

    def join(self) -> None:
        """Wait for the end of the thread without the lock."""
        self._lock.release()
        try:
            self._thread.join()
        finally:
            self._lock.acquire()
