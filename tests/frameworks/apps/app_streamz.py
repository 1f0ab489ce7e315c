"""Print records: `app_streamz.py SERVERS TOPIC GROUP`."""

from __future__ import annotations

import signal
import sys
import time

from streamz import Stream


def main(servers: str, topic: str, group: str) -> None:
    """Run until a signal ends the program."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.append(number))
    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    source = Stream.from_kafka([topic], config, poll_interval=0.01)
    source.sink(lambda value: print("record", value.decode(), flush=True))
    source.start()
    while not stopped:
        time.sleep(0.1)
    source.stop()
    while source.consumer is not None:
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
