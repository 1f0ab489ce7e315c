"""Remove COUNT listeners of a Spark Connect session, the last one while an event arrives: `listener_removal COUNT`.

Prints the number of events that the listener received. The classes are pyspark's own; only the connection to the server
is scripted: an event arrives after the server has received the removal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any

from consumer_membership.spark.query_listener import progress_listener, remove_listener
from tests.spark.batch_progress import progress_fields
from tests.support.newest_pyspark import connect_libraries

sys.path.append(str(connect_libraries()))

from pyspark.sql.connect import proto
from pyspark.sql.connect.streaming.query import StreamingQueryManager


class Connection:
    """The server's side of one session."""

    def __init__(self) -> None:
        self._results: Queue[proto.StreamingQueryListenerEventsResult | None] = Queue()

    def execute_command_as_iterator(self, _: object) -> Iterator[dict[str, Any]]:
        """Confirm the listener, and yield results until the listener is removed."""
        yield self._result(proto.StreamingQueryListenerEventsResult(listener_bus_listener_added=True))
        yield from map(self._result, iter(self._results.get, None))

    def execute_command(self, _: object) -> None:
        """Send one more event, and end the results."""
        event = proto.StreamingQueryListenerEvent(
            event_type=proto.StreamingQueryEventType.QUERY_PROGRESS_EVENT,
            event_json=json.dumps({"progress": progress_fields()}),
        )
        self._results.put(proto.StreamingQueryListenerEventsResult(events=[event]))
        self._results.put(None)

    @staticmethod
    def _result(result: proto.StreamingQueryListenerEventsResult) -> dict[str, Any]:
        return {"streaming_query_listener_events_result": result}


def main(count: int) -> None:
    """Remove this number of listeners one after the other, and print how many events the last listener received."""
    streams = StreamingQueryManager(SimpleNamespace(client=Connection()))  # type: ignore[arg-type]  # a scripted session
    received: list[object] = []
    others = [progress_listener(lambda _: None) for _ in range(count - 1)]
    for listener in (*others, progress_listener(received.append)):
        streams.addListener(listener)
    for listener in tuple(streams._sqlb._listener_bus):
        remove_listener(streams, listener)
    print(len(received))


if __name__ == "__main__":
    main(int(sys.argv[1]))
