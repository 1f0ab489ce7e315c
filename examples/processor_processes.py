"""Work that uses the CPU, in worker processes: one for each core, and records of one key one after the other.

    python examples/processor_processes.py -b localhost:9092 -t orders

Worker processes import this module, so the handler is at its top level, and the program begins below
`if __name__ == "__main__"`. A worker process that dies fails its record only. Ctrl-C or SIGTERM finishes the records in
work, commits, and leaves the group.
"""

import argparse
import hashlib
import os

from consumer_membership import Message
from consumer_membership.processing import Processor

ROUNDS = 20_000


def handle(record: Message) -> None:
    """Replace this with your work. It runs in a worker process; the record and the result are copied."""
    hashlib.pbkdf2_hmac("sha256", record.value() or b"", record.key() or b"salt", ROUNDS)


def main() -> None:
    """Handle records until a signal arrives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    )
    parser.add_argument("-g", "--group", default="processor-processes")
    parser.add_argument("-t", "--topic", default="orders")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
    }
    with Processor(config, [options.topic], handle, processes=True, concurrency=options.processes) as processor:
        processor.run()
        handlers = processor.metrics().handlers
        if handlers is not None:
            print(f"{handlers.finished} records in {options.processes} processes")


if __name__ == "__main__":
    main()
